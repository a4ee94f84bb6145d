"""Turns the extents of a changed file into index rows: cuts staged data, keeps existing chunks.

    extents of a frozen file      [ chunk A ][ chunk B (first part) ][staged][ chunk B (rest) ][ chunk C ]
    kept                          [ chunk A ]                                                  [ chunk C ]
    cut again, as one stream                 [ chunk B (first part) + staged + chunk B (rest) ]

Extents that show one range of one chunk are one run. While the staged bytes are local, the engine
has one extent for each write: a log to which 8 bytes were appended a thousand times has a thousand
extents, and one row.

Cutting starts at the last unchanged chunk boundary before a staged range and continues until a cut
point falls on a boundary after it, as far as the neighbours' bytes are on this machine. So the same
content gives the same chunks, regardless of how it was written, and a small change costs about two
chunks.

Bound: neighbours re-read for one file are at most NEIGHBOUR_FACTOR times its staged bytes plus
NEIGHBOUR_FLOOR_BYTES (otherwise scattered page writes of a database would rewrite all of it). Past
that a staged range is cut by itself. A file that was changed in many places without local
neighbours ends up in pieces, each a chunk of a few kilobytes: then `to_fetch` returns the
neighbours that are worth fetching, so that the next cut joins them. Zero runs of ZERO_RUN_BYTES and
more become holes (absent rows).

Pure, except for the two callables. The caller decides where a piece is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from cowfs.base.fast_dataclass import dataclass
from cowfs.native.chunks import ChunkRef, cut_points, zero_runs

WINDOW_BYTES = 15 << 18  # below malloc's threshold for mappings (session/heap.py): pages are used again
ZERO_RUN_BYTES = 64 << 10
NEIGHBOUR_FACTOR = 8
NEIGHBOUR_FLOOR_BYTES = 16 << 20
PIECES_MIN = 64
PIECE_BYTES = 16 << 10
"""Pieces that are shorter on average are joined. Chosen: with changes of one page each, every
eighth stored byte was changed, in accordance with NEIGHBOUR_FACTOR."""
FETCHED_RUNS = 32  # behind each staged range
EXTENT_COST_BYTES = 4 << 10  # the least cost of an extent that is read: the floor is 4,096 of them


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of file bytes that becomes one chunk."""

    offset: int
    data: bytes


class Extent(Protocol):
    """A mapped range of a file, as `LayerExtent` has it: new bytes (chunk None), or part of a chunk
    from its byte `skip` on."""

    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def chunk(self) -> ChunkRef | None: ...
    @property
    def skip(self) -> int: ...


E = TypeVar("E", bound=Extent)


@dataclass(slots=True)
class Run(Generic[E]):
    """File bytes that are staged in one place, or lie in one range of one chunk."""

    offset: int
    length: int
    chunk: ChunkRef | None  # None: staged, in no chunk yet
    skip: int  # bytes of the raw chunk before it
    extents: list[E]  # one, if staged

    @property
    def end(self) -> int:
        return self.offset + self.length


# (extent, first byte in it, length) → its bytes, or None when they are not on this machine (never
# for staged extents)
Read = Callable[[E, int, int], bytes | None]


def recut(extents: Sequence[E], read: Read[E], gear: bytes | None = None) -> Iterator[Run[E] | Piece]:
    """The file's new composition in file order: runs to keep, all of them in chunks, and pieces to
    store. gear: the store's cut table (`Sealing.gear`)."""
    if len(extents) == 1 and extents[0].chunk is None and extents[0].length < ZERO_RUN_BYTES:
        yield Piece(extents[0].offset, _read_staged(extents[0], 0, extents[0].length, read))
        return  # most files of most trees are too short for a cut or a hole
    runs = _runs(extents)
    staged_bytes = sum(run.length for run in runs if run.chunk is None)
    budget = [NEIGHBOUR_FACTOR * staged_bytes + NEIGHBOUR_FLOOR_BYTES]
    position = 0
    while position < len(runs):
        run = runs[position]
        if run.chunk is None:
            position = yield from _cut_stream(runs, position, read, budget, gear)
        elif _leads_into_staged(runs, position) and (data := _neighbour(run, read, budget)) is not None:
            position = yield from _cut_stream(runs, position, read, budget, gear, head=data)
        else:
            yield run
            position += 1


def to_fetch(extents: Sequence[E]) -> list[ChunkRef]:
    """Chunks next to staged ranges, for a file in pieces; otherwise empty."""
    runs = _runs(extents)
    if len(runs) < PIECES_MIN or sum(run.length for run in runs) > len(runs) * PIECE_BYTES:
        return []
    found: dict[bytes, ChunkRef] = {}
    for position, run in enumerate(runs):
        if run.chunk is None:
            near = runs[max(position - 1, 0) : position + 1 + FETCHED_RUNS]
            found |= {other.chunk.hash: other.chunk for other in near if other.chunk is not None}
    return list(found.values())


def _runs(extents: Sequence[E]) -> list[Run[E]]:
    runs: list[Run[E]] = []
    for extent in extents:
        if runs and _continues(runs[-1], extent):
            runs[-1].length += extent.length
            runs[-1].extents.append(extent)
        else:
            runs.append(Run(extent.offset, extent.length, extent.chunk, extent.skip, [extent]))
    return runs


def _continues(run: Run[E], extent: E) -> bool:
    return (
        run.chunk is not None
        and extent.chunk is not None
        and extent.offset == run.end
        and extent.skip == run.skip + run.length
        and extent.chunk == run.chunk
    )


def _leads_into_staged(runs: Sequence[Run[E]], position: int) -> bool:
    if position + 1 == len(runs):
        return False
    run, following = runs[position], runs[position + 1]
    return following.chunk is None and following.offset == run.end


def _read_staged(extent: E, first: int, length: int, read: Read[E]) -> bytes:
    data = read(extent, first, length)
    assert data is not None, "staged bytes are always local"
    return data


def _neighbour(run: Run[E], read: Read[E], budget: list[int]) -> bytes | None:
    """The bytes of a run next to a staged one, if they are local and within the budget."""
    cost_bytes = max(run.length, len(run.extents) * EXTENT_COST_BYTES)
    if cost_bytes > budget[0]:
        return None
    parts: list[bytes] = []
    for extent in run.extents:
        data = read(extent, 0, extent.length)
        if data is None:
            return None
        parts.append(data)
    budget[0] -= cost_bytes
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _cut_stream(
    runs: Sequence[Run[E]],
    position: int,
    read: Read[E],
    budget: list[int],
    gear: bytes | None,
    head: bytes | None = None,
) -> Generator[Piece, None, int]:
    """Cuts one stream that starts at runs[position]; returns the position of the first unchanged
    run."""
    stream = _Stream(runs[position].offset, gear)
    boundaries: dict[int, int] = {}  # where the stream may end: file offset of an unchanged run → its position
    if head is not None:
        stream.feed(head)
        position += 1
    while position < len(runs) and runs[position].offset == stream.end:
        run = runs[position]
        if run.chunk is None:
            boundaries.clear()
            yield from _cut_staged(stream, run, read)
        else:
            following = _neighbour(run, read, budget)
            if following is None:
                break
            boundaries[run.offset] = position
            stream.feed(following)
            yield from stream.cut(boundaries, final=False)
        if stream.stopped_at is not None:
            return boundaries[stream.stopped_at]
        position += 1
    yield from stream.cut(boundaries, final=True)
    return position if stream.stopped_at is None else boundaries[stream.stopped_at]


def _cut_staged(stream: _Stream, run: Run[E], read: Read[E]) -> Iterator[Piece]:
    [extent] = run.extents
    first = 0
    while first < run.length:
        data = _read_staged(extent, first, min(WINDOW_BYTES, run.length - first), read)
        stream.feed(data)
        yield from stream.cut((), final=False)
        first += len(data)
        if first < run.length:
            first -= stream.put_back(len(data))


class _Stream:
    """Bytes of a file that are waiting to be cut, from offset `start` on. stopped_at: the boundary
    on which a cut fell."""

    def __init__(self, start: int, gear: bytes | None) -> None:
        self.start = start
        self._gear = gear
        self.stopped_at: int | None = None
        self._waiting = b""

    @property
    def end(self) -> int:
        return self.start + len(self._waiting)

    def feed(self, data: bytes) -> None:
        self._waiting = self._waiting + data if self._waiting else data

    def put_back(self, limit_bytes: int) -> int:
        """Drops the waiting bytes if there are at most `limit_bytes`: reading them again, together
        with the following ones, is cheaper than joining the two. Returns how many were dropped."""
        length = len(self._waiting)
        if length >= limit_bytes:
            return 0
        self._waiting = b""
        return length

    def cut(self, boundaries: Container[int], *, final: bool) -> Iterator[Piece]:
        """The pieces whose ends no later byte can move (final: all pieces), up to the first end on
        a boundary."""
        data, base, done = self._waiting, self.start, 0
        for begin, end, is_hole in parts(data, len(data), final=final, gear=self._gear):
            if not is_hole:
                yield Piece(base + begin, data[begin:end])
            done = end
            if base + end in boundaries:
                self.stopped_at = base + end
                break
        self._waiting = data[done:]
        self.start = base + done


def parts(
    data: bytes | bytearray, length: int, *, final: bool, gear: bytes | None = None
) -> Iterator[tuple[int, int, bool]]:
    """(begin, end, is a hole) of the parts of data[:length] whose ends are final, ascending."""
    done = 0
    for zero_offset, zero_length in [*zero_runs(data, ZERO_RUN_BYTES, length), (length, 0)]:
        begin = done
        if done < zero_offset:
            for end in cut_points(data, final or zero_length > 0, done, zero_offset, gear):
                yield begin, end, False
                begin = end
        if zero_length:
            done = zero_offset + zero_length
            yield zero_offset, done, True
