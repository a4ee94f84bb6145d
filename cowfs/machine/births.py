"""When a file was made. Nothing changes that time, no write, no rename and no program; an inode
number that is given to a new file comes with a time of its own.

Not every file system keeps it. Python asks for it from 3.15 on, hence by `statx` of the C library:

    0 mask, 4   32 inode, 8   80 time of birth: seconds, 8 (signed), nanoseconds, 4

Where it is not kept (NFS, ext4 with small inodes), a file's handle tells it from a later one with
its number: for NFS, say, it has a number of the generation. A handle that is another one says
nothing: those of FUSE change while the file stays.
"""

from __future__ import annotations

import ctypes
import struct

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_AT_HANDLE_FID = 0x200
_STATX_INO, _STATX_BTIME = 0x100, 0x800
_STATX_BYTES = 256
_BIRTH = struct.Struct("=qI")
_HANDLE_BYTES = 128
_HANDLE = struct.Struct("=Ii")
_libc = ctypes.CDLL(None, use_errno=True)
_name_to_handle_at = getattr(_libc, "name_to_handle_at", None)
"""None: a C library that does not know it."""
_BORN = "birth "


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


def made(path: bytes, ino: int) -> str:
    """What tells the file there from every other one that has its inode number, sooner or later;
    "": nothing."""
    born_ns = birth_ns(path, ino)
    return f"{_BORN}{born_ns}" if born_ns is not None else _handle(path)


def is_birth(made: str) -> bool:
    """Whether it is the time, which is another one for every other file."""
    return made.startswith(_BORN)


def identity(path: bytes) -> str:
    """What names the file there whatever its inode number, of which an overlay may give another one
    to a directory each time it is looked up; "": nothing (before Linux 6.6)."""
    return _handle(path, _AT_HANDLE_FID)


def _handle(path: bytes, flags: int = 0) -> str:
    """Of the file or link there; "": the file system, or the system, gives none."""
    found = ctypes.create_string_buffer(_HANDLE.size + _HANDLE_BYTES)
    _HANDLE.pack_into(found, 0, _HANDLE_BYTES, 0)
    mount = ctypes.c_int()
    if _name_to_handle_at is None or _name_to_handle_at(_AT_FDCWD, path, found, ctypes.byref(mount), flags):
        return ""
    length, kind = _HANDLE.unpack_from(found)
    return f"handle {kind} {found.raw[_HANDLE.size : _HANDLE.size + length].hex()}"
