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
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from cowfs.values import dataclass

if TYPE_CHECKING:
    from cowfs.index import ExtentRow
    from cowfs.native import Engine
    from cowfs.native.chunks import LayerExtent

STEP_BYTES = 32 << 20
"""So much is written between two looks, and is settled of a file before a part of it is stored."""
PART_BYTES = 16 << 20
"""Is stored before the next look whether somebody waits."""
RECENT_S = 10.0  # longer than a file takes to be quiet
MOST_FILES = 32
"""That are looked at at once, and of which something is known."""
MOST_RUNS = 8192
"""Of a file: some 1.5 MB. What lies behind is left to the commit."""
MOST_EXTENTS = 1 << 18
"""Of a file that is looked at: a sixth of a second. One that was written in more pieces is left to
the commit."""
MOST_RESTARTS = 2
"""A file whose stored beginning was written again more often is left to the commit, too: each time
all of it is cut again."""

Rows: TypeAlias = "list[ExtentRow]"
Run: TypeAlias = "tuple[int, int, int, int]"
"""(offset in the file, length, segment, offset in it) of what lies in one piece in both."""


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
    """seen: the file at the last look. restarts: how often the beginning was written again."""

    begun: Begun = field(default_factory=Begun)
    seen: Sequence[Run] = ()
    restarts: int = 0


class GrowingFiles:
    """store: the rows of a part of a file of these extents, as `StagedContents.first_rows`.
    has_room: whether it would not wait for a store that is slower than the writer: nothing waits
    here, since a commit would wait with it."""

    def __init__(
        self,
        engine: Engine,
        store: Callable[[int, Sequence[LayerExtent], int, int], Rows],
        has_room: Callable[[], bool],
    ) -> None:
        self._engine = engine
        self._store = store
        self._has_room = has_room
        self._is_behind = False  # there was no room
        self._files: dict[int, _Growing] = {}
        self._staged_bytes = 0  # at the last upload

    @property
    def is_due(self) -> bool:
        """Whether enough was written since the last `upload` for a file to have grown, or something
        was left then. Cheap."""
        return self._is_behind or self._engine.staged_bytes() - self._staged_bytes >= STEP_BYTES

    def upload(self, is_in_the_way: Callable[[], bool]) -> int:
        """Stores what is stable, until nothing is left or it is in somebody's way. Returns the
        bytes done."""
        self._staged_bytes, self._is_behind = self._engine.staged_bytes(), False
        done_bytes = 0
        for ino in self._engine.growing_files(STEP_BYTES, RECENT_S, MOST_EXTENTS, MOST_FILES):
            if is_in_the_way():
                break
            done_bytes += self._upload(ino, is_in_the_way)
        return done_bytes

    def begun(self, ino: int, extents: Sequence[LayerExtent]) -> Begun:
        """What is stored of the beginning of a file that has these extents now."""
        if (growing := self._files.get(ino)) is None:
            return Begun()
        return growing.begun.up_to(_agreement(growing.seen, _runs(extents)))

    def stored(self, ino: int, extents: Sequence[LayerExtent], rows: Rows) -> None:
        """All of the file was stored. It may grow on; its last chunk then ends elsewhere."""
        if sum(extent.length for extent in extents) >= STEP_BYTES:
            self._file(ino).begun, self._file(ino).seen = Begun(rows[:-1]), _runs(extents)

    def forget(self) -> None:
        """Chunks that were stored until now may be gone."""
        self._files.clear()

    def _file(self, ino: int) -> _Growing:
        if ino not in self._files and len(self._files) >= MOST_FILES:
            del self._files[next(iter(self._files))]  # known for longest
        return self._files.setdefault(ino, _Growing())

    def _upload(self, ino: int, is_in_the_way: Callable[[], bool]) -> int:
        try:
            extents = self._engine.live_extents(ino)[1]
        except FileNotFoundError:  # removed meanwhile
            self._files.pop(ino, None)
            return 0
        growing, now = self._file(ino), _runs(extents)
        stable = _agreement(growing.seen, now)
        before = growing.begun.until
        growing.begun, growing.seen = growing.begun.up_to(stable), now
        growing.restarts += before - growing.begun.until > PART_BYTES
        if stable - growing.begun.until < STEP_BYTES or growing.restarts > MOST_RESTARTS:
            return 0
        done_bytes = 0
        while stable - growing.begun.until >= PART_BYTES and not is_in_the_way():
            if not self._has_room():
                self._is_behind = True
                break
            begin = growing.begun.until
            try:
                rows = self._store(ino, extents, begin, begin + PART_BYTES)
            except OSError:  # overwritten meanwhile, or lost: the commit says so
                break
            if not rows:  # zeros and holes, or it has chunks already
                break
            growing.begun.rows += rows
            done_bytes += growing.begun.until - begin
        return done_bytes


def _runs(extents: Sequence[LayerExtent]) -> list[Run]:
    """Where the file is staged, from its beginning on: up to what is not only there, and MOST_RUNS
    of them. What was written in a row is one run."""
    runs: list[Run] = []
    for extent in extents:
        if extent.segment < 0 or extent.chunk is not None:
            break
        if runs:
            offset, length, segment, first = runs[-1]
            if (offset + length, segment, first + length) == (extent.offset, extent.segment, extent.segment_offset):
                runs[-1] = (offset, length + extent.length, segment, first)
                continue
            if len(runs) == MOST_RUNS:
                break
        runs.append((extent.offset, extent.length, extent.segment, extent.segment_offset))
    return runs


def _agreement(before: Sequence[Run], now: Sequence[Run]) -> int:
    """Up to where the file was staged alike, holes included."""
    end = 0
    for old, new in zip(before, now, strict=False):
        if (old[0], old[2], old[3]) != (new[0], new[2], new[3]):
            return min(old[0], new[0])
        end = old[0] + min(old[1], new[1])
        if old[1] != new[1]:
            break
    return end
