"""Programs of the user's that print a secret: credentials, or the key of an encrypted store.

A command is split as a shell would and run without one, with the environment of the process that
runs it. What it prints is told to nobody, an error of its own neither: it may hold a part of the
answer. The answer is what was printed when the command itself ends: a process that it leaves behind
(an agent) may keep its output open.
"""

from __future__ import annotations

import select
import shlex
import subprocess
from collections.abc import Callable

from cowfs import clock
from cowfs.errors import CowfsError, InvalidInputError

TIMEOUT_S = 60.0
LOOK_S = 0.05  # whether it has ended, while its output is open and nothing comes
PIECE_BYTES = 1 << 16


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
        program = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
    except OSError as error:
        raise failed(f"cannot be run: {error.strerror}") from None
    with program:
        try:
            printed = _printed(program)
        except subprocess.TimeoutExpired:
            raise failed(f"has not ended after {TIMEOUT_S:.0f} s") from None
        finally:
            program.kill()  # does nothing to one that has ended
    return program.returncode, printed


def _printed(program: subprocess.Popen[bytes]) -> bytes:
    """Until it ends, for a minute at most."""
    assert program.stdout is not None
    ends_s = clock.monotonic_s() + TIMEOUT_S
    printed, output = bytearray(), select.poll()
    output.register(program.stdout, select.POLLIN)
    while (left_s := ends_s - clock.monotonic_s()) > 0:
        has_ended = program.poll() is not None  # before the look: what it has printed is there then
        if not output.poll(0 if has_ended else min(LOOK_S, left_s) * 1000):
            if has_ended:
                return bytes(printed)
        elif piece := program.stdout.read(PIECE_BYTES):
            printed += piece
        else:
            program.wait(max(ends_s - clock.monotonic_s(), 0))
            return bytes(printed)
    raise subprocess.TimeoutExpired(program.args, TIMEOUT_S)
