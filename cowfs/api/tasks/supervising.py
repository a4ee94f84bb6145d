"""Runs one program as its supervisor, which may be the first process of a container.

    process group   the program has its own. On a terminal it is the one in the foreground, so Ctrl-C reaches the
                    program once, from the kernel; Ctrl-Z also stops this process, for a shell's job control
    signals         forwarded to the program alone. After SIGTERM it has a time limit; then its group is killed
    orphans         processes that the program leaves behind become children of this process and are reaped. Children that
                    cowfs has started itself keep their exit status for the code that waits for them (`base.programs`)

Everything happens in the main thread, one signal after the other.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from cowfs.api.tasks.signals import FORWARDED, NOT_STARTED, STOPS, Signals
from cowfs.base import clock, programs
from cowfs.base.programs import Program

NOT_EXECUTABLE, NOT_FOUND = 126, 127
LOOK_S = 0.05
"""Between two looks at a child of ours that has ended and that its own code has not reaped yet."""
PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37  # linux/prctl.h


class Ended(NamedTuple):
    """is_stop: it got SIGTERM, or ended because of one of STOPS. problem: why it did not start, or
    that it was killed."""

    exit_code: int
    is_stop: bool
    problem: str = ""
    is_started: bool = True


def run(words: Sequence[str], signals: Signals, *, stop_timeout_s: float, stdout: int | None = None) -> Ended:
    """Returns when the program has ended. It has the whole environment and the open descriptors of
    this process's caller."""
    for number in signals.take():
        if number in STOPS:
            return Ended(128 + number, True, NOT_STARTED, is_started=False)
    with _adopt_orphans():
        try:
            program = programs.start(words, env=dict(os.environ), process_group=0, close_fds=False, stdout=stdout)
        except OSError as error:
            code = NOT_FOUND if isinstance(error, FileNotFoundError | NotADirectoryError) else NOT_EXECUTABLE
            return Ended(code, False, f"{words[0]}: {os.strerror(error.errno or 0)}", is_started=False)
        with _Terminal() as terminal:
            return _Supervised(program, signals, terminal, stop_timeout_s).wait()


class _Supervised:
    def __init__(self, program: Program, signals: Signals, terminal: _Terminal, stop_timeout_s: float) -> None:
        self._program = program
        self._signals = signals
        self._terminal = terminal
        self._stop_timeout_s = stop_timeout_s
        self._deadline_s: float | None = None
        self._is_killed = False

    def wait(self) -> Ended:
        self._resume()
        while self._program.poll() is None:
            if os.waitid(os.P_PID, self._program.pid, os.WSTOPPED | os.WNOHANG) is not None and self._terminal.is_open:
                self._terminal.stop_this_process()
                self._resume()
            has_all = programs.reap_orphans()
            for number in self._signals.wait(self._timeout_s(has_all)):
                self._forward(number)
            if self._deadline_s is not None and clock.monotonic_s() >= self._deadline_s:
                self._kill()
        code = self._program.returncode
        code = code if code >= 0 else 128 - code
        is_stop = self._deadline_s is not None or self._is_killed or code - 128 in STOPS
        problem = f"it did not end within {self._stop_timeout_s:g} s after SIGTERM and was killed"
        return Ended(code, is_stop, problem if self._is_killed else "")

    def _resume(self) -> None:
        """It may have been stopped for using the terminal in the background."""
        if self._terminal.give_to(self._program.pid):
            self._signal_group(signal.SIGCONT)

    def _timeout_s(self, has_all: bool) -> float | None:
        times_s = [] if has_all else [LOOK_S]
        if self._deadline_s is not None and not self._is_killed:
            times_s.append(max(0.0, self._deadline_s - clock.monotonic_s()))
        return min(times_s, default=None)

    def _forward(self, number: int) -> None:
        if number not in FORWARDED:
            return
        self._program.send_signal(number)
        if number == signal.SIGTERM and self._deadline_s is None:
            self._program.send_signal(signal.SIGCONT)  # a stopped one would not notice it
            self._deadline_s = clock.monotonic_s() + self._stop_timeout_s

    def _kill(self) -> None:
        if not self._is_killed and self._program.poll() is None:
            self._is_killed = True
            self._signal_group(signal.SIGKILL)
            self._program.kill()

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._program.pid, number)


class _Terminal:
    """The controlling terminal, if this process is in its foreground."""

    def __enter__(self) -> _Terminal:
        self._descriptor: int | None = None
        with suppress(OSError):
            self._descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        if not self._is_ours():
            self._close()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_open:
            self._set(os.getpgrp())
        self._close()

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    def give_to(self, group: int) -> bool:
        """Puts a process group into the foreground, unless this process is no longer there."""
        return self._is_ours() and self._set(group)

    def stop_this_process(self) -> None:
        """Returns when it is continued; at once if no shell could continue it."""
        self._set(os.getpgrp())
        os.kill(os.getpid(), signal.SIGTSTP)

    def _is_ours(self) -> bool:
        if self._descriptor is None:
            return False
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return False

    def _set(self, group: int) -> bool:
        assert self._descriptor is not None
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])  # it would stop a background process
        try:
            os.tcsetpgrp(self._descriptor, group)
        except OSError:  # the program has ended, or the terminal is gone
            return False
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return True

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextmanager
def _adopt_orphans() -> Iterator[None]:
    """A kernel that cannot do it leaves them to the first process."""
    libc, before = ctypes.CDLL(None), ctypes.c_int(0)
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)
