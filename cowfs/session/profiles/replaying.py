"""Fetches the chunks of a profile while the mount is already in use.

    ranges of the profile ─▶ places in the version ─▶ windows of chunks ─▶ chunks missing in the cache ─▶ residency, not urgent

Chunks are fetched in the order of the profile, so those that a job reads first arrive first. Less
than AHEAD_BYTES are in flight at once, and only on threads that no waiting request needs
(`fetching`); a chunk that a program misses meanwhile goes first and is not fetched twice. Fetched
chunks are not deleted to make room for others: when the cache is full, the replay ends.

A profile is a hint. Parts of it that are gone, damaged or unavailable only cause a log message; a
program that really reads them meets the error again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cowfs.base import byte_sizes, log
from cowfs.base.errors import CowfsError
from cowfs.session.profiles.profile_places import ProfilePlaces
from cowfs.transfer.chunk_windows import Budget, Window

if TYPE_CHECKING:
    from cowfs.format.profile import ReadRange
    from cowfs.index import ExtentRow
    from cowfs.native import Engine
    from cowfs.native.chunks import ChunkRef
    from cowfs.session.residency.residency import Residency
    from cowfs.session.room import Room

AHEAD_BYTES = 64 << 20
WINDOW_BYTES = 16 << 20  # a pack
WINDOW_CHUNKS = 1000

_logger = log.get("replaying")


class Replayer:
    """Started once, by the keeper; `stop` does not wait for requests in flight. ranges: of the
    whole version; folder: the directory of it that is the engine's root."""

    def __init__(
        self, engine: Engine, residency: Residency, room: Room, ranges: Iterable[ReadRange], folder: bytes
    ) -> None:
        self._engine = engine
        self._residency = residency
        self._room = room
        self._ranges = ranges
        self._places = ProfilePlaces(residency.ask, folder)
        self._changed = threading.Condition()  # guards what follows
        self._under_way_bytes = 0
        self._fetched_bytes = 0
        self._is_stopped = False

    def start(self) -> None:
        threading.Thread(target=self._run, name="replay", daemon=True).start()

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            self._replay()
        except BaseException as error:  # noqa: BLE001 - a hint only; an engine that is being closed refuses calls
            if not self._is_stopped:
                _logger.warning("the replay of a profile ended: %s", error)

    def _replay(self) -> None:
        budget = Budget(self._room.cacheable_bytes())
        for window in self._windows():
            self._fetch(window.chunks, budget)
            if self._is_stopped:
                return
            if budget.is_spent:
                _logger.warning("the cache has no room for the whole profile")
                break
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or self._under_way_bytes == 0)
        _logger.info("replayed a profile: fetched %s", byte_sizes.format_size(self._fetched_bytes))

    def _windows(self) -> Iterator[Window]:
        window = Window(WINDOW_BYTES, WINDOW_CHUNKS)
        for wanted in self._ranges:
            if self._is_stopped:
                return
            for row in self._extents(wanted):
                window.add(row)
                if window.is_full:
                    yield window
                    window = Window(WINDOW_BYTES, WINDOW_CHUNKS)
        yield window

    def _extents(self, wanted: ReadRange) -> Iterator[ExtentRow]:
        try:
            if (place := self._places.place(wanted)) is not None:
                yield from self._places.extents(place)
        except CowfsError as error:
            _logger.debug("a path of the profile was skipped: %s", error)

    def _fetch(self, chunks: Sequence[ChunkRef], budget: Budget) -> None:
        absent = set(self._engine.keep_chunks([(chunk.hash, chunk.raw_length) for chunk in chunks]))
        budget.note(chunk for at, chunk in enumerate(chunks) if at not in absent)
        wanted = budget.take(chunks[at] for at in sorted(absent))
        size_bytes = sum(chunk.raw_length for chunk in wanted)
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or self._under_way_bytes < AHEAD_BYTES)
            if self._is_stopped:
                return
            self._under_way_bytes += size_bytes
        self._residency.load_chunks(wanted, partial(self._record_fetched, size_bytes), urgent=False)

    def _record_fetched(self, size_bytes: int, error: BaseException | None) -> None:
        if error is not None and not self._is_stopped:
            _logger.debug("some of the profile was not fetched: %s", error)
        with self._changed:
            self._under_way_bytes -= size_bytes
            self._fetched_bytes += size_bytes if error is None else 0
            self._changed.notify_all()
