"""Cuts a large file's bytes, staged or of an uploaded source, in buffers that are used again. Does
the work of `recut` for a file without kept chunks, without copying and without zeroed pages for
every window.

    buffer   [ rest of the one before | read from the file ................ ]
             [ chunk ][ zeros ][ chunk ][ chunk ] ... [ rest: its end may still move ]

A piece is a view of a buffer, which is free again once all its pieces were released. If no buffer
is free, `Buffers.take` lets the caller settle a piece. So at most BUFFERS of BUFFER_BYTES are in
memory, and reading waits for storing. For one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

from cowfs.base.fast_dataclass import dataclass
from cowfs.version.publish.recut import parts

BUFFERS = 6
BUFFER_BYTES = 8 << 20

# (offset in the file, where to): fills it whole, or raises
ReadInto = Callable[[int, memoryview], None]


class Buffer:
    """held: the number of pieces in it, plus one while it is being read into."""

    def __init__(self) -> None:
        self.data = bytearray(BUFFER_BYTES)
        self.held = 0


class Buffers:
    """A few buffers, made when they are first needed."""

    def __init__(self) -> None:
        self._free: list[Buffer] = []
        self._made = 0

    def take(self, settle: Callable[[], None]) -> Buffer:
        """A buffer held once, by the caller. settle: releases a piece, and is called until a buffer
        is free."""
        while not self._free and self._made == BUFFERS:
            settle()
        if self._free:
            buffer = self._free.pop()
        else:
            self._made += 1
            buffer = Buffer()
        buffer.held = 1
        return buffer

    def rest(self) -> None:
        """Frees the memory of buffers that are not held."""
        self._made -= len(self._free)
        self._free.clear()

    def release(self, buffer: Buffer) -> None:
        buffer.held -= 1
        if buffer.held == 0:
            self._free.append(buffer)


@dataclass(frozen=True, slots=True)
class View:
    """A run of file bytes that becomes one chunk. Release its buffer once it is stored or given
    up."""

    offset: int
    data: memoryview
    buffer: Buffer


def cut_file(
    ranges: Iterable[tuple[int, int]],
    read_into: ReadInto,
    buffers: Buffers,
    settle: Callable[[], None],
    gear: bytes | None = None,
    *,
    goes_on: bool = False,
) -> Generator[View]:
    """The pieces of a file that has bytes in `ranges`, (offset, length) in order, and holes
    elsewhere. gear: the store's cut table (`Sealing.gear`). goes_on: more bytes follow the last
    range, so its last piece, whose end is not final, is left out."""
    found = list(ranges)
    for number, (offset, length) in enumerate(found, 1):
        is_final = not goes_on or number < len(found)
        yield from _cut_range(offset, offset + length, read_into, buffers, settle, gear, is_final=is_final)


def _cut_range(
    offset: int,
    end: int,
    read_into: ReadInto,
    buffers: Buffers,
    settle: Callable[[], None],
    gear: bytes | None,
    *,
    is_final: bool,
) -> Generator[View]:
    """offset: of the first byte that is in no piece yet."""
    buffer = buffers.take(settle)
    rest = 0  # bytes at the beginning of `buffer` that are read already
    try:
        while offset < end:
            length = min(BUFFER_BYTES, end - offset)
            view = memoryview(buffer.data)
            read_into(offset + rest, view[rest:length])
            done = 0
            is_last = offset + length == end
            for begin, stop, is_hole in parts(buffer.data, length, final=is_final and is_last, gear=gear):
                if not is_hole:
                    buffer.held += 1
                    yield View(offset + begin, view[begin:stop], buffer)
                done = stop
            offset, rest = offset + done, length - done
            if is_last:
                break
            if offset < end:
                following = buffers.take(settle)
                following.data[:rest] = view[done:length]
                buffers.release(buffer)
                buffer = following
    finally:
        buffers.release(buffer)
