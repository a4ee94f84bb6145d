"""Collecting: deletes objects that nothing needs, while writers continue. docs/architecture.md,
"Collecting", explains why each step is there.

    1  begin            a generation, or the one that a dead collector has begun
    2  close            volumes deleted too long ago get a `void` head: they can no longer be restored
    3  repack           the needed blobs of sparse packs are written to new packs, with moved records
    4  condemn          the plan's list, and the repacked packs. From here on no writer may begin to use what it names
    5  wait             until every live writer has acknowledged it; writers that can be reached are asked to do so at once, and
                        nobody is waited for if the list is empty. A pin past its lifetime is declared dead, and its volume
                        fenced, so that its owner proves everything anew. The volume of a writer that is gone is
                        fenced, too; what its pin names stays
    6  look again       reads all roots anew, versions put since the plan, and moved records: an object that is needed now
                        is taken off the list. Decided once for each list
    7  delete           versions, then packs
    8  done             records its findings for the next collection; lists that every live writer has acknowledged are removed

A plan has alarms if the store does not show everything that it should. It then stops before step 1,
unless a user has accepted it. The roots that the plan was made from must be seen again in steps 5
and 6.

A collection may be killed at any point and run again: the next one continues it, and repeating a
step has the same outcome. Two collectors at once do not harm each other either: lists are
create-only, and objects are deleted as listed there.

Crash points are named `gc-*`.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace

from cowfs.base import clock
from cowfs.base.errors import ConflictError, InvalidStateError, UnavailableError
from cowfs.base.failpoints import hit
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import PackId, WriteId
from cowfs.format import keys
from cowfs.format.heads import HeadKind
from cowfs.format.record import Holder
from cowfs.format.records import HeadRecord
from cowfs.maintain.collect import alarms
from cowfs.maintain.collect.generations import Condemned, Generation
from cowfs.maintain.collect.planning import MAX_SKEW_S, Listing, Plan, Survey, check_now_ns, is_silent
from cowfs.maintain.collect.roots import FoundPin, is_gone
from cowfs.maintain.collect.sight import show_pins
from cowfs.store import scratch_objects
from cowfs.store.refs import refs
from cowfs.store.refs.leases import EXPIRY_S
from cowfs.version.names.volumes import Head, find_head

PAUSE_S = 2.0
WAIT_S = EXPIRY_S + 10.0
"""Six heartbeats of a mount that answers, and long enough to see that one is silent."""
DELETED_AT_ONCE = 1000
AskWriters = Callable[[Set[str]], bool]
"""Called with the volumes whose writers are waited for: has those that it can reach acknowledge the
list now, not at their next heartbeat. Returns whether any did. It only shortens the wait: what
counts is the writer's own pin."""


@dataclass(frozen=True)
class Outcome:
    """deleted: key and size. waits_for: pins whose owners have not acknowledged the list; nothing
    of it was deleted then. is_ended: False: the next run continues. written_bytes: new packs made
    of sparse ones. closed: volumes that can no longer be restored."""

    deleted: dict[str, int]
    is_ended: bool
    waits_for: tuple[FoundPin, ...] = ()
    written_bytes: int = 0
    closed: tuple[str, ...] = ()


class Collection:
    """survey: made the plan. holder: identifies this collector. wait_s: how long to wait for
    writers. ask: reaches writers without a wait for their heartbeat."""

    def __init__(
        self,
        survey: Survey,
        holder: Holder,
        *,
        wait_s: float = WAIT_S,
        ask: AskWriters = lambda volumes: False,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._survey = survey
        self._store = survey.store
        self._holder = holder
        self._wait_s = wait_s
        self._ask = ask
        self._progress = progress
        self._fenced: set[tuple[int, WriteId]] = set()
        """Generations, and pins whose volumes were fenced after their lists: an earlier fence says
        nothing about a later list."""

    def apply(self, plan: Plan, *, accept_loss: str = "") -> Outcome:
        """Deletes at most the objects of the plan. accept_loss: the id of a plan whose alarms are
        accepted. LeaseHeldError: another process on this machine is collecting. InvalidStateError:
        the plan has alarms that were not accepted, or is not the accepted one."""
        require_accepted(self._store.url, plan, accept_loss)
        check_now_ns(self._store)
        outcome = self._apply(plan)
        self._survey.drop_cached()  # last: until then, mounts can read what was purged
        return outcome

    def _apply(self, plan: Plan) -> Outcome:
        generation = self._survey.generations.begin(self._holder)
        hit("gc-after-begin")
        deleted: dict[str, int] = {}
        self._delete(
            {key: size for key, size in plan.objects.items() if key.startswith(scratch_objects.PREFIX)}, deleted
        )
        if generation.has_list:
            listed = self._survey.generations.load_condemned(generation.number)
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
        """Has live writers acknowledge an empty list, so that a later plan knows which older
        objects they may still rely on. Returns the pins that have not acknowledged it yet."""
        generation = self._survey.generations.begin(self._holder)
        is_old = generation.has_list
        listed = Condemned() if is_old else self._survey.generations.condemn(generation.number, Condemned())
        show_pins(self._store)
        late = self._wait(generation)
        if not (late or is_old or listed):
            self._end(generation, {})
        return tuple(late)

    def look_only(self) -> None:
        """Ends a collection with an empty plan: leaves its findings if they go beyond the last
        one's."""
        self._survey.drop_cached()
        if self._survey.has_news:
            generation = self._survey.generations.begin(self._holder)
            if not generation.has_list:  # otherwise another collector is active
                self._end(generation, {})

    # -- the steps

    def _close_line(self, volume: str, number: int) -> bool:
        """Closes a volume with a `void` head. Of several appends after the newest head one wins, so
        an `undelete` keeps the volume. number: of the newest head when it was planned; a volume
        that was restored and deleted again meanwhile can be restored once more."""
        head = find_head(self._store, volume)
        if head is None or head.number != number:
            return False
        doubts: list[str] = []
        if not (head.is_deleted or (head.version is not None and is_gone(self._store, head.version, doubts))) or doubts:
            return False
        is_closed = self._append(head, "void")
        hit("gc-after-void")
        return is_closed

    def _repack(self, plan: Plan) -> tuple[frozenset[PackId], int]:
        """Returns (packs that may be deleted, bytes written)."""
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
        """Returns (the pins that keep it from continuing, whether it has ended). Deletes everything
        on the list that was not spared, as far as the plan names it. The collection ends when
        nothing of that is left: another collector with these objects in its plan may have sent a
        request to delete them, so no writer may begin to use them before."""
        show_pins(self._store)
        late = self._wait(generation) if listed else self._look_at_pins(generation)
        if late and listed:
            return late, False
        hit("gc-after-wait")
        generations = self._survey.generations
        spared = generations.load_spared(generation.number) if listed else Condemned()
        if spared is None:
            needed = self._survey.list_needed(listed, accepted=plan.alarms)
            spared = generations.spare(generation.number, listed & needed)
            hit("gc-after-spared")
        listed_ns = generations.load_listed_ns(generation.number)
        if spared is None or listed_ns is None:
            return [], True  # another collector has ended it and removed its list
        doomed = listed - spared
        # A copy from another store may have put a moved record of a pack on the list since. Before
        # that, all versions on the list are deleted: a remaining one could be forked without the
        # packs that it needs. Listed anew: a collector that continues another's list may have
        # planned before its objects were put.
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
        self._end(generation, deleted)
        return [], True

    def _end(self, generation: Generation, deleted: dict[str, int]) -> None:
        self._survey.leave(generation, deleted)
        hit("gc-after-done")
        acknowledged = [pin.record.gc_generation for pin in self._survey.roots.pins() if pin.must_acknowledge]
        self._survey.generations.tidy(min(acknowledged, default=generation.number))

    def _wait(self, generation: Generation) -> list[FoundPin]:
        """Waits for acknowledgements. Returns the pins that keep the collection from continuing."""
        end_s = clock.monotonic_s() + self._wait_s
        said = ""
        while True:
            late = self._look_at_pins(generation)
            if late and self._ask({pin.record.volume for pin in late}):
                late = self._look_at_pins(generation)
            if not late or clock.monotonic_s() >= end_s:
                return late
            text = f"waiting for {late[0].record.owner or 'a writer'} of volume {late[0].record.volume}"
            if text != said:
                self._progress(text)
            said = text
            clock.sleep_s(PAUSE_S)

    def _look_at_pins(self, generation: Generation) -> list[FoundPin]:
        """The pins that the collection must still wait for; expired ones are not among them."""
        now_ns = check_now_ns(self._store)
        late: list[FoundPin] = []
        pins = self._survey.roots.pins()
        if not self._survey.roots.are_pins_shown:
            raise UnavailableError(
                f"{self._store.url} does not show the objects below {keys.PINS}",
                hint="Nothing was deleted. Run it again when the whole store is accessible.",
            )
        for pin in pins:
            if pin.record.kind == "dead":
                # The collector that declared it dead may have died before the fence. Times of a
                # store with several servers need not ascend; an extra fence does no harm.
                if pin.mtime_ns >= generation.begun_ns - MAX_SKEW_S * 1e9:
                    self._fence_once(pin, generation)
            elif pin.is_expired(now_ns):
                if not self._declare_dead(pin, generation):
                    late.append(pin)  # renewed at the last moment
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
        if pin.number == 0:  # an old pin has one object for all its records; its owner takes its absence for death
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
            if head is None or head.is_deleted or head.is_void:  # no writer can publish there
                return
            if self._append(head, "fence"):
                return

    def _append(self, head: Head, kind: HeadKind) -> bool:
        """False: another writer has taken this number."""
        version = None if kind == "void" else head.version
        record = HeadRecord(
            kind, version, head.epoch, clock.now_ns(), _write_id(), holder=self._holder, prev=head.check
        )
        try:
            refs.append(self._store, refs.head(head.volume), head.number + 1, record)
        except ConflictError:
            return False
        return True

    def _delete(self, objects: dict[str, int], deleted: dict[str, int], of: Generation | None = None) -> None:
        """Deletes objects, but stops once another collector has ended the collection `of`: a copy
        from another store may have put the same objects again since."""
        left = list(objects)
        for at in range(0, len(left), DELETED_AT_ONCE):
            if of is not None and self._store.size(keys.collection(of.number, "done")) is not None:
                return
            batch = left[at : at + DELETED_AT_ONCE]
            self._store.delete(batch)
            deleted |= {key: objects[key] for key in batch}
            hit("gc-after-some")


def require_accepted(url: str, plan: Plan, accept_loss: str) -> None:
    """InvalidStateError, as for `Collection.apply`."""
    if accept_loss and plan.id != accept_loss:
        what = alarms.join_alarms(plan.alarms) if plan.alarms else "no alarm is left"
        raise InvalidStateError(
            f"plan {accept_loss} is not the current plan, so nothing was deleted: {what}",
            hint=f"Check the alarms again; then {Command('gc', '--accept-loss', plan.id)}."
            if plan.alarms
            else "Leave --accept-loss out.",
            details={"plan_id": plan.id, "alarms": list(plan.alarms)},
        )
    if plan.alarms and not accept_loss:
        raise alarms.refuse(url, plan.alarms, plan.id)


def _write_id() -> WriteId:
    return WriteId(clock.random_bytes(WriteId.length))
