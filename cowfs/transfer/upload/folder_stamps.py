"""The stamps of a copy's folder: what an upload knows of each file from before, and records for the
next time.

    known   stamps of the version that the volume is based on: a file with the same stamp is not read
    seen    stamps of the files that this draft has put into the next version, as they were when they were read

A file that was written to after it was read no longer has its stamp in `seen`, so the next commit
reads it.

A renamed file is found by its inode number and its time of modification (`path_before`). Its
content is then compared, since another file may have both by now.

For the thread that runs the upload.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from cowfs.machine.folders import stamps
from cowfs.machine.folders.stamps import FileStamp, Stamps
from cowfs.transfer.copying import KEPT_BITS

if TYPE_CHECKING:
    from cowfs.transfer.copying import Attributes
    from cowfs.transfer.source_files import Stamp

_INO = (1 << 64) - 1


class CopyStamps:
    """device: of the folder. known: None if there are no stamps for that version."""

    def __init__(self, device: int, known: Stamps | None) -> None:
        self._device = device
        self._known = known or {}
        self._paths: dict[int, bytes] | None = None  # of inodes that have stamps
        self.seen: Stamps = {}
        self._linked: dict[int, FileStamp] = {}  # inodes with several names

    def begin(self) -> None:
        """Starts a draft."""
        self.seen = {}
        self._linked = {}

    def is_same(self, path: bytes, attr: Attributes) -> bool:
        """Whether the file is the version's at this path, as far as times tell."""
        return self._known.get(path) == _of(attr)

    def has_mode(self, path: bytes, mode: int) -> bool:
        """Whether the version's file at this path already showed this mode when it was written
        here: some file systems show one mode for all."""
        known = self._known.get(path)
        return known is not None and known.mode & KEPT_BITS == mode

    def path_before(self, path: bytes, attr: Attributes) -> bytes | None:
        """The version's path of the file or link that now has this path, if it was renamed and the
        time of modification is unchanged. Its content may differ. None: there is no such path, or
        it is ambiguous."""
        found, known = _of(attr), self._known.get(path)
        if (known is not None and known.ino == found.ino) or attr.ino >> 64 != self._device:
            return None
        if self._paths is None:
            self._paths = _paths_of(self._known)
        if not (before := self._paths.get(found.ino)):
            return None
        known = self._known[before]
        if (stat.S_IFMT(known.mode), known.mtime_ns) != (stat.S_IFMT(found.mode), found.mtime_ns):
            return None
        return before

    def take(self, path: bytes, attr: Attributes) -> None:
        """Records an entry as it was when its directory was listed."""
        self._put(path, _of(attr), attr.nlink)

    def take_file(self, path: bytes, attr: Attributes, read: Stamp | None) -> None:
        """Records a file as it was read; None: it was unchanged and not read."""
        found = _of(attr)
        if read is not None:
            found = stamps.of(read.mode, read.ino & _INO, read.size, read.mtime_ns, read.ctime_ns)
        self._put(path, found, attr.nlink)

    def take_link(self, path: bytes, attr: Attributes) -> None:
        """Records another name of a file that was recorded."""
        found = _of(attr)
        if self._linked.get(found.ino) == found:
            self.seen[path] = found

    def _put(self, path: bytes, stamp: FileStamp, links: int) -> None:
        self.seen[path] = stamp
        if links > 1 and not stat.S_ISDIR(stamp.mode):
            self._linked[stamp.ino] = stamp


def _paths_of(known: Stamps) -> dict[int, bytes]:
    """A path of each inode; b"" if two inodes of different file systems have this number."""
    paths: dict[int, bytes] = {}
    for path, stamp in known.items():
        if not stat.S_ISDIR(stamp.mode) and (other := paths.setdefault(stamp.ino, path)) and known[other] != stamp:
            paths[stamp.ino] = b""
    return paths


def _of(attr: Attributes) -> FileStamp:
    ctime_ns: int = getattr(attr, "ctime_ns", 0)  # of local files; directories need none
    return stamps.of(attr.mode, attr.ino & _INO, attr.size, attr.mtime_ns, ctime_ns)
