"""Named crash points: where a test may kill the process as `kill -9` would.

`COWFS_FAILPOINT=after-packs` kills the process with SIGKILL the first time `hit("after-packs")`
runs; `after-packs:3` lets two hits pass and dies at the third. Several points are separated by
commas. Without the variable a hit costs one look into an empty dictionary. The names in use are
listed where they are hit; nothing here knows them. Nothing is flushed or closed on the way out:
that is the point.
"""

from __future__ import annotations

import os
import signal
import threading

from cowfs.base.errors import InvalidInputError

VARIABLE = "COWFS_FAILPOINT"

_lock = threading.Lock()


def _parse(text: str) -> dict[str, int]:
    """Hits left until death, by name."""
    armed: dict[str, int] = {}
    for item in filter(None, text.split(",")):
        name, _, count = item.partition(":")
        if not name or (count and not (count.isascii() and count.isdigit() and int(count) > 0)):
            raise InvalidInputError(
                f"{item!r} is not a failpoint", hint="Write NAME or NAME:COUNT, several separated by commas."
            )
        armed[name] = int(count or 1)
    return armed


_armed = _parse(os.environ.get(VARIABLE, ""))


def hit(name: str) -> None:
    """Marks a crash point; returns at once unless the environment armed it."""
    if name not in _armed:
        return
    with _lock:
        _armed[name] -= 1
        if _armed[name] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
