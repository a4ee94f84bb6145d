"""Entry of the `cowfs` program: loads the command line and runs it.

Loading takes a moment, in which Ctrl-C must not show a traceback either: so this imports nothing
before it is ready for one.
"""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130


def main() -> None:
    try:
        from cowfs.cli.main import main as run

        run()
    except KeyboardInterrupt:
        interrupted(as_json="--json" in sys.argv)
        sys.stdout.flush()
        os._exit(INTERRUPTED)  # a second Ctrl-C while Python tidies up would show one again


def interrupted(*, as_json: bool) -> int:
    """Says so, and returns the exit code."""
    if as_json:
        print('{"format": 1, "error": {"kind": "interrupted", "message": "interrupted", "hint": "", "details": {}}}')  # noqa: T201
    else:
        print("cowfs: interrupted", file=sys.stderr)  # noqa: T201 - click may not be loaded
    return INTERRUPTED
