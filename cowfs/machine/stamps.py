"""What each file of a copy looked like when its content was known to be the version's: who has the
same stamp still was not written to.

    "cowfs-stamps 1 <version id, 64 hex>\\n"
    for each path: <HIQQqq: length of the path, mode, inode, size, mtime_ns, ctime_ns; then the path
    BLAKE3 of all before, 32 bytes

Stamps belong to one version. Those of another one, and those of a file that is damaged or missing,
count for nothing: then every file is read. So the file may be lost at any moment.

A stamp is taken only of a file that stands still: its last change lies further back than the clock
that stamps changes is coarse (`still_ns`), so every later change has another time of change
(ctime), which no program can set. Where the file system does not note what is stored through a
mapping (`mapped_stores`), times say nothing, and the stamp has a digest of the content too.

Directories have a mode and a time of modification only. Devices, pipes and sockets are not looked
at. Nothing here follows a link. For one thread.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from cowfs import apart
from cowfs.ids import VersionId
from cowfs.machine import state as states

STILL_NS = 20_000_000
"""More than the kernel's tick, 1 to 10 ms."""
COARSE_STILL_NS = 2_000_000_000 + STILL_NS
"""More than what FAT keeps times to. Others that have no parts of a second: ext4 with inodes of 128
bytes, HFS+, some that lie on other machines."""
_SECOND_NS = 1_000_000_000
_LATEST_NS = (1 << 63) - 1
_HEAD = b"cowfs-stamps 2 "
_ROW = struct.Struct("<HIQQqqB")
_RANGE = struct.Struct("<QQ")
_DIGEST_BYTES = 32
_PIECE_BYTES = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileStamp(NamedTuple):
    """Of a file or link; of a directory mode and mtime_ns, the rest 0. digest: of a file, where
    times do not tell of all changes (`digest`); else empty."""

    mode: int
    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int
    digest: bytes = b""

    def looks_like(self, other: FileStamp) -> bool:
        """All but the content."""
        return self[:-1] == other[:-1]


Stamps = dict[bytes, FileStamp]


def still_ns(ctime_ns: int) -> int:
    """How far back a change with this time must lie, so that a later one has another time. Whole
    seconds come from file systems that keep no more."""
    return STILL_NS if ctime_ns % _SECOND_NS else COARSE_STILL_NS


def of(found: os.stat_result) -> FileStamp:
    """A time of modification past what a version can keep is the nearest one that it can."""
    mtime_ns = max(-_LATEST_NS, min(found.st_mtime_ns, _LATEST_NS))
    if stat.S_ISDIR(found.st_mode):
        return FileStamp(found.st_mode, 0, 0, mtime_ns, 0)
    return FileStamp(found.st_mode, found.st_ino, found.st_size, mtime_ns, found.st_ctime_ns)


def digest(path: bytes) -> bytes:
    """Of the content of the file there, and of where it has holes, which are not read; empty: it
    cannot be read, or is none any more."""
    try:
        fd = os.open(path, _READ)
    except OSError:
        return b""
    hashed, piece = blake3(), memoryview(bytearray(_PIECE_BYTES))
    try:
        size, offset = os.fstat(fd).st_size, 0
        while offset < size:
            offset, end = next_data(fd, offset, size)
            hashed.update(_RANGE.pack(offset, end))
            while offset < end:
                count = os.preadv(fd, [piece[: end - offset]], offset)
                if not count:
                    return b""  # it has become shorter
                hashed.update(piece[:count])
                offset += count
    except OSError:
        return b""
    finally:
        os.close(fd)
    return hashed.digest()


def next_data(fd: int, offset: int, size: int) -> tuple[int, int]:
    """Begin and end, within the first `size` bytes, of the next range that is no hole; an empty one
    at the end, if there is none."""
    try:
        begin = min(size, os.lseek(fd, offset, os.SEEK_DATA))
        return begin, min(size, os.lseek(fd, begin, os.SEEK_HOLE)) if begin < size else size
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size, size
        if error.errno != errno.EINVAL:
            raise
        return offset, size  # a file system that knows no holes


def walk(root: bytes, names: Collection[bytes] | None = None) -> Iterator[tuple[bytes, os.stat_result]]:
    """Everything below the directory but special files, with paths relative to it; what vanishes
    meanwhile is left out. names: of what is looked at in the directory itself; None: all."""
    waiting = [b""]
    while waiting:
        above = waiting.pop()
        try:
            found_names = sorted(os.listdir(os.path.join(root, above)))
        except FileNotFoundError:
            continue
        for name in found_names:
            if not above and names is not None and name not in names:
                continue
            path = os.path.join(above, name)
            try:
                found = os.lstat(os.path.join(root, path))
            except FileNotFoundError:
                continue
            if stat.S_ISDIR(found.st_mode):
                waiting.append(path)
            elif not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
                continue
            yield path, found


def first_difference(
    root: bytes,
    stamps: Stamps,
    *,
    names: Collection[bytes] | None = None,
    is_same: Callable[[bytes, FileStamp, FileStamp], bool] | None = None,
    reads: bool = True,
) -> bytes | None:
    """A path that is not as its stamp says, is missing, or has none; None: there is no such path.
    names: as for `walk`; the stamps are of these only.
    is_same: compares (path, found, stamp) but for the content; equality by default. reads: also
    what of their content only a digest tells."""
    seen = 0
    for path, found in walk(root, names):
        apart.require_wanted()
        known = stamps.get(path)
        if known is None:
            return path
        now = of(found)
        if not now.looks_like(known) and not (is_same is not None and is_same(path, now, known)):
            return path
        if reads and known.digest and digest(os.path.join(root, path)) != known.digest:
            return path
        seen += 1
    if seen == len(stamps):
        return None
    return next((path for path in sorted(stamps) if not os.path.lexists(os.path.join(root, path))), b"")


def load(path: Path, version: VersionId | None) -> Stamps | None:
    """The stamps that were stored for that version; None: there are none that count."""
    head, stamps = _read(path)
    return stamps if head == _head(version) else None


def has_known(path: Path, root: bytes) -> bool | None:
    """Whether a file in the directory is the one, changed or not, that a stamp was taken of; None:
    there are no stamps of files."""
    _, stamps = _read(path)
    files = [(name, each.ino) for name, each in stamps.items() if not stat.S_ISDIR(each.mode)]
    return any(_ino(os.path.join(root, name)) == ino for name, ino in files) if files else None


def _ino(path: bytes) -> int | None:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return None


def take_again(path: Path, root: bytes, is_same: Callable[[bytes, FileStamp, FileStamp], bool]) -> None:
    """Of what is as before, or is_same (path, found, stamp); for the same version."""
    head, before = _read(path)
    found = ((name, of(each)) for name, each in walk(root))
    _write(
        path,
        head,
        {
            name: now._replace(digest=known.digest)
            for name, now in found
            if (known := before.get(name)) is not None and (now.looks_like(known) or is_same(name, now, known))
        },
    )


def _read(path: Path) -> tuple[bytes, Stamps]:
    """The head, empty if the file is missing or damaged, and all stamps."""
    try:
        data = path.read_bytes()
    except OSError:
        return b"", {}
    body, checksum = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    at = len(_head(None))
    if not body.startswith(_HEAD) or len(body) < at or blake3(body).digest() != checksum:
        return b"", {}
    stamps: Stamps = {}
    while at < len(body):
        length, *row, digest_bytes = _ROW.unpack_from(body, at)
        at += _ROW.size + length + digest_bytes
        name, content = body[at - length - digest_bytes : at - digest_bytes], body[at - digest_bytes : at]
        stamps[name] = FileStamp(*row)._replace(digest=content)
    return body[: len(_head(None))], stamps


def store(path: Path, version: VersionId | None, stamps: Stamps) -> None:
    """Replaces the file, durably."""
    _write(path, _head(version), stamps)


def _write(path: Path, head: bytes, stamps: Stamps) -> None:
    rows = (
        _ROW.pack(len(path), *each[:-1], len(each.digest)) + path + each.digest for path, each in sorted(stamps.items())
    )
    body = b"".join((head, *rows))
    states.replace_durably(path, body + blake3(body).digest())


def _head(version: VersionId | None) -> bytes:
    return _HEAD + (version.hex() if version is not None else "-" * 64).encode() + b"\n"
