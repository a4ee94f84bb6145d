"""What one writer holds against garbage collections, and what it must heed of them: its pin and the
condemned lists.

    Protection ──pin──▶ store         a collection waits until every live pin has acknowledged its list
               ◀─lists─               what may no longer be used: asked by `known_chunks`, compared before a head

The rules (docs/format/refs.md, "What a writer owes a collection"), and where they are kept:

- lists are read before the first look-up, and all of them again after a new pin (`read_lists`)
- a list is acknowledged only after it was read, and not between putting a manifest and knowing the
  outcome of its head: `publishing` holds the lock from one to the other, `is_bound` covers an
  outcome that stays unknown for longer
- a pin that was declared dead is replaced; `lapses` counts, so that `publish` checks everything it
  has not published
- lists that are older than those read before say that the store was put back to an earlier state,
  whose next collection takes the pin for one that has acknowledged it: a lapse, too

Threads: the heartbeat acknowledges, during long uploads too; whoever commits publishes. One lock,
taken after the committer's and never while waiting for it; a heartbeat that finds it taken does
without.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from cowfs import log
from cowfs.errors import NotFoundError
from cowfs.format import keys
from cowfs.helpers import Helpers
from cowfs.ids import PackId, VersionId
from cowfs.store import ObjectStore, condemned
from cowfs.store.pins import Pin

_THREADS = 16

_log = log.get("protection")


class Protection:
    """record_pin is told the key of a pin that replaces a dead one, before anything relies on
    it."""

    def __init__(self, store: ObjectStore, pin: Pin, record_pin: Callable[[str], None] = lambda key: None) -> None:
        self._store = store
        self._pin = pin
        self._record_pin = record_pin
        self._lock = threading.Lock()  # guards everything below, but for look-ups in `_condemned`
        self._condemned: frozenset[PackId] = frozenset()  # replaced, never changed
        self._condemned_versions: frozenset[VersionId] = frozenset()  # likewise
        self._read_generation = 0
        self._has_read = False  # any list, since the pin is this one
        self._lapses = 0
        self.is_bound = False
        """A head was put and its outcome is unknown. Set while publishing, cleared by whoever has
        settled it."""

    @property
    def pin(self) -> Pin:
        return self._pin

    @property
    def lapses(self) -> int:
        """How often the pin was dead, or the store put back to an earlier state: each time, what
        was seen there may have gone."""
        return self._lapses

    @property
    def condemned(self) -> frozenset[PackId]:
        """Packs that must not be named by a new version."""
        return self._condemned

    @property
    def condemned_versions(self) -> frozenset[VersionId]:
        """Versions whose content must not be taken over into a new one."""
        return self._condemned_versions

    def read_lists(self) -> None:
        """Reads the condemned lists before the first look-up, or before another version's manifest
        is read that is to be relied on; afterwards `acknowledge` and `publishing` do."""
        with self._lock:
            if not self._has_read:
                self._read()

    def forget_lists(self) -> None:
        """They are all read again before the first look-up."""
        with self._lock:
            self._read_generation, self._has_read = 0, False

    def catch_up(self) -> None:
        """Acknowledges what was read while the volume was being opened: a new pin had not heard of
        it. No request when there was nothing."""
        with self._lock:
            if not self.is_bound and not self.has_acknowledged:
                self._pin.renew(generation=self._read_generation)

    @property
    def has_acknowledged(self) -> bool:
        """Whether the pin says of every list that was read that it was."""
        return self._pin.generation >= self._read_generation

    @contextmanager
    def publishing(self) -> Iterator[Callable[[], None]]:
        """Nothing is acknowledged inside. Gives what reads new lists, which comes before the
        head."""
        with self._lock:
            yield self._read

    def acknowledge(self, number: int, uploaded: Callable[[], Iterable[PackId]]) -> None:
        """Reads new lists, tells collections so, and keeps the pin alive. number: the head the
        working copy stands on.

        uploaded: packs no head names yet. Writes only when something is new; nothing happens while
        a head is being put.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._read()
            if self.is_bound:
                return
            try:
                if self._read_generation != self._pin.generation or number != self._pin.number:
                    self._pin.renew(number=number, generation=self._read_generation, packs=sorted(uploaded()))
                else:
                    self._pin.renew()
            except NotFoundError:
                self._replace_pin(number, uploaded())
        finally:
            self._lock.release()

    def keep(self) -> None:
        """As `acknowledge`, while the mount is opening and nothing has changed."""
        pin = self._pin
        self.acknowledge(pin.number, lambda: pin.packs)

    def follow(self, number: int) -> None:
        """The pin, or a new one if a collection has declared it dead meanwhile, protects head
        `number`."""
        with self._lock:
            try:
                self._pin.renew(number=number)
            except NotFoundError:
                self._replace_pin(number, self._pin.packs)

    def prove_alive(self, number: int, uploaded: Iterable[PackId]) -> tuple[int, set[PackId]]:
        """After a lapse, or a collection's fence: the pin is alive by its next record, or a new one
        is made; it names `uploaded`,

        every list is read again, and then the packs are looked for. (lapses up to which that holds,
        packs that are gone).
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
        """Those that the store has not."""
        if not packs:
            return set()
        with Helpers(min(_THREADS, len(packs)), name="cowfs-verify") as threads:
            sizes = threads.map(lambda pack: self._store.size(keys.pack(pack)), packs)
            return {pack for pack, size in zip(packs, sizes, strict=True) if size is None}

    def hold(self, number: int, uploaded: Iterable[PackId]) -> None:
        """The work stays here, and nobody will renew: version and packs stay protected until the
        pin is resumed or removed."""
        with self._lock:
            try:
                self._pin.renew(kind="hold", number=number, packs=sorted(uploaded))
            except NotFoundError:
                self._replace_pin(number, uploaded)
                self._pin.renew(kind="hold")

    def _read(self) -> None:
        newest, doomed, versions = condemned(self._store, self._read_generation)
        if newest < self._read_generation:
            _log.warning("the store was put back to an earlier state; what was seen there is looked for again")
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
            "the pin expired and a collection went on without it, perhaps while this machine slept; a new one is made"
        )
        self._pin = Pin.create(
            self._store, volume=old.volume, number=number, owner=old.owner, packs=sorted(uploaded), lease=old.lease
        )
        self._record_pin(self._pin.key)
        self._lapses += 1
        self._read_generation = 0
        self._has_read = False
