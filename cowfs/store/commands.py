"""Programs of the user's that print a secret: credentials, or the key of an encrypted store.

A command is split as a shell would and run without one, with the environment of the process that
runs it. What it prints is told to nobody, an error of its own neither: it may hold a part of the
answer.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable

from cowfs.errors import CowfsError, InvalidInputError

TIMEOUT_S = 60.0


def words_of(command: object, refused: str) -> list[str]:
    """InvalidInputError, which says `refused`: not a command."""
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        words = []
    if not words:
        raise InvalidInputError(refused, hint="Give a program and its arguments, as one text.")
    return words


def run(words: list[str], failed: Callable[[str], CowfsError]) -> tuple[int, bytes]:
    """Exit status, and what was printed. failed: the error for a program that does not end or
    begin."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise failed(f"has not ended after {TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise failed(f"cannot be run: {error.strerror}") from None
    return done.returncode, done.stdout
