"""When volumes were last mounted on this machine, for `clean`.

    <state dir>/last_mounts/<store id>/<volume>     empty; its time of modification is when a mount of the volume, or of one
                                                    of its versions, last began or ended here

Losing it loses no data: leases and pins in the store show mounts, too.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from cowfs.base import clock, config, private_directories
from cowfs.base.errors import CowfsError


def note(store_id: str, volume: str) -> None:
    """A mount begins or ends. A full disk must not keep it from that."""
    with suppress(OSError, CowfsError):
        path = _place(store_id, volume)
        private_directories.make(path.parent)
        path.touch(mode=0o600)
        now_ns = clock.now_ns()
        os.utime(path, ns=(now_ns, now_ns))


def find_ns(store_id: str, volume: str) -> int | None:
    """None: no mount is recorded. OSError: it cannot be told."""
    try:
        return _place(store_id, volume).stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _place(store_id: str, volume: str) -> Path:
    return config.state_subdirectory("last_mounts") / store_id / volume
