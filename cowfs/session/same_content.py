"""Whether a file of this machine has a certain content, where its time cannot tell: a file system
may keep less of a time than was set.

What a file system keeps of times shows in the time of change, which no program sets. A time of
modification that is what it can keep of another one says that the file may be the same, not that it
is: content has to tell.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cowfs import apart
from cowfs.machine.stamps import next_data

if TYPE_CHECKING:
    from cowfs.session.local_files import LocalAttr

_KEPT_NS = (2_000_000_000, 1_000_000_000, 10_000_000, 1_000_000, 1_000, 100)
"""FAT; ext4 with inodes of 128 bytes, HFS+, SFTP; exFAT; others; UDF; NTFS and SMB."""
_CHANGE_NS = 10_000_000
"""FAT may keep the time of change better than that of modification."""
_PIECE_BYTES = 1 << 20


def may_be_kept(mtime_ns: int, found: LocalAttr) -> bool:
    """Whether the file may have been given this time, and its file system have kept the one that it
    has: an earlier one."""
    return any(
        found.ctime_ns % min(each, _CHANGE_NS) == 0 and mtime_ns - mtime_ns % each == found.mtime_ns
        for each in _KEPT_NS
    )


def has_content(fd: int, size: int, pieces: Iterable[tuple[int, bytes]]) -> bool:
    """pieces: (offset, bytes) in order, and a hole where there is none; one without bytes at the
    beginning begins anew."""
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
    apart.require_wanted()
    return os.pread(fd, len(data), offset) == data


def is_hole(fd: int, begin: int, end: int) -> bool:
    """Whether only zeros are there."""
    while begin < end:
        apart.require_wanted()
        begin, stop = next_data(fd, begin, end)
        data = os.pread(fd, min(stop - begin, _PIECE_BYTES), begin)
        if data.count(0) < len(data) or (not data and begin < stop):
            return False
        begin += len(data)
    return True
