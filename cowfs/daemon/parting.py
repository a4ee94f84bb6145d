"""Detaches the daemon from its starter: `python -m cowfs.daemon apart`.

    starter ─▶ this process ─▶ daemon       until it is ready; ends as the daemon does, if that is sooner
    starter                    daemon       from then on a child of init

Some programs kill all their descendants: Ray the children of each worker that ends, joblib those of
a whole pool. But a mount may have other users.

Imports nothing that takes time, because it runs before all other modules.
"""

from __future__ import annotations

import contextlib
import os

_between: int | None = None


def part() -> None:
    """Forks, and returns in the child. Call it before there are threads."""
    global _between
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _between = writer
        return
    for descriptor in (0, 1, writer):
        os.close(descriptor)
    if os.read(reader, 1):
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(status if status >= 0 else 128 - status)


def leave() -> None:
    """Ends the intermediate process, if there is one."""
    global _between
    if _between is None:
        return
    with contextlib.suppress(BrokenPipeError):  # it was killed
        os.write(_between, b"x")
    os.close(_between)
    _between = None
