"""A directory of a version as a stream: tar (PAX), which holds every name as it is, and zip, in
which some characters are written as %XX. Neither is compressed.

All entries stand below one directory of the given name. Permissions, times and links are kept;
set-id bits, owners and device files are not.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from tempfile import TemporaryFile
from typing import IO

from cowfs.blocking import Entry, ROVolume

ReadPieces = Callable[[ROVolume, Entry], Iterator[bytes]]
PERMISSIONS = 0o777
GATHERED_BYTES = 256 << 10
ESCAPED = re.compile(r"[\\:\udc80-\udcff]|[. ](?=/|\Z)|%(?=[0-9A-Fa-f]{2})")
"""What a zip has as %XX: what Windows takes for a path, a drive or another name (it drops dots and
spaces at the end), bytes that are not UTF-8, and what looks like such an escape."""
FIRST_ZIP_YEAR, LAST_ZIP_YEAR = 1980, 2107


def make_tar(version: ROVolume, top: Entry, name: str, read: ReadPieces) -> Iterator[bytes]:
    for entry, below in _entries(version, top, name):
        info = tarfile.TarInfo(below)
        info.mode = entry.mode & PERMISSIONS
        seconds, part = divmod(abs(entry.mtime_ns), 10**9)
        info.pax_headers = {"mtime": f"{'-' if entry.mtime_ns < 0 else ''}{seconds}.{part:09}"}
        if entry.type == "directory":
            info.type = tarfile.DIRTYPE
        elif entry.target is not None:
            info.type, info.linkname = tarfile.SYMTYPE, entry.target
        else:
            info.size = entry.size
        yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        if entry.type == "file":
            yield from read(version, entry)
            yield bytes(-entry.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def make_zip(version: ROVolume, top: Entry, name: str, read: ReadPieces) -> Iterator[bytes]:
    sink = _Sink()
    with ExitStack() as stack:
        infos, directory = (stack.enter_context(TemporaryFile(prefix="cowfs-web-")) for _ in range(2))
        archive = zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED, allowZip64=True)
        stack.callback(setattr, archive, "fp", None)  # closed; a download that ended early writes no directory
        archive.filelist = _Infos(infos)
        archive.NameToInfo = _Nothing()
        for entry, below in _entries(version, top, name):
            info = zipfile.ZipInfo(_zip_name(below) + ("/" if entry.type == "directory" else ""), _zip_time(entry))
            info.external_attr = (stat.S_IFMT(entry.mode) | entry.mode & PERMISSIONS) << 16
            info.create_system = 3  # Unix: readers then take the permissions
            with archive.open(info, "w", force_zip64=entry.size >= zipfile.ZIP64_LIMIT // 2) as member:
                if entry.target is not None:
                    member.write(os.fsencode(entry.target))
                for piece in read(version, entry) if entry.type == "file" else ():
                    member.write(piece)
                    yield sink.take()
            yield sink.take()
        sink.spill_to(directory)
        archive.close()
        directory.seek(0)
        yield from iter(lambda: directory.read(GATHERED_BYTES), b"")


def gather(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in larger pieces: each costs a change of threads on its way to the client."""
    held, size = list[bytes](), 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= GATHERED_BYTES:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


def _entries(version: ROVolume, top: Entry, name: str) -> Iterator[tuple[Entry, str]]:
    """The directory and everything below it, with their names in the archive."""
    yield top, name
    cut = len(top.path.rstrip("/"))
    for entry in version.files.ls(top, recursive=True):
        if entry.type != "special":
            yield entry, name + entry.path[cut:]


def _zip_name(name: str) -> str:
    """Different names stay different: decoding every %XX gives the name back."""
    return ESCAPED.sub(lambda found: f"%{ord(found[0]) & 0xFF:02X}", name)


def _zip_time(entry: Entry) -> tuple[int, int, int, int, int, int]:
    when = datetime.fromtimestamp(entry.mtime_ns // 10**9, UTC)
    year = min(max(when.year, FIRST_ZIP_YEAR), LAST_ZIP_YEAR)
    return (year, when.month, when.day, when.hour, when.minute, when.second)


class _Infos(list[zipfile.ZipInfo]):
    """What `zipfile` remembers of the members, on the disk: a million of them took a gigabyte."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self._count = 0

    def append(self, info: zipfile.ZipInfo) -> None:
        pickle.dump(info, self._file)
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[zipfile.ZipInfo]:
        self._file.seek(0)
        for _ in range(self._count):
            yield pickle.load(self._file)  # noqa: S301 - of an unnamed file of this process


class _Nothing(dict[str, zipfile.ZipInfo]):
    """Remembers no names: those of a version are different."""

    def __setitem__(self, name: str, info: zipfile.ZipInfo) -> None:
        pass


class _Sink(io.RawIOBase):
    """Holds what was written until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._file: IO[bytes] | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = bytes(data)  # type: ignore[call-overload]
        if self._file is not None:
            return self._file.write(piece)
        self._parts.append(piece)
        return len(piece)

    def spill_to(self, file: IO[bytes]) -> None:
        """From now on all that is written goes there."""
        self._file = file

    def take(self) -> bytes:
        taken, self._parts = b"".join(self._parts), []
        return taken
