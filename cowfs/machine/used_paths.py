"""Which processes use the files below a directory: open, mapped, or as their current directory.

As far as this user may look. Processes in another mount namespace that see the directory elsewhere
are not found.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


def users(root: str) -> list[int]:
    """Pids, this process' own too."""
    return sorted({pid for pid, _ in _uses(root)})


def inodes(root: str) -> set[int]:
    """The inodes that are open or mapped."""
    return {ino for _, ino in _uses(root)}


def _uses(root: str) -> Iterator[tuple[int, int]]:
    """(pid, inode) of each use."""
    for pid in (int(name) for name in os.listdir("/proc") if name.isascii() and name.isdigit()):
        with contextlib.suppress(OSError):  # ended, or not ours to look into
            links = [f"/proc/{pid}/cwd", *(f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd"))]
            yield from ((pid, ino) for link in links if (ino := _inode(link, root)) is not None)
        with contextlib.suppress(OSError):
            yield from ((pid, ino) for ino in _mapped(pid, root))


def _inode(link: str, root: str) -> int | None:
    try:
        return os.stat(link).st_ino if _is_below(os.readlink(link), root) else None
    except OSError:
        return None


def _mapped(pid: int, root: str) -> list[int]:
    # 7f2c8a000000-7f2c8a021000 rw-s 00000000 fe:00 1048602                    /path
    with open(f"/proc/{pid}/maps", errors="surrogateescape") as lines:
        rows = (line.rstrip("\n").split(maxsplit=5) for line in lines)
        return [int(row[4]) for row in rows if len(row) == 6 and _is_below(row[5], root)]


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
