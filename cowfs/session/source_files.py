"""One regular file that is read into a volume, and how it is known that it stood still meanwhile:
of this machine (`SourceFile`), or of a version, which never changes (`VersionFile`).

A file of this machine may be written to while it is read. It counts as read only if its size,
times and number are the same afterwards, and if its last change lies further back than the clock
that stamps changes is coarse (`settled`): a change within the same tick, or on a file system that
keeps whole seconds within the same second, would not show.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from cowfs import clock
from cowfs.machine.stamps import next_data, still_ns
from cowfs.native.chunks import ChunkRef
from cowfs.values import dataclass

if TYPE_CHECKING:
    from cowfs.native import Attr

SETTLE_MAX = 10


class SourceChanged(Exception):
    """The file is not what it was when it was opened."""


@dataclass(frozen=True, slots=True)
class SourceExtent:
    """Bytes of a file that are no hole; an `Extent` of `version.recut`."""

    offset: int
    length: int
    skip: int = 0
    chunk: ChunkRef | None = None


@dataclass(frozen=True, slots=True)
class Stamp:
    """Equal before and after: nothing was written in between. ino: a wide one."""

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
            wide_ino(found.st_dev, found.st_ino), found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        )

    def settled(self) -> Stamp | None:
        """The stamp, once every later change will alter it; None: it is written to all the time."""
        for _ in range(SETTLE_MAX):
            found = self.stamp()
            still = still_ns(found.ctime_ns)
            wait_ns = found.ctime_ns + still - clock.now_ns()
            if not 0 < wait_ns <= still:  # long ago; or by a clock that is not ours
                return found
            clock.sleep_s(wait_ns / 1e9)
        return None

    def extents(self, size: int) -> list[SourceExtent]:
        """What is no hole of the first `size` bytes, in order. Looking for holes waits for a write
        that is under way (on ext4, btrfs, tmpfs), which has set the time before it copies."""
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
        """Fills it. SourceChanged: the file has become shorter."""
        done = 0
        while done < len(target):
            got = os.preadv(self.fd, [target[done:]], offset + done)
            if not got:
                raise SourceChanged
            done += got


class VersionFile:
    """read: (offset, length) → its bytes."""

    def __init__(self, attr: Attr, read: Callable[[int, int], bytes]) -> None:
        self.ino = attr.ino
        self._stamp = Stamp(attr.ino, attr.mode, attr.size, attr.mtime_ns, 0)
        self._read = read

    def close(self) -> None:
        """Nothing is held open."""

    def stamp(self) -> Stamp:
        return self._stamp

    def settled(self) -> Stamp | None:
        return self._stamp

    def extents(self, size: int) -> list[SourceExtent]:
        """Holes are zeros, and found as such when they are cut."""
        return [SourceExtent(0, size)] if size else []

    def read(self, extent: SourceExtent, first: int, length: int) -> bytes:
        return self._read(extent.offset + first, length)

    def read_into(self, offset: int, target: memoryview) -> None:
        target[:] = self._read(offset, len(target))
