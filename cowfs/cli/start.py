"""Entry of the `cowfs` program: loads the command line and runs it.

Ctrl-C must not show a traceback during loading either. This module and its package therefore import
nothing before they can handle it. The modules that Python itself loads come earlier.
"""

from __future__ import annotations

import _thread
import gc
import os
import sys

INTERRUPTED = 130
INTERRUPTED_JSON = (
    '{"format": 1, "error": {"kind": "interrupted", "message": "interrupted", "hint": "", "details": {}}}\n'
)
TIDYING_S = 10.0
YOUNG_OBJECTS = 50_000
"""More than a short command makes: looking for cycles took a tenth of its time."""

_is_told = False


class Terminated(BaseException):
    """SIGTERM or SIGHUP, for a command that has a message to print or cleanup to do."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def main() -> None:
    _fill_closed_streams()
    gc.set_threshold(YOUNG_OBJECTS)
    try:
        import signal

        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the caller may ignore it, which hides exit statuses
        if sys.argv[1:2] == ["exec"]:  # the first process of a container would lose it while modules load
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        from cowfs.cli.main import main as run

        run()
    except (KeyboardInterrupt, Terminated) as error:
        _leave(error)  # a second Ctrl-C while Python tidies up would show one again
    finally:
        gc.freeze()  # the rest is freed with the process: Python no longer scans it


def _fill_closed_streams() -> None:
    """Opens the null device for standard streams that the caller has closed (`>&-`). Such a stream
    is None in Python, and the next file opened would get its number. Reading finds nothing and
    writing fails, except on stderr, where the failure would not be visible."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY), number)
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", errors="surrogateescape", closefd=False))  # noqa: SIM115


def tidy_up_when_terminated() -> None:
    """From now on SIGTERM and SIGHUP end this command as Ctrl-C does, by an exception, and all
    three within TIDYING_S, because cleanup may wait for a silent store. The command then leaves the
    same state as a killed one. A second Ctrl-C ends it at once. A second SIGTERM or SIGHUP is
    ignored: a service manager may send both, and that must not interrupt the cleanup."""
    import signal

    terminating = (signal.SIGTERM, signal.SIGHUP)
    numbers = [each for each in (*terminating, signal.SIGINT) if signal.getsignal(each) != signal.SIG_IGN]  # nohup

    def end(number: int, _: object) -> None:
        error = KeyboardInterrupt() if number == signal.SIGINT else Terminated(number)
        for each in numbers:
            signal.signal(each, signal.SIG_IGN if each in terminating else lambda *_: _leave(error))
        _thread.start_new_thread(_leave_soon, (error,))
        raise error

    for each in numbers:
        signal.signal(each, end)


def _leave_soon(error: BaseException) -> None:
    import threading

    threading.Event().wait(TIDYING_S)
    _leave(error)


def _leave(error: BaseException) -> None:
    """Exits without waiting for threads or processes."""
    try:
        if not _is_told:
            interrupted(error, as_json="--json" in sys.argv)
        sys.stdout.flush()
    except OSError:
        pass
    finally:
        os._exit(_code_of(error))


def interrupted(error: BaseException, *, as_json: bool) -> int:
    """Prints the interruption, with the notes on the error (`output.if_interrupted`) as the hint,
    and returns the exit code."""
    from contextlib import suppress

    global _is_told
    _is_told = True
    hint = " ".join(getattr(error, "__notes__", None) or getattr(error.__cause__, "__notes__", []))  # click wraps it
    with suppress(OSError):  # the reader of the output has gone, or the terminal has
        if as_json:
            sys.stdout.write(INTERRUPTED_JSON.replace('"hint": ""', f'"hint": {_quote(hint)}'))
            sys.stdout.flush()
        else:
            print("cowfs: interrupted", *([f"hint: {hint}"] if hint else []), sep="\n", file=sys.stderr)  # noqa: T201 - click may not be loaded
    return _code_of(error)


def _quote(text: str) -> str:
    if not text:
        return '""'
    import json

    return json.dumps(text)


def _code_of(error: BaseException) -> int:
    return error.exit_code if isinstance(error, Terminated) else INTERRUPTED
