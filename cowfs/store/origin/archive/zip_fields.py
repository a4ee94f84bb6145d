"""What a zip's directory says of a member, beside its size: name, permissions, time.

name           the first of: Unicode path field (0x7075), if its CRC is that of the name; flag bit 11: UTF-8; bytes that
               are UTF-8; code page 437
               "\\" separates names where the archive was made on DOS or Windows
permissions    of Unix, where it was made on Unix; else 0644 and 0755, without the bits to write if it is read-only
time           extended timestamp (UT, 0x5455), in UTC; else the DOS time, to 2 s, in the time zone of this machine, as
               `unzip` takes it. 0: neither is a time
"""

from __future__ import annotations

import stat
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime

_UNICODE_PATH, _TIMES = 0x7075, 0x5455
_UTF8 = 0x800
_DOS_SYSTEMS = (0, 6, 10, 11, 14)  # FAT, OS/2, Windows (two numbers are in use), VFAT
_UNIX_SYSTEMS = (3, 19)  # Unix, macOS
_DOS_READ_ONLY, _DOS_DIRECTORY = 0x01, 0x10
_KINDS = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK)


def name(info: zipfile.ZipInfo) -> bytes:
    """In UTF-8; that of a directory ends in "/"."""
    is_utf8 = bool(info.flag_bits & _UTF8)
    raw = info.orig_filename.encode("utf-8" if is_utf8 else "cp437")  # the bytes that stand there
    found = _unicode_path(info, raw) or (raw if is_utf8 or _is_utf8(raw) else info.orig_filename.encode())
    return found.replace(b"\\", b"/") if info.create_system in _DOS_SYSTEMS else found


def mode(info: zipfile.ZipInfo, *, is_directory: bool) -> int:
    given = info.external_attr >> 16 if info.create_system in _UNIX_SYSTEMS else 0
    kind = stat.S_IFMT(given)
    if is_directory or (not kind and info.external_attr & _DOS_DIRECTORY):
        kind = stat.S_IFDIR
    elif kind not in _KINDS:
        kind = stat.S_IFREG
    permissions = given & 0o7777
    if not permissions:
        permissions = 0o755 if kind == stat.S_IFDIR else 0o644
        if info.external_attr & _DOS_READ_ONLY:
            permissions &= ~0o222
    return kind | permissions


def mtime_ns(info: zipfile.ZipInfo) -> int:
    for tag, data in _extra(info):
        if tag == _TIMES and len(data) >= 5 and data[0] & 1:
            return int(struct.unpack_from("<i", data, 1)[0]) * 1_000_000_000
    try:
        datetime(*info.date_time, tzinfo=UTC)  # whether it is a time
        return int(time.mktime((*info.date_time, 0, 0, -1))) * 1_000_000_000
    except (ValueError, OverflowError):
        return 0


def _unicode_path(info: zipfile.ZipInfo, raw: bytes) -> bytes | None:
    for tag, data in _extra(info):
        if tag == _UNICODE_PATH and len(data) > 5 and data[0] == 1:
            is_of_this_name = struct.unpack_from("<L", data, 1)[0] == zlib.crc32(raw)
            return data[5:] if is_of_this_name and _is_utf8(data[5:]) else None
    return None


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _extra(info: zipfile.ZipInfo) -> Iterator[tuple[int, bytes]]:
    """Fields of the directory: (tag, data)."""
    left = info.extra
    while len(left) >= 4:
        tag, length = struct.unpack_from("<HH", left)
        yield tag, left[4 : 4 + length]
        left = left[4 + length :]
