"""One regular file as the source of an upload, and a check that it did not change while it was
read: a local file (`SourceFile`), or one of a version, which never changes (`VersionFile`).

A local file may be written to while it is read. It counts as read only if its size, times and inode
number are the same afterwards, and if its last change is older than the resolution of the clock
that stamps changes (`settle`): a change within the same tick, or within the same second on a file
system with whole seconds, would not show.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from cowfs.base import clock
from cowfs.base.fast_dataclass import dataclass
from cowfs.machine.folders.stamps import clamp_ns, next_data, still_ns
from cowfs.native.chunks import ChunkRef

if TYPE_CHECKING:
    from cowfs.native import Attr

SETTLE_MAX = 10


class SourceChanged(Exception):
    """The file has changed since it was opened."""


@dataclass(frozen=True, slots=True)
class SourceExtent:
    """A range of a file that is not a hole; an `Extent` of `version.publish.recut`."""

    offset: int
    length: int
    skip: int = 0
    chunk: ChunkRef | None = None


@dataclass(frozen=True, slots=True)
class Stamp:
    """Equal before and after if nothing was written in between. ino: a wide one."""

    ino: int
    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int


def wide_ino(dev: int, ino: int) -> int:
    """Unique on this machine, not only on a file system."""
    return dev << 64 | ino


class SourceFile:
    """An open regular file; takes over the descriptor. Any thread may read."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def close(self) -> None:
        os.close(self.fd)

    @property
    def ino(self) -> int:
        return self.stamp().ino

    def stamp(self) -> Stamp:
        found = os.fstat(self.fd)
        return Stamp(
            wide_ino(found.st_dev, found.st_ino),
            found.st_mode,
            found.st_size,
            clamp_ns(found.st_mtime_ns),
            found.st_ctime_ns,
        )

    def settle(self) -> Stamp | None:
        """Waits until every later change will alter the stamp, and returns it. None: the file is
        written to all the time."""
        for _ in range(SETTLE_MAX):
            found = self.stamp()
            still = still_ns(found.ctime_ns)
            wait_ns = found.ctime_ns + still - clock.now_ns()
            if not 0 < wait_ns <= still:  # long ago, or by another machine's clock
                return found
            clock.sleep_s(wait_ns / 1e9)
        return None

    def extents(self, size: int) -> list[SourceExtent]:
        """The ranges of the first `size` bytes that are not holes, in order. Looking for holes
        waits for a write in progress (on ext4, btrfs, tmpfs), which has set the time before it
        copies."""
        found, offset = [], 0
        while offset < size:
            begin, offset = next_data(self.fd, offset, size)
            if begin < offset:
                found.append(SourceExtent(begin, offset - begin))
        return found

    def read(self, extent: SourceExtent, first: int, length: int) -> bytes:
        """SourceChanged: the file has become shorter."""
        offset = extent.offset + first
        data = os.pread(self.fd, length, offset)
        while len(data) < length:
            more = os.pread(self.fd, length - len(data), offset + len(data))
            if not more:
                raise SourceChanged
            data += more
        return data

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fills target. SourceChanged: the file has become shorter."""
        done = 0
        while done < len(target):
            got = os.preadv(self.fd, [target[done:]], offset + done)
            if not got:
                raise SourceChanged
            done += got


class VersionFile:
    """read: (offset, length) → bytes of the file."""

    def __init__(self, attr: Attr, read: Callable[[int, int], bytes]) -> None:
        self.ino = attr.ino
        self._stamp = Stamp(attr.ino, attr.mode, attr.size, attr.mtime_ns, 0)
        self._read = read

    def close(self) -> None:
        """Does nothing: no descriptor is open."""

    def stamp(self) -> Stamp:
        return self._stamp

    def settle(self) -> Stamp | None:
        return self._stamp

    def extents(self, size: int) -> list[SourceExtent]:
        """Returns the whole file as one extent: holes are zeros, which cutting detects."""
        return [SourceExtent(0, size)] if size else []

    def read(self, extent: SourceExtent, first: int, length: int) -> bytes:
        return self._read(extent.offset + first, length)

    def read_into(self, offset: int, target: memoryview) -> None:
        target[:] = self._read(offset, len(target))
