"""A tar archive, compressed or not. `tarfile` reads headers: ustar, GNU, pax and sparse files.

Errors that `tarfile` ignores end the pass here: a wrong header after the first one, an archive that
ends without the zeros that mark its end, anything but zeros after them. A tar has no checksum of
contents and of the blocks that hold long names and pax attributes.

A header, with all that belongs to it, takes at most HEADER_BYTES of memory.
"""

from __future__ import annotations

import re
import stat
import tarfile
from collections.abc import Iterator
from decimal import Decimal

from cowfs.base.errors import InvalidInputError
from cowfs.store.origin.archive.members import Archive, Damaged, Member, clean, link_fault
from cowfs.store.origin.archive.unpacked import unpack
from cowfs.store.origin.contract import fitting

HEADER_BYTES = 16 << 20
_SKIP_BYTES = 1 << 20
_PAX_TIME = re.compile(r"-?\d{1,12}(\.\d*)?")
_VOLUME_LABEL, _DIRECTORY_OF_DUMP, _CONTINUED = b"V", b"D", b"M"
_KINDS = {
    tarfile.DIRTYPE: stat.S_IFDIR,
    _DIRECTORY_OF_DUMP: stat.S_IFDIR,
    tarfile.SYMTYPE: stat.S_IFLNK,
    tarfile.CHRTYPE: stat.S_IFCHR,
    tarfile.BLKTYPE: stat.S_IFBLK,
    tarfile.FIFOTYPE: stat.S_IFIFO,
}


class TarArchive(Archive):
    def foresee(self) -> Iterator[Member]:
        for member in self.members():
            yield member
            return

    def members(self) -> Iterator[Member]:
        self._input.seek(0)
        stream = _Stream(unpack(self._input))
        tar = self._open_tar(stream)
        info = next(iter(tar.members), None)  # type: ignore[attr-defined]
        while info is not None:
            if tar.offset < stream.tell():
                raise Damaged("a header gives a size that is not possible")
            if info.type != _VOLUME_LABEL:
                yield _member(info, stream, tar.offset - stream.tell())
            stream.skip_to(tar.offset)
            info = _following(tar, stream)
        stream.require_zeros()

    def _open_tar(self, stream: _Stream) -> tarfile.TarFile:
        """The first header was read."""
        try:
            if stream.is_at_end:
                raise tarfile.ReadError("it is empty")
            return tarfile.TarFile(fileobj=stream, encoding="utf-8", errors="surrogateescape")  # type: ignore[arg-type]
        except (tarfile.TarError, _Cut, *_NO_HEADER) as error:
            raise InvalidInputError(
                f"{self.url} is not a tar archive, plain or compressed with gzip, bzip2, xz, lzma or zstd, or its first "
                f"header is damaged: {error}",
                hint="Look at the file with another program (`file`, `tar -t`).",
            ) from error


_NO_HEADER = (ValueError, OverflowError, LookupError, TypeError, AttributeError, RecursionError)
"""What `tarfile` raises, too, for headers that are not right."""


def _following(tar: tarfile.TarFile, stream: _Stream) -> tarfile.TarInfo | None:
    """The next header; None: the end is marked here."""
    if stream.is_at_end:
        raise Damaged("it has no end mark: it is cut")
    stream.begin_header()
    try:
        return tarfile.TarInfo.fromtarfile(tar)
    except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
        return None
    except (tarfile.TarError, *_NO_HEADER) as error:
        raise Damaged(f"a header is not right ({error})") from error


def _member(info: tarfile.TarInfo, stream: _Stream, stored_bytes: int) -> Member:
    """stored_bytes: what follows the header, before the next one."""
    path, mtime_ns = clean(_bytes(info.name)), _mtime_ns(info)
    if info.type == _CONTINUED:
        return Member(path, stat.S_IFREG, mtime_ns, fault="goes on from another archive")
    kind = _KINDS.get(info.type, stat.S_IFREG)
    mode = kind | info.mode & 0o7777
    if info.islnk():
        return Member(path, mode, mtime_ns, target=clean(_bytes(info.linkname)), is_hard_link=True)
    if kind == stat.S_IFLNK:
        target = _bytes(info.linkname)
        return Member(path, mode, mtime_ns, target=target, fault=link_fault(target))
    if kind != stat.S_IFREG:
        return Member(path, mode, mtime_ns)
    return Member(path, mode, mtime_ns, info.size, ranges=_ranges(info, stored_bytes), fill=stream.fill)


def _ranges(info: tarfile.TarInfo, stored_bytes: int) -> tuple[tuple[int, int], ...]:
    sparse: list[tuple[int, int]] | None = info.sparse  # type: ignore[assignment]
    found = [(0, info.size)] if sparse is None else sparse
    ranges = tuple((offset, length) for offset, length in found if length)
    end = 0
    for offset, length in ranges:
        if offset < end or length < 0:
            raise Damaged("the map of a sparse file is not right")
        end = offset + length
    if end > info.size or sum(length for _, length in ranges) > stored_bytes:
        raise Damaged("a file is larger than its stored bytes")
    return ranges


def _mtime_ns(info: tarfile.TarInfo) -> int:
    text = info.pax_headers.get("mtime", "")
    if _PAX_TIME.fullmatch(text):
        return fitting(int(Decimal(text) * 1_000_000_000))
    return fitting(int(info.mtime) * 1_000_000_000)


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


class _Cut(Damaged):
    """There are fewer bytes than were asked for."""


class _Stream:
    """What a tar is read from: forward only. `tarfile` reads headers with `read`."""

    def __init__(self, pieces: Iterator[bytes | memoryview]) -> None:
        self._pieces = pieces
        self._piece = memoryview(b"")
        self._position = 0
        self._header_left = HEADER_BYTES

    def tell(self) -> int:
        return self._position

    def begin_header(self) -> None:
        self._header_left = HEADER_BYTES

    def read(self, length: int) -> bytes:
        if not 0 <= length <= self._header_left:
            raise Damaged(f"a header has more than {HEADER_BYTES} bytes")
        self._header_left -= length
        data = bytearray(length)
        self.fill(memoryview(data))
        return bytes(data)

    @property
    def is_at_end(self) -> bool:
        if not self._piece:
            self._piece = memoryview(next(self._pieces, b""))
        return not self._piece

    def fill(self, target: memoryview) -> None:
        done = 0
        while done < len(target):
            piece = self._take(len(target) - done)
            target[done : done + len(piece)] = piece
            done += len(piece)

    def skip_to(self, position: int) -> None:
        while self._position < position:
            self._take(min(position - self._position, _SKIP_BYTES))

    def require_zeros(self) -> None:
        while not self.is_at_end:
            if bytes(self._take(_SKIP_BYTES)).strip(b"\0"):
                raise Damaged("something follows its end mark")

    def _take(self, length: int) -> memoryview:
        """At least one byte, at most `length`."""
        if self.is_at_end:
            raise _Cut("it is cut")
        piece, self._piece = self._piece[:length], self._piece[length:]
        self._position += len(piece)
        return piece
