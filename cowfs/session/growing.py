"""Uploads the beginnings of large files while they are still being written.

    file    [ stored: rows  |  not written since the last look  |  written since ]
            0               until                               stable

Staged bytes are never changed in place: a write assigns new space to its range. Rows of a range
therefore stay valid as long as the file maps the range to the same staged bytes, which
`find_beginning` checks. Bytes that are rewritten all the time never become stable.

A file is cut into chunks exactly as a commit would cut it: each part starts at a chunk boundary,
and no chunk ends just because the data ends. For the committer, under its mutex.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from cowfs.base.fast_dataclass import dataclass

if TYPE_CHECKING:
    from cowfs.index import ExtentRow
    from cowfs.native import Engine
    from cowfs.native.chunks import LayerExtent

STEP_BYTES = 32 << 20
"""The amount written between two looks, and the stable amount of a file that is stored at least."""
PART_BYTES = 16 << 20
"""The amount stored before checking again whether a caller waits."""
RECENT_S = 10.0  # longer than it takes for a file to count as quiet
MOST_FILES = 32
"""The number of files looked at at once, and remembered."""
MOST_RUNS = 8192
"""Runs of one file, some 1.5 MB. The rest of the file is left to the commit."""
MOST_EXTENTS = 1 << 18
"""Extents of one file, which take a sixth of a second. A file with more is left to the commit."""
MOST_RESTARTS = 2
"""A file whose stored beginning was rewritten more often is left to the commit as well, because
each time all of it is cut again."""

Rows: TypeAlias = "list[ExtentRow]"
Run: TypeAlias = "tuple[int, int, int, int]"
"""(offset in the file, length, segment, offset in it) of a range that is contiguous in both."""


@dataclass(slots=True)
class Begun:
    """The stored beginning of a file: its rows, and where the last of them ends."""

    rows: Rows = field(default_factory=list)

    @property
    def until(self) -> int:
        return self.rows[-1][0] + self.rows[-1][1] if self.rows else 0

    def clip(self, end: int) -> Begun:
        """The part that lies before `end`."""
        count = len(self.rows)
        while count and self.rows[count - 1][0] + self.rows[count - 1][1] > end:
            count -= 1
        return Begun(self.rows[:count])


@dataclass(slots=True)
class _Growing:
    """seen: the runs at the last look. restarts: how often the beginning was rewritten."""

    begun: Begun = field(default_factory=Begun)
    seen: Sequence[Run] = ()
    restarts: int = 0


class GrowingFiles:
    """store makes the rows of a part of a file, as `StagedContents.first_rows`. has_room tells
    whether storing would not block on a store slower than the writer: nothing blocks here, since a
    commit would wait for it."""

    def __init__(
        self,
        engine: Engine,
        store: Callable[[int, Sequence[LayerExtent], int, int], Rows],
        has_room: Callable[[], bool],
    ) -> None:
        self._engine = engine
        self._store = store
        self._has_room = has_room
        self._is_behind = False  # the last upload stopped for lack of room
        self._files: dict[int, _Growing] = {}
        self._staged_bytes = 0  # at the last upload

    @property
    def is_due(self) -> bool:
        """Whether enough was written since the last `upload` for a file to have grown, or that
        upload stopped early. Cheap."""
        return self._is_behind or self._engine.staged_bytes() - self._staged_bytes >= STEP_BYTES

    def upload(self, is_in_the_way: Callable[[], bool]) -> int:
        """Stores stable data until none is left or a caller needs the mutex. Returns the bytes
        stored."""
        self._staged_bytes, self._is_behind = self._engine.staged_bytes(), False
        done_bytes = 0
        for ino in self._engine.growing_files(STEP_BYTES, RECENT_S, MOST_EXTENTS, MOST_FILES):
            if is_in_the_way():
                break
            done_bytes += self._upload(ino, is_in_the_way)
        return done_bytes

    def find_beginning(self, ino: int, extents: Sequence[LayerExtent]) -> Begun:
        """The stored beginning of a file, as far as it matches the current extents."""
        if (growing := self._files.get(ino)) is None:
            return Begun()
        return growing.begun.clip(_agreement(growing.seen, _runs(extents)))

    def record_stored(self, ino: int, extents: Sequence[LayerExtent], rows: Rows) -> None:
        """Records that the whole file was stored. If it grows, its last chunk will end
        elsewhere."""
        if sum(extent.length for extent in extents) >= STEP_BYTES:
            self._file(ino).begun, self._file(ino).seen = Begun(rows[:-1]), _runs(extents)

    def forget(self) -> None:
        """Drops all rows, because their chunks may be gone."""
        self._files.clear()

    def _file(self, ino: int) -> _Growing:
        if ino not in self._files and len(self._files) >= MOST_FILES:
            del self._files[next(iter(self._files))]  # the oldest
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
        growing.begun, growing.seen = growing.begun.clip(stable), now
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
            except OSError:  # overwritten meanwhile, or lost: the commit reports it
                break
            if not rows:  # zeros and holes, or chunks exist already
                break
            growing.begun.rows += rows
            done_bytes += growing.begun.until - begin
        return done_bytes


def _runs(extents: Sequence[LayerExtent]) -> list[Run]:
    """The staged runs of a file from its beginning, up to the first range that is not only staged,
    at most MOST_RUNS. Adjacent writes form one run."""
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
    """The offset up to which the file was staged identically, holes included."""
    end = 0
    for old, new in zip(before, now, strict=False):
        if (old[0], old[2], old[3]) != (new[0], new[2], new[3]):
            return min(old[0], new[0])
        end = old[0] + min(old[1], new[1])
        if old[1] != new[1]:
            break
    return end
