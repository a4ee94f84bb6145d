"""Entry of the `cowfs` program: loads the command line and runs it.

Loading takes a moment, in which Ctrl-C must not show a traceback either: so this imports nothing
before it is ready for one.
"""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130


class Terminated(BaseException):
    """SIGTERM or SIGHUP, to a command that leaves nothing half done behind."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def main() -> None:
    try:
        from cowfs.cli.main import main as run

        run()
    except (KeyboardInterrupt, Terminated) as error:
        code = interrupted(error, as_json="--json" in sys.argv)
        sys.stdout.flush()
        os._exit(code)  # a second Ctrl-C while Python tidies up would show one again


def tidy_up_when_terminated() -> None:
    """From now on SIGTERM and SIGHUP end this command as Ctrl-C does, by an exception. Only the
    first one: a service manager may send both, and the second must not end the tidying."""
    import signal

    numbers = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) != signal.SIG_IGN]  # nohup

    def end(number: int, _: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise Terminated(number)

    for each in numbers:
        signal.signal(each, end)


def interrupted(error: BaseException, *, as_json: bool) -> int:
    """Says so, and returns the exit code."""
    if as_json:
        print('{"format": 1, "error": {"kind": "interrupted", "message": "interrupted", "hint": "", "details": {}}}')  # noqa: T201
    else:
        print("cowfs: interrupted", file=sys.stderr)  # noqa: T201 - click may not be loaded
    return error.exit_code if isinstance(error, Terminated) else INTERRUPTED
