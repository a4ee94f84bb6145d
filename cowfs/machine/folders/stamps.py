"""Stamps: the metadata of each file of a copy at a time when its content was the version's. A file
that still matches its stamp was not written to.

    "cowfs-stamps 3 <version id, 64 hex>\\n"
    for each path: <HIQQqq: length of the path, mode, inode, size, mtime_ns, ctime_ns; then the path
    BLAKE3 of all before, 32 bytes

Stamps belong to one version. Stamps of another version do not count, nor does a stamp file that is
damaged, missing or in another format: then every file is read. So the stamp file may be lost at any
moment.

A file gets a stamp only if its last change is older than the resolution of its timestamps
(`still_ns`). Every later change then has another time of change (ctime), which no program can set.
File systems that do not note stores through a mapping have no writable copies (`mapped_stores`).

Directories have a mode and a time of modification only. Devices, pipes and sockets have no stamp.
Paths are opened beneath the folder's descriptor, and no link is followed. For one thread.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from cowfs.base import interruptible
from cowfs.base.beneath import Root
from cowfs.base.ids import VersionId
from cowfs.machine import state as states

STILL_NS = 20_000_000
"""More than the kernel's tick, 1 to 10 ms."""
COARSE_STILL_NS = 2_000_000_000 + STILL_NS
"""More than FAT's resolution. Other file systems without fractions of a second: ext4 with inodes of
128 bytes, HFS+, some network file systems."""
_SECOND_NS = 1_000_000_000
_LATEST_NS = (1 << 63) - 1
_HEAD = b"cowfs-stamps 3 "
_ROW = struct.Struct("<HIQQqq")
PATH_MAX = (1 << 16) - 1
"""The longest path that can have a stamp, in bytes."""
_CHECKSUM_BYTES = 32


class FileStamp(NamedTuple):
    """Of a file or link; for a directory only mode and mtime_ns are set, the rest is 0."""

    mode: int
    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int

    def is_moved(self, known: FileStamp) -> bool:
        """Whether only the time of change differs, which a rename sets."""
        return self[:-1] == known[:-1]


Stamps = dict[bytes, FileStamp]


def still_ns(ctime_ns: int) -> int:
    """The age that a change with this time must have, so that any later change has another time.
    Times in whole seconds indicate a file system without fractions."""
    return STILL_NS if ctime_ns % _SECOND_NS else COARSE_STILL_NS


def clamp_ns(mtime_ns: int) -> int:
    """The nearest time of modification that a version can hold."""
    return max(-_LATEST_NS, min(mtime_ns, _LATEST_NS))


def of(mode: int, ino: int, size: int, mtime_ns: int, ctime_ns: int) -> FileStamp:
    mtime_ns = clamp_ns(mtime_ns)
    if stat.S_ISDIR(mode):
        return FileStamp(mode, 0, 0, mtime_ns, 0)
    return FileStamp(mode, ino, size, mtime_ns, ctime_ns)


def of_stat(found: os.stat_result) -> FileStamp:
    return of(found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def next_data(fd: int, offset: int, size: int) -> tuple[int, int]:
    """Begin and end, within the first `size` bytes, of the next range that is not a hole; an empty
    range at the end if only a hole follows."""
    try:
        begin = min(size, os.lseek(fd, offset, os.SEEK_DATA))
        return begin, min(size, os.lseek(fd, begin, os.SEEK_HOLE)) if begin < size else size
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size, size
        if error.errno != errno.EINVAL:
            raise
        return offset, size  # a file system without support for holes


def walk(root: Root) -> Iterator[tuple[bytes, FileStamp]]:
    """Every entry below the directory, special files too, each directory before its entries.
    Entries that vanish meanwhile are left out."""
    waiting = [b""]
    while waiting:
        above = waiting.pop()
        try:
            found = root.list(above)
        except FileNotFoundError:
            continue
        for name, (_, ino, mode, _, size, mtime_ns, ctime_ns) in found:
            path = above + b"/" + name if above else name
            if stat.S_ISDIR(mode):
                waiting.append(path)
            yield path, of(mode, ino, size, mtime_ns, ctime_ns)


def is_special(mode: int) -> bool:
    """A device, a pipe or a socket: neither a file nor a directory nor a symbolic link."""
    return stat.S_IFMT(mode) not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)


def first_difference(root: Root, known: Stamps) -> bytes | None:
    """A path that does not match its stamp, is missing, has no stamp, or cannot be looked at; None:
    there is no such path. Special files are ignored."""
    seen = set[bytes]()
    try:
        for path, found in walk(root):
            interruptible.require_wanted()
            if is_special(found.mode):
                continue
            if known.get(path) != found:
                return path
            seen.add(path)
    except OSError as error:  # unreadable for this user, too deep, or replaced by a link just now
        return os.fsencode(error.filename or b"")
    return next((path for path in sorted(known) if path not in seen), None)


def count_differences(root: Root, known: Stamps) -> tuple[int, int] | None:
    """How many files and links do not match their stamps, and their bytes; None: no path differs.
    Special files are ignored. OSError: a path cannot be looked at."""
    missing = dict(known)
    files = size_bytes = 0
    differs = False
    for path, found in walk(root):
        interruptible.require_wanted()
        if is_special(found.mode):
            continue
        if missing.pop(path, None) == found:
            continue
        differs = True
        if not stat.S_ISDIR(found.mode):
            files += 1
            size_bytes += found.size
    return (files, size_bytes) if differs or missing else None


def load(path: Path, version: VersionId | None) -> Stamps | None:
    """The stamps that were stored for that version; None: there are none, or they do not count."""
    head, known = _read(path)
    return known if head == _head(version) else None


def load_any(path: Path) -> Stamps:
    """The stored stamps of any version; empty if the file is missing or damaged."""
    return _read(path)[1]


def _read(path: Path) -> tuple[bytes, Stamps]:
    """The head, empty if the file is missing or damaged, and all stamps."""
    try:
        data = path.read_bytes()
    except OSError:
        return b"", {}
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    at = len(_head(None))
    if not body.startswith(_HEAD) or len(body) < at or blake3(body).digest() != checksum:
        return b"", {}
    known: Stamps = {}
    while at < len(body):
        length, *row = _ROW.unpack_from(body, at)
        at += _ROW.size + length
        known[body[at - length : at]] = FileStamp(*row)
    return body[: len(_head(None))], known


def store(path: Path, version: VersionId | None, known: Stamps) -> None:
    """Replaces the file, durably."""
    _write(path, _head(version), known)


def store_moved(path: Path, now: Stamps) -> None:
    """Replaces stamps of entries that were renamed; for the same version."""
    head, known = _read(path)
    if head:
        _write(path, head, {**known, **now})


def _write(path: Path, head: bytes, known: Stamps) -> None:
    rows = (_ROW.pack(len(path), *each) + path for path, each in sorted(known.items()))
    body = b"".join((head, *rows))
    states.replace_durably(path, body + blake3(body).digest())


def _head(version: VersionId | None) -> bytes:
    return _HEAD + (version.hex() if version is not None else "-" * 64).encode() + b"\n"
