"""Collecting: what nothing needs is deleted, beside writers that go on. docs/architecture.md,
"Collecting", says why each step is there.

    1  begin            a generation, or the one that a dead collector has begun
    2  close            volumes deleted too long ago get a `void` head: nobody can bring them back any more
    3  repack           what is needed of sparse packs is written to new ones, and moved records say so
    4  condemn          the plan's list, and the packs that were written anew. From here on nobody may begin to use what it names
    5  wait             until every live writer has acknowledged it. A pin past its lifetime is declared dead, and its volume
                        fenced, so that its owner proves everything anew. The volume of a writer that is not there any more is
                        fenced, too; what its pin names stays
    6  look again       all roots are read anew, versions that were put since the plan, and moved records: whatever now needs
                        something on the list takes it off. Decided once for each list
    7  delete           versions, then packs
    8  done             and lists that everybody has acknowledged go

May be killed at any point and run again: what was begun is found, and each step is done again with
the same outcome. Two collectors at once disturb each other as little: lists are create-only, and
what is deleted is read from them.

Crash points are named `gc-*`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cowfs import clock
from cowfs.errors import ConflictError
from cowfs.failpoints import hit
from cowfs.format import keys
from cowfs.format.heads import HeadKind
from cowfs.format.record import Holder
from cowfs.format.records import HeadRecord
from cowfs.ids import PackId, VersionId, WriteId
from cowfs.maintain.generations import Condemned, Generation
from cowfs.maintain.planning import MAX_SKEW_S, Listing, Plan, Survey, checked_now_ns, is_silent
from cowfs.maintain.roots import FoundPin
from cowfs.store import refs, scratch
from cowfs.store.leases import EXPIRY_S
from cowfs.values import dataclass
from cowfs.version.volumes import Head, find_head

PAUSE_S = 2.0
WAIT_S = EXPIRY_S + 10.0
"""Six heartbeats of a mount that answers, and long enough to see that one is silent."""
DELETED_AT_ONCE = 1000


@dataclass(frozen=True)
class Outcome:
    """deleted: key and size. waits_for: pins whose owners have not acknowledged the list; then
    nothing of it was deleted. is_ended: False: the next run goes on. written_bytes: new packs made
    of sparse ones. closed: volumes that nobody can bring back from now on."""

    deleted: dict[str, int]
    is_ended: bool
    waits_for: tuple[FoundPin, ...] = ()
    written_bytes: int = 0
    closed: tuple[str, ...] = ()


class Collection:
    """survey: which has made the plan. holder: who collects. wait_s: for writers to acknowledge."""

    def __init__(
        self,
        survey: Survey,
        holder: Holder,
        *,
        wait_s: float = WAIT_S,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._survey = survey
        self._store = survey.store
        self._holder = holder
        self._wait_s = wait_s
        self._progress = progress
        self._fenced: set[tuple[int, WriteId]] = set()
        """Generations, and pins whose volumes were fenced behind their lists: an earlier fence says
        nothing of a later list."""

    def apply(self, plan: Plan) -> Outcome:
        """Deletes at most what the plan names. LeaseHeldError: somebody on this machine is at
        it."""
        checked_now_ns(self._store)
        generation = self._survey.generations.begin(self._holder)
        hit("gc-after-begin")
        deleted: dict[str, int] = {}
        self._delete({key: size for key, size in plan.objects.items() if key.startswith(scratch.PREFIX)}, deleted)
        if generation.has_list:
            listed = self._survey.generations.condemned(generation.number)
            late, is_ended = self._finish(generation, listed, plan, deleted)
            if not is_ended or not (plan.doomed or plan.lapsed or plan.sparse.batches):
                return Outcome(deleted, is_ended, tuple(late))
            generation = self._survey.generations.begin(self._holder)
        closed = tuple(volume for volume, number in plan.lapsed.items() if self._close_line(volume, number))
        moved, written_bytes = self._repack(plan)
        listed = self._survey.generations.condemn(generation.number, plan.doomed | Condemned(moved))
        hit("gc-after-condemned")
        late, is_ended = self._finish(generation, listed, plan, deleted)
        return Outcome(deleted, is_ended, tuple(late), written_bytes, closed)

    def settle(self) -> tuple[FoundPin, ...]:
        """Has live writers acknowledge an empty list, so that a plan made then knows what of the
        past they may still rely on. Those that have not yet."""
        generation = self._survey.generations.begin(self._holder)
        is_old = generation.has_list
        listed = Condemned() if is_old else self._survey.generations.condemn(generation.number, Condemned())
        late = self._wait(generation)
        if not (late or is_old or listed):
            self._end(generation)
        return tuple(late)

    # -- the steps

    def _close_line(self, volume: str, number: int) -> bool:
        """Of several who append behind the newest head one wins: an `undelete` keeps the volume.
        number: of the head that was newest when it was planned; a volume that was brought back and
        deleted again meanwhile can be brought back once more."""
        head = find_head(self._store, volume)
        if head is None or head.number != number:
            return False
        if not (head.is_deleted or (head.version is not None and self._is_gone(head.version))):
            return False
        is_closed = self._append(head, "void")
        hit("gc-after-void")
        return is_closed

    def _is_gone(self, version: VersionId) -> bool:
        return self._store.size(keys.version(version)) is None

    def _repack(self, plan: Plan) -> tuple[frozenset[PackId], int]:
        """(packs that may go, bytes that were written)."""
        moved: frozenset[PackId] = frozenset()
        written_bytes = 0
        if plan.sparse.batches:
            repacker = self._survey.repacker()
            for done, batch in enumerate(plan.sparse.batches):
                self._progress(f"repacking, {done} of {len(plan.sparse.batches)}")
                gone, size = repacker.write(batch)
                moved |= gone
                written_bytes += size
        return moved, written_bytes

    def _finish(
        self, generation: Generation, listed: Condemned, plan: Plan, deleted: dict[str, int]
    ) -> tuple[list[FoundPin], bool]:
        """(the pins that keep it from going on, whether it has ended). Everything on the list that
        was not spared is deleted, as far as the plan names it. It ends when nothing of that is
        left: who has it in his plan may have sent a request to delete it, so nobody may begin to
        use it before."""
        if late := self._wait(generation):
            return late, False
        hit("gc-after-wait")
        generations = self._survey.generations
        spared = generations.spared(generation.number) if listed else Condemned()
        if spared is None:
            spared = generations.spare(generation.number, listed & self._survey.needed(listed))
            hit("gc-after-spared")
        listed_ns = generations.listed_ns(generation.number)
        if spared is None or listed_ns is None:
            return [], True  # another has ended it, and removed its list
        doomed = listed - spared
        # A copy from another store may have put a moved record of a pack on the list since. Before
        # that all of it goes: a version that stayed could be forked, without the packs that it
        # needs. Listed anew: who goes on with another's list may have planned before what it names
        # was put.
        found = Listing.of_kept(self._store).objects_of(doomed, put_before_ns=listed_ns) if doomed else {}
        objects = {key: size for key, size in found.items() if key in plan.objects}
        versions = {key: size for key, size in objects.items() if key.startswith(keys.VERSIONS)}
        self._delete(versions, deleted, generation)
        hit("gc-after-versions")
        packs = {key: size for key, size in objects.items() if key.startswith(keys.PACKS)}
        self._delete(packs, deleted, generation)
        hit("gc-after-packs")
        if len(objects) < len(found):
            return [], False
        self._end(generation)
        return [], True

    def _end(self, generation: Generation) -> None:
        self._survey.generations.end(generation.number)
        hit("gc-after-done")
        acknowledged = [pin.record.gc_generation for pin in self._survey.roots.pins() if pin.must_acknowledge]
        self._survey.generations.tidy(min(acknowledged, default=generation.number))

    def _wait(self, generation: Generation) -> list[FoundPin]:
        """The pins that keep the collection from going on."""
        end_s = clock.monotonic_s() + self._wait_s
        said = ""
        while True:
            late = self._look_at_pins(generation)
            if not late or clock.monotonic_s() >= end_s:
                return late
            text = f"waiting for {late[0].record.owner or 'a writer'} of volume {late[0].record.volume}"
            if text != said:
                self._progress(text)
            said = text
            clock.sleep_s(PAUSE_S)

    def _look_at_pins(self, generation: Generation) -> list[FoundPin]:
        """Those that the collection must still wait for. Of expired ones it does not."""
        now_ns = checked_now_ns(self._store)
        late: list[FoundPin] = []
        for pin in self._survey.roots.pins():
            if pin.record.kind == "dead":
                # Whoever declared it dead may have died before the fence. Times of a store with
                # several servers need not ascend; a fence too many does no harm.
                if pin.mtime_ns >= generation.begun_ns - MAX_SKEW_S * 1e9:
                    self._fence_once(pin, generation)
            elif pin.is_expired(now_ns):
                if not self._declare_dead(pin, generation):
                    late.append(pin)  # renewed in the last moment
            elif pin.must_acknowledge and pin.record.gc_generation < generation.number:
                if is_silent(self._survey.leases, pin):
                    self._fence_once(pin, generation)
                else:
                    late.append(pin)
        return late

    def _fence_once(self, pin: FoundPin, generation: Generation) -> None:
        if (generation.number, pin.id) not in self._fenced:
            self._fence(pin.record.volume)
            self._fenced.add((generation.number, pin.id))
            hit("gc-after-fence")

    def _declare_dead(self, pin: FoundPin, generation: Generation) -> bool:
        if pin.number == 0:  # one object for all its records, whose absence its owner takes for death
            self._fence_once(pin, generation)
            self._store.delete([pin.key])
            return True
        dead = replace(
            pin.record, kind="dead", lifetime_s=None, packs=(), created_ns=clock.now_ns(), write_id=_write_id()
        )
        try:
            refs.append(self._store, refs.pin(pin.id), pin.number + 1, dead)
        except ConflictError:
            return False
        self._progress(f"the pin of {pin.record.owner} on volume {pin.record.volume} had expired, and is dead now")
        hit("gc-after-dead")
        if pin.must_acknowledge:
            self._fence_once(pin, generation)
        return True

    def _fence(self, volume: str) -> None:
        while True:
            head = find_head(self._store, volume)
            if head is None or head.is_deleted or head.is_void:  # nobody can publish there
                return
            if self._append(head, "fence"):
                return

    def _append(self, head: Head, kind: HeadKind) -> bool:
        """False: somebody else has this number."""
        version = None if kind == "void" else head.version
        record = HeadRecord(kind, version, head.epoch, clock.now_ns(), _write_id(), holder=self._holder)
        try:
            refs.append(self._store, refs.head(head.volume), head.number + 1, record)
        except ConflictError:
            return False
        return True

    def _delete(self, objects: dict[str, int], deleted: dict[str, int], of: Generation | None = None) -> None:
        """Nothing any more once another has ended the collection `of`: a copy from another store
        may have put the same objects again since."""
        left = list(objects)
        for at in range(0, len(left), DELETED_AT_ONCE):
            if of is not None and self._store.size(keys.collection(of.number, "done")) is not None:
                return
            batch = left[at : at + DELETED_AT_ONCE]
            self._store.delete(batch)
            deleted |= {key: objects[key] for key in batch}
            hit("gc-after-some")


def _write_id() -> WriteId:
    return WriteId(clock.random_bytes(WriteId.length))
