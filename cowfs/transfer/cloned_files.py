"""Whole files whose blocks copies share (reflinks), on file systems that can: btrfs, xfs and
others.

    <cache dir>/whole/<2 hex>/<64 hex>     the file's bytes; the name is `VersionTree.content_id`

A large file of a copy is cloned from here instead of being fetched, and cloned to here after a
fetch. Neither copies data, nor takes space while the copy is unchanged. Later changes to the copy
do not affect the clone. A clone is not trusted: filling a copy checks each chunk by its hash
(`LocalFiles.put_rest`) and fetches wrong ones, so clones need no sync.

These files are in the directory of the engine's cache of whole files, and any mount trims them with
it. `trim` is for machines that have no mounts. After a failure to clone, cloning is not tried
again. Any thread may call.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from cowfs.base import clock, private_directories
from cowfs.control.options import CACHE_DEFAULT_BYTES

_FICLONE = 0x40049409
_FOLDER = "whole"


def clone(source: int, target: int) -> None:
    """Makes the target a copy of the source that shares its blocks. OSError: the file system
    cannot."""
    fcntl.ioctl(target, _FICLONE, source)


class ClonedFiles:
    """limit_bytes: the most that the files may hold; None: the default size of a cache."""

    def __init__(self, cache_dir: Path, limit_bytes: int | None) -> None:
        self._root = private_directories.require(cache_dir / _FOLDER)
        self._limit_bytes = CACHE_DEFAULT_BYTES if limit_bytes is None else limit_bytes
        self._works = True

    def fill(self, content_id: str, fd: int) -> bool:
        """Clones the file into an empty one. False: it is not here, or cannot be cloned."""
        if not self._works:
            return False
        try:
            found = os.open(path := self._path(content_id), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            clone(found, fd)
            os.utime(path)  # marks it as used now
        except OSError:
            self._works = False
            return False
        finally:
            os.close(found)
        return True

    def keep(self, content_id: str, fd: int) -> None:
        """Keeps a clone of the file."""
        path = self._path(content_id)
        temporary = os.path.join(os.path.dirname(path), f".{clock.random_bytes(8).hex()}")
        if not self._works or os.path.exists(path):
            return
        try:
            private_directories.make(self._root)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            to = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            clone(fd, to)
            os.rename(temporary, path)
        except OSError:
            self._works = False
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        finally:
            os.close(to)

    def trim(self) -> None:
        """Removes the least recently used files until the rest is within the limit."""
        held_bytes, found = 0, list[tuple[int, int, Path]]()
        for path in self._root.glob("*/*"):
            with contextlib.suppress(OSError):
                state = path.stat()
                found.append((state.st_mtime_ns, state.st_size, path))
                held_bytes += state.st_size
        for _, size, path in sorted(found):
            if held_bytes <= self._limit_bytes:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            held_bytes -= size

    def _path(self, content_id: str) -> str:
        return str(self._root / content_id[:2] / content_id)
