"""What an upload of a copy's folder knows of each file from before, and learns for the next time.

    known   stamps of the version that the volume stands on: a file that has its stamp still is not read
    seen    stamps of what this draft has put into the next version, each as it was when it was read

A file that was written to after it was read has another stamp than `seen` has, so the next commit
reads it. Where stamps have digests (`mapped_stores`), a file's digest is taken before it is read
for the version, and `Copy.move_base` compares it with one that is taken afterwards; while somebody
may write to it there is no stamp.

A renamed file is found by its inode number (`path_before`). It is the file that the stamp was taken
of, and not a later one that got its number, if it was made before the stamp's time of change: the
number was taken then. Where a file system does not keep when a file was made, none is found.

For the thread that runs the upload.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from cowfs.machine import births, open_writers
from cowfs.machine.mapped_stores import Devices
from cowfs.machine.stamps import FileStamp, Stamps, digest
from cowfs.session.copying import KEPT_BITS

if TYPE_CHECKING:
    from cowfs.session.copying import Attributes
    from cowfs.session.source_files import Stamp

_INO = (1 << 64) - 1


class CopyStamps:
    """root: the folder. known: none, if there are none for that version."""

    def __init__(self, root: bytes, known: Stamps | None) -> None:
        self._root = root
        self._device = os.stat(root).st_dev
        self._known = known or {}
        self._paths: dict[int, bytes] | None = None  # of inodes that have stamps
        self._devices = Devices(root)
        self._digests: dict[bytes, bytes] = {}  # of those whose device has digests; b"": no stamp
        self.seen: Stamps = {}
        self._linked: dict[int, FileStamp] = {}  # inodes with several names

    def begin(self) -> None:
        """Of a draft."""
        self.seen = {}
        self._linked = {}
        self._digests = {}

    def is_same(self, path: bytes, attr: Attributes) -> bool:
        """Whether it is, to the byte, what the version has at the path. Asked before a file is
        read."""
        found, known = _of(attr), self._known.get(path)
        if not stat.S_ISREG(attr.mode) or self._devices.are_noted(attr.ino >> 64, path):
            return known == found
        at = os.path.join(self._root, path)
        self._digests[path] = b"" if open_writers.is_written(at) else digest(at)
        return known is not None and known.looks_like(found) and known.digest == (self._digests[path] or None)

    def has_mode(self, path: bytes, mode: int) -> bool:
        """Whether what the version has at the path was shown with this mode already when it was
        written here: some file systems show one mode for all."""
        known = self._known.get(path)
        return known is not None and known.mode & KEPT_BITS == mode

    def path_before(self, path: bytes, attr: Attributes) -> bytes | None:
        """Where the version has the file or link that has this path now, if that is another path,
        and the time of modification is as it was. Its content may be another one, since that time
        may be set. None: there is none, or it cannot be told."""
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
        born_ns = births.birth_ns(os.path.join(self._root, path), found.ino)
        return before if born_ns is not None and born_ns <= known.ctime_ns else None

    def take(self, path: bytes, attr: Attributes) -> None:
        """It is in the next version as it was when its directory was listed."""
        self._put(path, _of(attr), attr.nlink)

    def take_file(self, path: bytes, attr: Attributes, read: Stamp | None) -> None:
        """The next version has what was read; None: it was the same as before, and was not."""
        found = _of(attr)
        if read is not None:
            found = FileStamp(read.mode, read.ino & _INO, read.size, read.mtime_ns, read.ctime_ns)
        if (content := self._digests.get(path)) != b"":
            self._put(path, found._replace(digest=content or b""), attr.nlink)

    def take_link(self, path: bytes, attr: Attributes) -> None:
        """Another name of a file that was taken."""
        found = _of(attr)
        if (taken := self._linked.get(found.ino)) is not None and taken.looks_like(found):
            self.seen[path] = taken

    def _put(self, path: bytes, stamp: FileStamp, links: int) -> None:
        self.seen[path] = stamp
        if links > 1 and not stat.S_ISDIR(stamp.mode):
            self._linked[stamp.ino] = stamp


def is_left_alone(mode: int) -> bool:
    """Whether a copy does not have it, so that its absence says nothing: a device, a pipe, a
    socket."""
    return stat.S_IFMT(mode) not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)


def _paths_of(known: Stamps) -> dict[int, bytes]:
    """A path of each inode; b"" if there are two with this number, of different file systems."""
    paths: dict[int, bytes] = {}
    for path, stamp in known.items():
        if not stat.S_ISDIR(stamp.mode) and (other := paths.setdefault(stamp.ino, path)) and known[other] != stamp:
            paths[stamp.ino] = b""
    return paths


def _of(attr: Attributes) -> FileStamp:
    if stat.S_ISDIR(attr.mode):
        return FileStamp(attr.mode, 0, 0, attr.mtime_ns, 0)
    ctime_ns: int = attr.ctime_ns  # type: ignore[attr-defined] # of this machine's files
    return FileStamp(attr.mode, attr.ino & _INO, attr.size, attr.mtime_ns, ctime_ns)
