"""A zip archive. `zipfile` reads its directory, which is at its end, and unpacks its members. They
are read in the order in which they are stored, each to its end, where its CRC-32 is compared.

Errors that `zipfile` ignores end the pass here: bytes after the end record; a directory with
another number of entries than that record says, or without the member that the file begins with;
members that overlap; a member that is longer or shorter than the directory says; and one whose
header, or descriptor, has another size or CRC.
"""

from __future__ import annotations

import lzma
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import IO

from cowfs.base.errors import CowfsError, InvalidInputError
from cowfs.store.origin.archive import zip_fields
from cowfs.store.origin.archive.input import Input
from cowfs.store.origin.archive.members import TARGET_BYTES, Archive, Damaged, Member, clean, link_fault

_READ_BYTES = 1 << 20
_LITTLE_BYTES = 4 << 10
_END = struct.Struct("<4sHHHHLLH")
_END_MAGIC, _MEMBER_MAGIC = b"PK\5\6", b"PK\3\4"
_COMMENT_BYTES = 0xFFFF
_HEADER = struct.Struct("<4sHHHLLLLHH")
_DESCRIPTOR, _DESCRIPTOR_MAGIC = 0x08, b"PK\7\x08"
_IN_EXTRA = 0xFFFFFFFF  # a size that does not fit
_ENCRYPTED, _PATCHED = 0x41, 0x20
_BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # of these `zipfile` unpacks no more than it is asked for
_METHODS = (*_BOUNDED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    OSError,  # of bz2
    EOFError,
    ValueError,
    NotImplementedError,
    RuntimeError,
)


class ZipArchive(Archive):
    def foresee(self) -> Iterator[Member]:
        for _, member in self._directory()[1]:
            yield member

    def members(self) -> Iterator[Member]:
        archive, directory = self._directory()
        for info, member in directory:
            if member.fault:
                yield member
                continue
            with closing(_Contents(archive, info, self._input)) as contents:
                if stat.S_ISLNK(member.mode):
                    member.target = contents.target()
                    member.fault = link_fault(member.target)
                member.fill = contents.fill
                yield member
                contents.finish()

    def _directory(self) -> tuple[zipfile.ZipFile, list[tuple[zipfile.ZipInfo, Member]]]:
        """Members in the order in which they are stored."""
        count = self._count()
        with _damage():
            archive = zipfile.ZipFile(self._input)
        found = sorted(archive.infolist(), key=lambda info: info.header_offset)
        if (len(found) - count) % 0x10000 and count != 0xFFFF:  # some writers count more in 16 bits, too
            raise Damaged("its directory has another number of entries than its end record says")
        if self._begins_with_member() and (not found or found[0].header_offset):
            raise Damaged("it begins with a member that its directory does not have")
        ends = [*(info.header_offset for info in found[1:]), archive.start_dir]
        for info, end in zip(found, ends, strict=False):
            if info.header_offset < 0 or info.header_offset + _HEADER.size + info.compress_size > end:
                raise Damaged(f"{info.orig_filename!r} overlaps what follows it")
        with _damage():
            return archive, [(info, _member(info)) for info in found]

    def _count(self) -> int:
        """Entries, by the end record."""
        self._input.seek(max(0, self._input.size - _END.size - _COMMENT_BYTES))
        tail = self._input.read()
        start = tail.rfind(_END_MAGIC)  # as `zipfile` looks for it
        if start < 0 or len(tail) < start + _END.size:
            raise self._is_none()
        _, disk, first_disk, _, count, _, _, comment_bytes = _END.unpack_from(tail, start)
        if start + _END.size + comment_bytes != len(tail):
            raise Damaged("something follows its end record, or is missing there")
        if disk not in (0, 0xFFFF) or first_disk not in (0, 0xFFFF):
            raise InvalidInputError(
                f"{self.url} is one part of several", hint="Join them: `zip -s 0 ALL.zip -O ONE.zip`."
            )
        return int(count)

    def _begins_with_member(self) -> bool:
        """Not so an archive that unpacks itself, and an empty one."""
        self._input.seek(0)
        return self._input.read(len(_MEMBER_MAGIC)) == _MEMBER_MAGIC

    def _is_none(self) -> Exception:
        self._input.seek(0)
        if self._input.read(2) == b"PK":
            return Damaged("it has no end record: it is cut")
        return InvalidInputError(
            f"{self.url} is not a zip archive", hint="Look at the file with another program (`file`, `unzip -l`)."
        )


def _member(info: zipfile.ZipInfo) -> Member:
    name = zip_fields.name(info)
    mode = zip_fields.mode(info, is_directory=name.endswith(b"/"))
    is_file = stat.S_ISREG(mode)
    size = info.file_size if is_file else 0
    member = Member(clean(name), mode, zip_fields.mtime_ns(info), size, ranges=((0, size),) if size else ())
    if info.flag_bits & _ENCRYPTED:
        member.fault = "is encrypted"
    elif info.flag_bits & _PATCHED or info.compress_type not in _METHODS:
        member.fault = f"is compressed with method {info.compress_type}, which is not supported"
    elif stat.S_ISLNK(mode) and not 0 < info.file_size <= TARGET_BYTES:
        member.fault = f"is a symbolic link of {info.file_size} bytes"
    return member


class _Contents:
    """Of one member, from its beginning."""

    def __init__(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, input: Input) -> None:
        self._info = info
        self._input = input
        with _damage():
            self._descriptor = self._check_header()
            self._file: IO[bytes] = archive.open(info)
        self._left = info.file_size
        self._most = _READ_BYTES if info.compress_type in _BOUNDED else _LITTLE_BYTES

    def close(self) -> None:
        self._file.close()

    def fill(self, target: memoryview) -> None:
        done = 0
        while done < len(target):
            piece = self._read(len(target) - done)
            if not piece:
                raise Damaged("it is shorter than the directory says")
            target[done : done + len(piece)] = piece
            done += len(piece)

    def target(self) -> bytes:
        data = bytearray(self._left)
        self.fill(memoryview(data))
        return bytes(data)

    def finish(self) -> None:
        """Reads the rest of the member. Its CRC is right then."""
        while self._read(self._most):
            pass
        if self._left:
            raise Damaged("it is shorter than the directory says")
        if self._descriptor is not None:
            self._check_descriptor(self._descriptor)

    def _check_header(self) -> int | None:
        """Compares the header of the member with the directory. Returns the position of its
        descriptor, which repeats size and CRC after the contents; None: it has none."""
        info = self._info
        self._input.seek(info.header_offset)
        _, _, flags, _, _, crc, stored, size, name, extra = _HEADER.unpack(self._input.read(_HEADER.size))
        if flags & _DESCRIPTOR:
            return int(info.header_offset + _HEADER.size + name + extra + info.compress_size)
        said = (info.CRC, *(min(each, _IN_EXTRA) for each in (info.compress_size, info.file_size)))
        if any(here not in (there, _IN_EXTRA) for here, there in zip((crc, stored, size), said, strict=True)):
            raise Damaged("its header and the directory differ")
        return None

    def _check_descriptor(self, offset: int) -> None:
        self._input.seek(offset)
        found = self._input.read(8)
        crc = found[4:] if found.startswith(_DESCRIPTOR_MAGIC) else found[:4]
        is_none = not self._info.CRC and found.startswith(b"PK")  # some write none behind an empty member
        if crc != struct.pack("<L", self._info.CRC) and not is_none:
            raise Damaged("its descriptor and the directory differ")

    def _read(self, length: int) -> bytes:
        with _damage():
            piece = self._file.read(min(length, self._most))
        self._left -= len(piece)
        return piece


@contextmanager
def _damage() -> Iterator[None]:
    """Turns errors of `zipfile`, and of its libraries, into damage."""
    try:
        yield
    except CowfsError:
        raise
    except _ERRORS as error:
        raise Damaged(f"{error}" or type(error).__name__) from error
