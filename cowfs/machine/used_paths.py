"""Finds the processes that use files below a directory: open, mapped, or as current directory.

Limited to processes that this user may inspect. Processes in another mount namespace that see the
directory elsewhere are not found.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


def users(root: str) -> list[int]:
    """Pids, including that of this process."""
    return [pid for pid in _pids() if _has_open(pid, root) or any(_is_below(path, root) for path in _read_maps(pid))]


def _pids() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isascii() and name.isdigit())


def _has_open(pid: int, root: str) -> bool:
    process = f"/proc/{pid}"
    try:
        links = [f"{process}/cwd", *(f"{process}/fd/{name}" for name in os.listdir(f"{process}/fd"))]
    except OSError:  # ended, or not inspectable by this user
        return False
    return any(_leads_below(link, root) for link in links)


def _leads_below(link: str, root: str) -> bool:
    try:
        return _is_below(os.readlink(link), root)
    except OSError:
        return False


def _read_maps(pid: int) -> Iterator[str]:
    """The path of each mapped file."""
    # 7f2c8a000000-7f2c8a021000 rw-s 00000000 fe:00 1048602                    /path
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", errors="surrogateescape") as lines:
        for line in lines:
            row = line.rstrip("\n").split(maxsplit=5)
            if len(row) == 6 and row[5].startswith("/"):
                yield row[5]


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
