"""Turns the extents of a changed file into index rows: cuts what is staged, keeps what is already in chunks.

    extents of a frozen file      [ chunk A ][ chunk B (first part) ][staged][ chunk B (rest) ][ chunk C ]
    kept                          [ chunk A ]                                                  [ chunk C ]
    cut again, as one stream                 [ chunk B (first part) + staged + chunk B (rest) ]

Cutting starts at the last unchanged chunk boundary before a staged range and goes on until a cut point falls on a
boundary after it, as far as the neighbours' bytes are on this machine; nothing is fetched. So the same content gives
the same chunks however it came to be written, and a small change costs about two chunks.

Bound: neighbours re-read for one file are at most NEIGHBOUR_FACTOR times its staged bytes plus NEIGHBOUR_FLOOR_BYTES
(scattered page writes of a database would otherwise rewrite all of it); past that a staged range is cut by itself.
Zero runs of ZERO_RUN_BYTES and more become holes (absent rows).

Pure but for the two callables it is given. Where a piece is stored is the caller's business.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from cowfs.native.chunks import cut_points, zero_runs

WINDOW_BYTES = 8 << 20
ZERO_RUN_BYTES = 64 << 10
NEIGHBOUR_FACTOR = 8
NEIGHBOUR_FLOOR_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of file bytes that becomes one chunk."""

    offset: int
    data: bytes


class Mapped(Protocol):
    """What cutting looks at in a LayerExtent."""

    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def chunk(self) -> Any: ...


M = TypeVar("M", bound=Mapped)
# (extent, first byte in it, length) → its bytes, or None when they are not on this machine (never for staged extents)
Read = Callable[[M, int, int], bytes | None]


def is_staged_only(extent: Mapped) -> bool:
    return extent.chunk is None


def recut(extents: Sequence[M], read: Read[M]) -> Iterator[M | Piece]:
    """The file's new make-up in file order: extents to keep as they are, and pieces to store."""
    if len(extents) == 1 and is_staged_only(extents[0]) and extents[0].length < ZERO_RUN_BYTES:
        yield from _whole(extents[0], read)  # most files of most trees: too short for a cut or a hole
        return
    staged_bytes = sum(extent.length for extent in extents if is_staged_only(extent))
    budget = [NEIGHBOUR_FACTOR * staged_bytes + NEIGHBOUR_FLOOR_BYTES]
    position = 0
    while position < len(extents):
        extent = extents[position]
        if is_staged_only(extent):
            position = yield from _cut_stream(extents, position, read, budget)
        elif _leads_into_staged(extents, position) and (data := _neighbour(extent, read, budget)) is not None:
            position = yield from _cut_stream(extents, position, read, budget, head=data)
        else:
            yield extent
            position += 1


def _whole(extent: M, read: Read[M]) -> Iterator[Piece]:
    data = read(extent, 0, extent.length)
    assert data is not None, "staged bytes are always here"
    yield Piece(extent.offset, data)


def _leads_into_staged(extents: Sequence[M], position: int) -> bool:
    if position + 1 == len(extents):
        return False
    extent, following = extents[position], extents[position + 1]
    return is_staged_only(following) and following.offset == extent.offset + extent.length


def _neighbour(extent: M, read: Read[M], budget: list[int]) -> bytes | None:
    """The bytes of a chunk next to a staged range, if they are here and within the budget."""
    if extent.length > budget[0]:
        return None
    data = read(extent, 0, extent.length)
    if data is not None:
        budget[0] -= extent.length
    return data


def _cut_stream(
    extents: Sequence[M], position: int, read: Read[M], budget: list[int], head: bytes | None = None
) -> Generator[Piece, None, int]:
    """Cuts one stream that starts at extents[position]; returns the position of the first extent it leaves as it is."""
    stream = _Stream(extents[position].offset)
    boundaries: dict[int, int] = {}  # where the stream may end: file offset of an unchanged extent → its position
    if head is not None:
        stream.feed(head)
        position += 1
    while position < len(extents) and extents[position].offset == stream.end:
        extent = extents[position]
        if is_staged_only(extent):
            boundaries.clear()
            first = 0
            while first < extent.length:
                data = read(extent, first, min(WINDOW_BYTES, extent.length - first))
                assert data is not None, "staged bytes are always here"
                stream.feed(data)
                yield from stream.cut(boundaries, final=False)
                first += len(data)
                if first < extent.length:
                    first -= stream.put_back(len(data))
        else:
            following = _neighbour(extent, read, budget)
            if following is None:
                break
            boundaries[extent.offset] = position
            stream.feed(following)
            yield from stream.cut(boundaries, final=False)
        if stream.stopped_at is not None:
            return boundaries[stream.stopped_at]
        position += 1
    yield from stream.cut(boundaries, final=True)
    return position if stream.stopped_at is None else boundaries[stream.stopped_at]


class _Stream:
    """Bytes of a file that wait to be cut, from offset `start` on. stopped_at: the boundary on which a cut fell."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.stopped_at: int | None = None
        self._waiting = b""

    @property
    def end(self) -> int:
        return self.start + len(self._waiting)

    def feed(self, data: bytes) -> None:
        self._waiting = self._waiting + data if self._waiting else data

    def put_back(self, limit_bytes: int) -> int:
        """Lets go of what waits if it is no more than that: reading it again, whole with what follows, is cheaper than joining
        the two. Returns how many bytes."""
        length = len(self._waiting)
        if length >= limit_bytes:
            return 0
        self._waiting = b""
        return length

    def cut(self, boundaries: Container[int], *, final: bool) -> Iterator[Piece]:
        """The pieces whose ends no later byte can move (final: all), up to the first end that lies on a boundary."""
        data, base, done = self._waiting, self.start, 0
        for begin, end, is_hole in _parts(data, final=final):
            if not is_hole:
                yield Piece(base + begin, data[begin:end])
            done = end
            if base + end in boundaries:
                self.stopped_at = base + end
                break
        self._waiting = data[done:]
        self.start = base + done


def _parts(data: bytes, *, final: bool) -> Iterator[tuple[int, int, bool]]:
    """(begin, end, is a hole) of the parts of data whose ends are settled, ascending."""
    done = 0
    for zero_offset, zero_length in [*zero_runs(data, ZERO_RUN_BYTES), (len(data), 0)]:
        begin, run = done, data[done:zero_offset]
        for end in cut_points(run, final or zero_length > 0) if run else ():
            yield begin, done + end, False
            begin = done + end
        if zero_length:
            done = zero_offset + zero_length
            yield zero_offset, done, True
