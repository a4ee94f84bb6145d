"""File handles (name_to_handle_at), as an NFS server or fanotify uses them: they find what the
kernel has forgotten."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import pytest

from tests.mount.daemons import Place

pytestmark = [
    pytest.mark.mount,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to open by handle"),
]

LIBC = ctypes.CDLL(None, use_errno=True)
HANDLE_BYTES = 128


class Handle(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_uint),
        ("type", ctypes.c_int),
        ("data", ctypes.c_ubyte * HANDLE_BYTES),
    )


def handle_of(path: Path) -> Handle:
    handle, mount_id = Handle(bytes=HANDLE_BYTES), ctypes.c_int()
    done = LIBC.name_to_handle_at(-100, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount_id), 0)
    assert done == 0, os.strerror(ctypes.get_errno())
    return handle


def open_by_handle(mounted: Path, handle: Handle, flags: int = os.O_RDONLY) -> int:
    mount_fd = os.open(mounted, os.O_RDONLY)
    try:
        fd = LIBC.open_by_handle_at(mount_fd, ctypes.byref(handle), flags)
        if fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return int(fd)
    finally:
        os.close(mount_fd)


def read_by_handle(mounted: Path, handle: Handle) -> bytes:
    with os.fdopen(open_by_handle(mounted, handle), "rb") as file:
        return file.read()


@pytest.mark.parametrize("fast_lane", [True, False])
def test_handles_find_their_files_on_a_later_mount(place: Place, fast_lane: bool) -> None:
    mount = place.mount("v", fast_lane=fast_lane)
    deep = mount.path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    for name in ("committed", "removed", "written"):
        (deep / name).write_bytes(name.encode())
        if name == "removed":
            mount.commit()
    handles = {name: handle_of(deep / name) for name in ("committed", "removed", "written")}
    directory = handle_of(deep)
    mount.unmount()

    mount = place.mount("v", fast_lane=fast_lane)
    for name in ("committed", "written"):
        assert read_by_handle(mount.path, handles[name]) == name.encode()
    fd = open_by_handle(mount.path, directory, os.O_RDONLY | os.O_DIRECTORY)
    assert sorted(os.listdir(fd)) == ["committed", "removed", "written"]
    assert os.readlink(f"/proc/self/fd/{fd}") == str(mount.path / "a" / "b" / "c")
    os.close(fd)
    (mount.path / "a" / "b" / "c" / "removed").unlink()
    mount.unmount()

    for commits in (False, True):
        mount = place.mount("v", fast_lane=fast_lane)
        with pytest.raises(OSError, match="Stale") as refused:
            read_by_handle(mount.path, handles["removed"])
        assert refused.value.errno == errno.ESTALE
        assert read_by_handle(mount.path, handles["committed"]) == b"committed"
        mount.unmount(commit=commits)
    mount = place.mount("v", fast_lane=fast_lane)
    with pytest.raises(OSError, match="Stale"):
        read_by_handle(mount.path, handles["removed"])
