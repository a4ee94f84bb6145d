"""Checks whether a local file has a certain content, where its time cannot tell: a file system may
store a time with lower precision than was set.

The precision of a file system shows in the time of change, which no program sets. If a modification
time equals another one rounded to that precision, the file may be the same, but need not be: the
content has to decide.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cowfs.base import interruptible
from cowfs.machine.folders.stamps import next_data

if TYPE_CHECKING:
    from cowfs.transfer.local_files import LocalAttr

_KEPT_NS = (2_000_000_000, 1_000_000_000, 10_000_000, 1_000_000, 1_000, 100)
"""FAT; ext4 with inodes of 128 bytes, HFS+, SFTP; exFAT; others; UDF; NTFS and SMB."""
_CHANGE_NS = 10_000_000
"""FAT may store the time of change more precisely than the time of modification."""
_PIECE_BYTES = 1 << 20


def may_be_kept(mtime_ns: int, found: LocalAttr) -> bool:
    """Whether the file may have been given this time, and its file system have rounded it down to
    the one it has."""
    return any(
        found.ctime_ns % min(each, _CHANGE_NS) == 0 and mtime_ns - mtime_ns % each == found.mtime_ns
        for each in _KEPT_NS
    )


def has_content(fd: int, size: int, pieces: Iterable[tuple[int, bytes]]) -> bool:
    """pieces: (offset, bytes) in order, with holes between them; one without bytes at the beginning
    begins anew."""
    at = 0
    for offset, data in pieces:
        if not data:
            at = min(at, offset)
        elif is_hole(fd, at, offset) and has_bytes(fd, offset, data):
            at = offset + len(data)
        else:
            return False
    return is_hole(fd, at, size)


def has_bytes(fd: int, offset: int, data: bytes) -> bool:
    interruptible.require_wanted()
    return os.pread(fd, len(data), offset) == data


def is_hole(fd: int, begin: int, end: int) -> bool:
    """Whether the range contains only zeros."""
    while begin < end:
        interruptible.require_wanted()
        begin, stop = next_data(fd, begin, end)
        data = os.pread(fd, min(stop - begin, _PIECE_BYTES), begin)
        if data.count(0) < len(data) or (not data and begin < stop):
            return False
        begin += len(data)
    return True
