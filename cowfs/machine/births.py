"""When a file was made. Nothing changes that time, no write, no rename and no program; an inode
number that is given to a new file comes with a time of its own.

Not every file system keeps it. Python asks for it from 3.15 on, hence by `statx` of the C library:

    0 mask, 4   32 inode, 8   80 time of birth: seconds, 8 (signed), nanoseconds, 4
"""

from __future__ import annotations

import ctypes
import struct

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_STATX_INO, _STATX_BTIME = 0x100, 0x800
_STATX_BYTES = 256
_BIRTH = struct.Struct("=qI")
_libc = ctypes.CDLL(None, use_errno=True)


def birth_ns(path: bytes, ino: int) -> int | None:
    """Of the file or link there; None: it is not kept, or the inode there is another one."""
    found = ctypes.create_string_buffer(_STATX_BYTES)
    wanted = _STATX_INO | _STATX_BTIME
    if _libc.statx(_AT_FDCWD, ctypes.c_char_p(path), _AT_SYMLINK_NOFOLLOW, wanted, found):
        return None
    (mask,) = struct.unpack_from("=I", found)
    if mask & wanted != wanted or struct.unpack_from("=Q", found, 32) != (ino,):
        return None
    seconds, nanoseconds = _BIRTH.unpack_from(found, 80)
    return int(seconds * 1_000_000_000 + nanoseconds)
