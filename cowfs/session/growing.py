"""Large files whose beginnings are uploaded while they are still written.

    file    [ stored: rows  |  nobody has written it since the last look  |  written since ]
            0               until                                         stable

What is staged never changes at its place: a write gives its range another one. So rows that were
made of a range hold as long as the file maps the range to the same places, and whether it does is
seen when they are asked for (`begun`). Bytes that are written again and again are never stable.

A file is cut as a commit would cut it: from a place where a chunk ended on, and no chunk is ended
because no more is known. For the committer, under its mutex.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from cowfs.index import ExtentRow
    from cowfs.native import Engine
    from cowfs.native.chunks import LayerExtent

STEP_BYTES = 64 << 20
"""A file is as long at least, and so much is stored before the next look whether somebody waits."""
RECENT_S = 10.0  # longer than a file takes to be quiet
FILES = 64  # looked at at once

Rows: TypeAlias = "list[ExtentRow]"


@dataclass(slots=True)
class Begun:
    """What is stored of the beginning of a file: its rows, and where the last of them ends."""

    rows: Rows = field(default_factory=list)

    @property
    def until(self) -> int:
        return self.rows[-1][0] + self.rows[-1][1] if self.rows else 0

    def up_to(self, end: int) -> Begun:
        """The part of it that lies before `end`."""
        count = len(self.rows)
        while count and self.rows[count - 1][0] + self.rows[count - 1][1] > end:
            count -= 1
        return Begun(self.rows[:count])


@dataclass(slots=True)
class _Growing:
    """seen: the file at the last look."""

    begun: Begun = field(default_factory=Begun)
    seen: Sequence[LayerExtent] = ()


class GrowingFiles:
    """store: the rows of a part of a file of these extents, as `StagedContents.first_rows`."""

    def __init__(self, engine: Engine, store: Callable[[int, Sequence[LayerExtent], int, int], Rows]) -> None:
        self._engine = engine
        self._store = store
        self._files: dict[int, _Growing] = {}
        self._staged_bytes = 0  # at the last upload

    @property
    def is_due(self) -> bool:
        """Whether enough was written since the last `upload` for a file to have grown. Cheap."""
        return self._engine.staged_bytes() - self._staged_bytes >= STEP_BYTES

    def upload(self, is_in_the_way: Callable[[], bool]) -> int:
        """Stores what is stable, until nothing is left or it is in somebody's way. Returns the bytes
        done."""
        self._staged_bytes = self._engine.staged_bytes()
        done_bytes = 0
        for ino in self._engine.growing_files(STEP_BYTES, RECENT_S, FILES):
            done_bytes += self._upload(ino, is_in_the_way)
        return done_bytes

    def begun(self, ino: int, extents: Sequence[LayerExtent]) -> Begun:
        """What is stored of the beginning of a file that has these extents now."""
        if (growing := self._files.get(ino)) is None:
            return Begun()
        return growing.begun.up_to(_agreement(growing.seen, extents))

    def stored(self, ino: int, extents: Sequence[LayerExtent], rows: Rows) -> None:
        """All of the file was stored. It may grow on; its last chunk then ends elsewhere."""
        if sum(extent.length for extent in extents) >= STEP_BYTES:
            self._files[ino] = _Growing(Begun(rows[:-1]), extents)

    def forget(self) -> None:
        """Chunks that were stored until now may be gone."""
        self._files.clear()

    def _upload(self, ino: int, is_in_the_way: Callable[[], bool]) -> int:
        try:
            extents = self._engine.live_extents(ino)[1]
        except FileNotFoundError:  # removed meanwhile
            self._files.pop(ino, None)
            return 0
        growing = self._files.setdefault(ino, _Growing())
        stable = _agreement(growing.seen, extents)
        growing.begun, growing.seen = growing.begun.up_to(stable), extents
        done_bytes = 0
        while stable - growing.begun.until >= STEP_BYTES and not is_in_the_way():
            begin = growing.begun.until
            try:
                rows = self._store(ino, extents, begin, begin + STEP_BYTES)
            except OSError:  # overwritten meanwhile, or lost: the commit says so
                break
            if not rows:  # zeros and holes, or it has chunks already
                break
            growing.begun.rows += rows
            done_bytes += growing.begun.until - begin
        return done_bytes


def _agreement(before: Sequence[LayerExtent], now: Sequence[LayerExtent]) -> int:
    """Up to where both are staged alike, from the beginning on, holes included."""
    place, first = 0, 0  # of `before`: the extent, and how much of it was compared
    for extent in now:
        done = 0
        while done < extent.length:
            if place == len(before):
                return extent.offset + done
            old = before[place]
            length = min(old.length - first, extent.length - done)
            if (found := _place(old, first)) is None or found != _place(extent, done):
                return min(old.offset + first, extent.offset + done)
            done, first = done + length, first + length
            if first == old.length:
                place, first = place + 1, 0
    return before[place].offset + first if place < len(before) else _end(now)


def _place(extent: LayerExtent, first: int) -> tuple[int, int, int] | None:
    """Where the byte lies that is `first` bytes behind the beginning of the extent: in the file, and in
    staging. None: not only there."""
    if extent.segment < 0 or extent.chunk is not None:
        return None
    return extent.offset + first, extent.segment, extent.segment_offset + first


def _end(extents: Sequence[LayerExtent]) -> int:
    return extents[-1].offset + extents[-1].length if extents else 0
