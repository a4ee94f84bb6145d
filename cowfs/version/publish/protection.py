"""The protection of one writer against garbage collections: its pin, and the condemned lists that
it must respect.

    Protection ──pin──▶ store         a collection waits until every live pin has acknowledged its list
               ◀─lists─               packs that must not be used: checked by `known_chunks`, and before a head

The rules (docs/format/refs.md, "Obligations of collections, forks and writers"), and the functions
that keep them:

- lists are read before the first look-up, and all of them again after a new pin (`read_lists`)
- a list is acknowledged only after it was read, and not between putting a manifest and knowing the
  outcome of its head: `publishing` holds the lock from one to the other, `is_bound` covers an
  outcome that stays unknown for longer
- a pin that was declared dead is replaced; `lapses` counts these, so that `publish` checks
  everything that it has not published
- lists older than those read before mean that the store was put back to an earlier state, whose
  next collection assumes that the pin has acknowledged it: a lapse, too

Threads: the heartbeat acknowledges, also during long uploads; the committing thread publishes. One
lock, taken after the committer's and never while waiting for it. A heartbeat waits for the lock at
most BEAT_WAITS_S and then skips its turn: with successive commits the lock is often taken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from cowfs.base import log
from cowfs.base.errors import NotFoundError
from cowfs.base.ids import PackId, VersionId
from cowfs.base.thread_pool import Helpers
from cowfs.format import keys
from cowfs.store import ObjectStore, condemned
from cowfs.store.refs.pins import Pin

BEAT_WAITS_S = 5.0
_THREADS = 16

_log = log.get("protection")


class Protection:
    """record_pin: called with the key of a pin that replaces a dead one, before anything relies on
    it."""

    def __init__(self, store: ObjectStore, pin: Pin, record_pin: Callable[[str], None] = lambda key: None) -> None:
        self._store = store
        self._pin = pin
        self._record_pin = record_pin
        self._lock = threading.Lock()  # guards everything below, except look-ups in `_condemned`
        self._condemned: frozenset[PackId] = frozenset()  # replaced, never changed
        self._condemned_versions: frozenset[VersionId] = frozenset()  # replaced, never changed
        self._read_generation = 0
        self._has_read = False  # any list, with the current pin
        self._lapses = 0
        self._is_let_go = False
        """The pin is a hold, or removed: a late heartbeat must not make it a writer's."""
        self.is_bound = False
        """A head was put and its outcome is unknown. Set while publishing, cleared when the outcome
        is settled."""

    @property
    def pin(self) -> Pin:
        return self._pin

    @property
    def lapses(self) -> int:
        """How often the pin was dead, or the store put back to an earlier state: each time, packs
        seen before may be gone."""
        return self._lapses

    @property
    def condemned(self) -> frozenset[PackId]:
        """Packs that a new version must not name."""
        return self._condemned

    @property
    def condemned_versions(self) -> frozenset[VersionId]:
        """Versions whose content a new version must not take over."""
        return self._condemned_versions

    def read_lists(self) -> None:
        """Reads the condemned lists before the first look-up, or before reading the manifest of
        another version that is to be relied on; afterwards `acknowledge` and `publishing` do."""
        with self._lock:
            if not self._has_read:
                self._read()

    def forget_lists(self) -> None:
        """Makes the next look-up read all lists again."""
        with self._lock:
            self._read_generation, self._has_read = 0, False

    def catch_up(self) -> None:
        """Acknowledges lists that were read while the volume was being opened, which a new pin has
        not acknowledged. No request without such lists."""
        with self._lock:
            if not self.is_bound and not self.has_acknowledged:
                self._pin.renew(generation=self._read_generation)

    @property
    def has_acknowledged(self) -> bool:
        """Whether the pin has acknowledged every list that was read."""
        return self._pin.generation >= self._read_generation

    @contextmanager
    def publishing(self) -> Iterator[Callable[[], None]]:
        """Within the block nothing is acknowledged. Yields a function that reads new lists; call it
        before the head."""
        with self._lock:
            yield self._read

    def acknowledge(self, number: Callable[[], int], uploaded: Callable[[], Iterable[PackId]]) -> None:
        """Reads new lists, acknowledges them, and keeps the pin alive. number: returns the head of
        the working copy; called when no head is being put.

        uploaded: packs that no head names yet. Writes only if something is new. Does nothing after
        the pin was released, or while a head is being put, after waiting for a while.
        """
        if not self._lock.acquire(timeout=BEAT_WAITS_S):
            return
        try:
            if self._is_let_go:
                return
            self._read()
            if self.is_bound:
                return
            head = number()
            try:
                if self._read_generation != self._pin.generation or head != self._pin.number:
                    self._pin.renew(number=head, generation=self._read_generation, packs=sorted(uploaded()))
                else:
                    self._pin.renew()
            except NotFoundError:
                self._replace_pin(head, uploaded())
        finally:
            self._lock.release()

    def keep(self) -> None:
        """As `acknowledge`, while the mount is opening and nothing has changed."""
        pin = self._pin
        self.acknowledge(lambda: pin.number, lambda: pin.packs)

    def follow(self, number: int) -> None:
        """Lets the pin protect head `number`, or makes a new pin if a collection has declared it
        dead meanwhile."""
        with self._lock:
            try:
                self._pin.renew(number=number)
            except NotFoundError:
                self._replace_pin(number, self._pin.packs)

    def prove_alive(self, number: int, uploaded: Iterable[PackId]) -> tuple[int, set[PackId]]:
        """After a lapse, or a collection's fence: renews the pin with its next record, or makes a
        new one, which names `uploaded`; reads every list again, and then looks for the packs.
        Returns (lapses up to which that holds, missing packs).
        """
        packs = sorted(uploaded)
        with self._lock:
            try:
                self._pin.renew(number=number, packs=packs, is_forced=True)
            except NotFoundError:
                self._replace_pin(number, packs)
            self._read_generation = 0
            self._read()
            lapses = self._lapses
        return lapses, self.missing(packs)

    def missing(self, packs: Sequence[PackId]) -> set[PackId]:
        """The packs that the store does not have."""
        if not packs:
            return set()
        with Helpers(min(_THREADS, len(packs)), name="cowfs-verify") as threads:
            sizes = threads.map(lambda pack: self._store.size(keys.pack(pack)), packs)
            return {pack for pack, size in zip(packs, sizes, strict=True) if size is None}

    def hold(self, number: int, uploaded: Iterable[PackId]) -> None:
        """Keeps version and packs protected without renewal, since the work stays in the working
        copy, until the pin is resumed or removed."""
        with self._lock:
            self._is_let_go = True
            try:
                self._pin.renew(kind="hold", number=number, packs=sorted(uploaded))
            except NotFoundError:
                self._replace_pin(number, uploaded)
                self._pin.renew(kind="hold")

    def remove(self) -> None:
        """Ends all protection."""
        with self._lock:
            self._is_let_go = True
            self._pin.remove()

    def _read(self) -> None:
        newest, doomed, versions = condemned(self._store, self._read_generation)
        if newest < self._read_generation:
            _log.warning("the store was put back to an earlier state; packs seen there are looked for again")
            self._lapses += 1
            newest, doomed, versions = condemned(self._store, 0)
        if not doomed <= self._condemned:
            self._condemned |= doomed
        self._condemned_versions |= versions
        self._read_generation = newest
        self._has_read = True

    def _replace_pin(self, number: int, uploaded: Iterable[PackId]) -> None:
        old = self._pin
        _log.warning(
            "the pin expired and a collection continued without it, perhaps while this machine slept; a new one is made"
        )
        self._pin = Pin.create(
            self._store, volume=old.volume, number=number, owner=old.owner, packs=sorted(uploaded), lease=old.lease
        )
        self._record_pin(self._pin.key)
        self._lapses += 1
        self._read_generation = 0
        self._has_read = False
