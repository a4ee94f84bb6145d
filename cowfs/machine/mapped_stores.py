"""Whether a file system changes the times of a file that is stored to through a shared mapping.

Those that write pages back do, at the latest when they are synced: they make a page read-only when
they write it, so the first store after that is a fault, which they note. Those that keep files in
memory only (tmpfs, ramfs; an overlay of them) map a page that was read writable at once, and never
hear of a store. It is tried, since of an overlay nothing else tells.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from contextlib import closing, suppress

from cowfs import clock, config
from cowfs.machine import mount_table
from cowfs.machine.stamps import still_ns

_UNNOTED = frozenset({"tmpfs", "ramfs", "overlay"})


class Devices:
    """Of files below a directory, which may lie on several file systems. Each is asked once, by a
    thread at a time."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._known: dict[int, bool] = {}

    def are_noted(self, device: int, path: bytes) -> bool:
        """On the device that the file at the path, relative to the root, lies on."""
        if (known := self._known.get(device)) is None:
            known = _tried(os.fsdecode(os.path.dirname(os.path.join(self._root, path))))
            if known is not None:
                self._known[device] = known
        return known or False


def are_noted(directory: str) -> bool:
    """On the file system of this directory. False, too, while it has no room to try it."""
    return _tried(directory) or False


def _tried(directory: str) -> bool | None:
    """None: it cannot be tried now, as where there is no room. A file without a name is made in the
    directory for that. Where that is refused, its type has to tell: in memory they are not noted;
    all others are kept by a program or by another machine. An overlay is tried at another place of
    it, if there is one."""
    with suppress(OSError), open(os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600), "r+b") as file:
        return _is_noted(file.fileno())
    kind = _type_of(directory)
    if kind == "overlay":
        device = os.stat(directory).st_dev
        for place in (str(config.state_dir()), tempfile.gettempdir()):
            with suppress(OSError):
                if os.stat(place).st_dev == device:
                    with tempfile.TemporaryFile(dir=place) as file:
                        return _is_noted(file.fileno())
    return kind not in _UNNOTED


def _is_noted(fd: int) -> bool | None:
    """The page is allocated before it is mapped, and it is the kernel that stores to it: where it
    gets no room for that, it answers with an error. A store of ours would end the process."""
    try:
        os.pwrite(fd, bytes(mmap.PAGESIZE), 0)
        with closing(mmap.mmap(fd, mmap.PAGESIZE)) as mapped, open("/dev/zero", "rb", buffering=0) as zeros:
            os.fsync(fd)
            before = os.fstat(fd)
            clock.sleep_s(1.1 * still_ns(before.st_ctime_ns) / 1e9)
            _ = mapped[0]  # is read before
            zeros.readinto(mapped)
            return os.fstat(fd).st_ctime_ns != before.st_ctime_ns
    except (OSError, ValueError):  # ValueError: less than the page was written
        return None


def _type_of(directory: str) -> str:
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        mount = mount_table.mount_of(fd)
        return mount.file_system if mount is not None else ""
    finally:
        os.close(fd)
