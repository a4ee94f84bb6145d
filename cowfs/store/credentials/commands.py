"""Programs of the user's that print a secret: credentials, or the key of an encrypted store.

A command is split as a shell would and run without one. Its environment is that of the process that
runs it, without passphrases and keys of encrypted stores (`programs`). Its output and its error
messages are not shown: they may hold a part of the secret. The answer is the content of the pipe
when the command itself ends: a process that it leaves behind (an agent) may keep its output open,
and print there.
"""

from __future__ import annotations

import os
import select
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cowfs.base import clock, programs
from cowfs.base.errors import CowfsError, InvalidInputError
from cowfs.base.programs import Program
from cowfs.machine import processes

TIMEOUT_S = 60.0
LARGEST_BYTES = 1 << 20
LOOK_S = 0.02
"""So often a program is looked at where the kernel does not tell of its end."""


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
    """Exit status and output. failed: makes the error for a program that does not start, does not
    end, or prints more than `LARGEST_BYTES`."""
    try:
        program = programs.start(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
    except OSError as error:
        raise failed(f"cannot be run: {error.strerror}") from None
    with program:
        try:
            printed = _read_output(program, failed)
        finally:
            program.kill()  # without effect after its end
    return program.returncode, printed


def _read_output(program: Program, failed: Callable[[str], CowfsError]) -> bytes:
    """Until it ends, for a minute at most."""
    assert program.stdout is not None
    ends_s = clock.monotonic_s() + TIMEOUT_S
    printed, waiter = bytearray(), select.poll()
    output = program.stdout.fileno()
    os.set_blocking(output, False)
    waiter.register(output, select.POLLIN)
    with _end_of(program) as end:
        if end is not None:
            waiter.register(end, select.POLLIN)
        while (left_s := ends_s - clock.monotonic_s()) > 0:
            has_ended = end is None and program.poll() is not None
            ready = [descriptor for descriptor, _ in waiter.poll((left_s if end is not None else LOOK_S) * 1000)]
            has_ended = has_ended or end in ready
            if not ready and not has_ended:
                continue
            # One read takes what the pipe holds at this moment: all that a program that has ended
            # had printed.
            piece = program.stdout.read(LARGEST_BYTES + 1 - len(printed))
            printed += piece or b""
            if len(printed) > LARGEST_BYTES:
                raise failed(f"printed more than {LARGEST_BYTES >> 20} MiB")
            if has_ended:
                return bytes(printed)
            if piece == b"":  # closed, and it goes on
                waiter.unregister(output)
    raise failed(f"has not ended after {TIMEOUT_S:.0f} s")


@contextmanager
def _end_of(program: Program) -> Iterator[int | None]:
    """A descriptor that becomes readable when the program ends; None: poll the program instead."""
    try:
        descriptor = processes.descriptor_of(program.pid)
    except ProcessLookupError:  # ended, and reaped: by a process that ignores SIGCHLD
        descriptor = os.open(os.devnull, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)
