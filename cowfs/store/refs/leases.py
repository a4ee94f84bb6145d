"""Leases: the claim that makes a mount its volume's single writer, across machines.

    volumes/<name>/lease/<epoch>        its owner and time; create-only, so that one of many wins each epoch
    volumes/<name>/heartbeat/<epoch>    replaced by the holder every HEARTBEAT_S; says `released` at the end

                     ┌──── a newer epoch exists ──▶ lost
    acquire ──▶ held ┼──── release ──▶ released ─┐
                     ├──── silent for EXPIRY_S ──▶ expired ─┼──▶ any process may acquire epoch + 1
                     └──── holder known to be gone ──▶ dead ─┘

A lease is for people: it says who writes and keeps a second writer from starting work it would
lose. It protects nothing by itself (a paused holder wakes up and goes on); safety is in the
create-only head, and in the fence head that a take-over appends.

A holder is known to be gone in three cases. Its process would be visible here and is not. It was
this process, which could not give the lease back. Or the caller proves it by its working copy: a
writer keeps it locked as long as it lives, so a process that now has the lock and finds the epoch
of the lease in the working copy is the successor of a dead process. For a process of another
container only the last case applies.

Ages are measured by the store's clock alone: the last heartbeat's mtime against the mtime of a
scratch object written just now. Clocks of machines may differ by hours. If a store gives no mtimes,
the local clock and the holder's stand in. The mtime of a damaged heartbeat counts as well, but
nothing else of it: it protects its holder, which replaces it soon, and does not lock out other
writers. The key of a damaged lease still gives its epoch, but not its holder: it ends as any other
lease does, except that its holder cannot be proved gone.

A heartbeat whose mtime is ahead of the store's time has an unknown age: a clock was ahead, and was
put right, or still is. Its holder counts as alive; the refusal gives the known facts and how to
take over. A caller that can look repeatedly (`Watch`) learns the truth: a holder that has not
replaced it for EXPIRY_S of the caller's own time is silent.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from cowfs.base import clock
from cowfs.base.errors import (
    ConflictError,
    CorruptError,
    LeaseHeldError,
    LeaseLostError,
    NotFoundError,
    UnavailableError,
)
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import WriteId
from cowfs.base.quantities import format_time
from cowfs.format import keys
from cowfs.format.records import HeartbeatRecord, Holder, LeaseRecord
from cowfs.store.contract import ObjectStore
from cowfs.store.refs import refs
from cowfs.store.refs.beside import beside
from cowfs.store.refs.holder import is_dead, is_in_another_container, is_of_earlier_boot
from cowfs.store.reliability.damaged import read_as
from cowfs.store.scratch_objects import store_now_ns

EXPIRY_S = 120.0
HEARTBEAT_S = 20.0

_given_back: set[WriteId] = set()
"""Leases that this process has given back without reaching the store."""

LeaseState = Literal["held", "released", "expired", "dead"]


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """heartbeat_age_s: since the last sign of life, by the store's clock; 0 for a released lease;
    below 0 its time is still to come. heard_ns: that time, which changes with each. write_id: by
    which pins name it. holder, write_id None: its record is damaged; since_ns is then heard_ns."""

    epoch: int
    holder: Holder | None
    since_ns: int
    heartbeat_age_s: float
    state: LeaseState
    write_id: WriteId | None
    heard_ns: int


class Lease:
    """A lease this process holds. `renew` every HEARTBEAT_S seconds; any thread may call.

    predecessor: the unreleased lease this one replaced. needs_fence: there is one, so a fence head
    must be appended before anything else (`cowfs.version.publish.heads`), then `settle` called.
    Its holder may be alive; if it is dead, its last put may still be on its way, and it may itself
    have died before it fenced off the writer before it.
    """

    def __init__(self, store: ObjectStore, volume: str, record: LeaseRecord, predecessor: LeaseInfo | None) -> None:
        self._store = store
        self._record = record
        self._beat = 0
        self._ended = False
        self._is_settled = predecessor is None
        self._lock = threading.Lock()  # one heartbeat at a time: an old one must not overwrite `released`
        self.volume = volume
        self.epoch = record.epoch
        self.predecessor = predecessor

    @property
    def needs_fence(self) -> bool:
        return self.predecessor is not None

    def settle(self) -> None:
        """The fence is in the line: a successor after a release of this lease needs none."""
        self._is_settled = True

    def renew(self) -> None:
        """Writes a heartbeat. LeaseLostError when a newer epoch exists; UnavailableError is worth
        another try."""
        with self._lock:
            if self._ended:
                return
            if refs.is_there(self._store, refs.lease(self.volume), self.epoch + 1):
                raise self._lease_lost()
            self._write_heartbeat(released=False)

    def release(self) -> None:
        """Gives the lease back; without effect on a lost or released lease.

        A lease that needed a fence and was not settled is left to expire: the next writer must
        fence off the predecessor.
        """
        if not self._ended:
            _given_back.add(self._record.write_id)  # at once: a heartbeat may be under way for long
        with self._lock:
            if not self._ended:
                if self._is_settled:
                    self._write_heartbeat(released=True)
                    _given_back.discard(self._record.write_id)
                self._ended = True

    def _write_heartbeat(self, *, released: bool) -> None:
        self._beat += 1
        record = HeartbeatRecord(epoch=self.epoch, beat=self._beat, at_ns=clock.now_ns(), released=released)
        self._store.put(keys.heartbeat(self.volume, self.epoch), record.encode())

    def _lease_lost(self) -> LeaseLostError:
        found = _newest_from(self._store, self.volume, self.epoch + 1)
        who = _describe(found.record.holder) if found and found.record else "somebody"
        return LeaseLostError(
            f"volume {self.volume} is now being written by {who}; this writer (epoch {self.epoch}) can no longer publish",
            hint="The work is kept: fork it under another name.",
            details={"epoch": self.epoch, "newer_epoch": found.epoch if found else self.epoch + 1},
        )


@dataclass(frozen=True, slots=True)
class Vacancy:
    """An epoch without an owner, as far as was seen. predecessor: the lease before it, unless that
    was given back."""

    epoch: int
    predecessor: LeaseInfo | None


def find_vacancy(
    store: ObjectStore,
    volume: str,
    *,
    take_over: bool = False,
    left_epoch: int | None = None,
    seen: int | None = None,
) -> Vacancy:
    """What `take` may try to take. LeaseHeldError: as of `acquire`.

    left_epoch: as of `acquire`. seen: an epoch that was taken, the highest that is known; 0: there
    was none a moment ago; None: a list is asked for. Two requests in a row where that lease was
    given back.
    """
    ref = refs.lease(volume)
    listed = refs.newest_listed(store, ref) if seen is None else seen
    # A holder never renews a lease that it has given back. So only a later epoch could be in the way,
    # and the put meets that.
    if listed < refs.FIRST or _is_released(store, volume, listed):
        return Vacancy(listed + 1, None)
    predecessor = _judge_from(store, volume, listed)
    if predecessor.epoch == left_epoch and predecessor.state == "held" and predecessor.holder is not None:
        state: LeaseState = "dead" if is_in_another_container(predecessor.holder) else "held"
        predecessor = replace(predecessor, state=state)
    if predecessor.state == "held" and not take_over:
        raise _lease_held(volume, predecessor)
    return Vacancy(predecessor.epoch + 1, predecessor if predecessor.state != "released" else None)


def take(store: ObjectStore, volume: str, vacancy: Vacancy, holder: Holder, write_id: WriteId) -> Lease:
    """The vacant epoch; of any number of callers exactly one gets it, the others a ConflictError.
    write_id: random, and the caller's alone."""
    record = LeaseRecord(epoch=vacancy.epoch, holder=holder, since_ns=clock.now_ns(), write_id=write_id)
    refs.append(store, refs.lease(volume), record.epoch, record)
    return Lease(store, volume, record, vacancy.predecessor)


def acquire(
    store: ObjectStore, volume: str, holder: Holder, *, take_over: bool = False, left_epoch: int | None = None
) -> Lease:
    """Takes epoch + 1; of any number of callers exactly one gets it.

    left_epoch: of the last lease taken with the working copy that the caller has locked. If its
    holder ran in another container under this kernel, it is dead. Of another machine that is not
    known: the lock may not exclude it.

    LeaseHeldError while another holds it, or got it first (details: who, where and since when for
    people, as the lock of a working copy has them; user, host, mount_path, pid, since_ns,
    heartbeat_age_s, epoch).
    """
    write_id = WriteId(clock.random_bytes(WriteId.length))
    vacancy = find_vacancy(store, volume, take_over=take_over, left_epoch=left_epoch)
    while True:
        try:
            return take(store, volume, vacancy, holder, write_id)
        except ConflictError:  # one of the processes that came together has it, and is not taken over
            vacancy = find_vacancy(store, volume, seen=vacancy.epoch)


def read(store: ObjectStore, volume: str, *, now_ns: int | None = None) -> LeaseInfo | None:
    """The newest lease of the volume, None if there never was one. now_ns: what counts as the
    store's time, so that nothing is written to learn it."""
    ref = refs.lease(volume)
    listed = refs.newest_listed(store, ref)
    if listed < refs.FIRST and (found := _newest_from(store, volume, refs.FIRST)) is not None:
        listed = found.epoch
    if listed < refs.FIRST:
        return None
    return _judge_from(store, volume, listed, now_ns=now_ns)


def check(store: ObjectStore, volume: str) -> None:
    """CorruptError: the newest lease of the volume is damaged (details: key). Older ones are never
    read."""
    refs.newest(store, refs.lease(volume))


class Watch:
    """Looks at leases repeatedly, from one thread: a holder without a sign of life for EXPIRY_S
    meanwhile has expired, whatever time its last heartbeat has."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._signs: dict[str, tuple[tuple[int, int], float]] = {}

    def read(self, volume: str, *, now_ns: int | None = None) -> LeaseInfo | None:
        """As `read`."""
        began_s = clock.monotonic_s()
        lease = read(self._store, volume, now_ns=now_ns)
        if lease is None or lease.state != "held":
            return lease
        sign = (lease.epoch, lease.heard_ns)
        known, since_s = self._signs.get(volume, (None, 0.0))
        if known != sign:
            self._signs[volume] = (sign, clock.monotonic_s())
        elif began_s - since_s > EXPIRY_S:
            return replace(lease, state="expired")
        return lease


@dataclass(frozen=True, slots=True)
class _Taken:
    """An epoch with an owner. record None: it is damaged."""

    epoch: int
    record: LeaseRecord | None


def _read_epoch(store: ObjectStore, volume: str, epoch: int) -> _Taken | None:
    try:
        return _Taken(epoch, refs.read(store, refs.lease(volume), epoch))
    except NotFoundError:
        return None
    except CorruptError:
        return _Taken(epoch, None)


def _newest_from(store: ObjectStore, volume: str, epoch: int) -> _Taken | None:
    """The newest epoch that was taken; None: not even `epoch` was."""
    found, following = beside(
        partial(_read_epoch, store, volume, epoch), partial(_read_epoch, store, volume, epoch + 1)
    )
    while following is not None:
        found, following = following, _read_epoch(store, volume, following.epoch + 1)
    return found


def _judge_from(store: ObjectStore, volume: str, epoch: int, *, now_ns: int | None = None) -> LeaseInfo:
    """The newest lease, read beside the heartbeat of `epoch`, which was taken."""
    taken, heartbeat = beside(partial(_newest_from, store, volume, epoch), partial(read_beat, store, volume, epoch))
    if taken is None:
        raise UnavailableError(
            f"{store.url}: the lease {epoch} of volume {volume} is in the list, and cannot be read",
            hint="Try again; nothing is lost.",
        )
    if taken.epoch != epoch:
        heartbeat = read_beat(store, volume, taken.epoch)
    return _judge(store, volume, taken, heartbeat, now_ns=now_ns)


def _is_released(store: ObjectStore, volume: str, epoch: int) -> bool:
    heartbeat = read_beat(store, volume, epoch)
    return heartbeat is not None and heartbeat.released


def read_beat(store: ObjectStore, volume: str, epoch: int) -> HeartbeatRecord | None:
    """A heartbeat; if it cannot be read, only its existence is known."""
    try:
        return read_as(store, keys.heartbeat(volume, epoch), partial(heartbeat_of, volume, epoch))
    except NotFoundError:
        return None
    except CorruptError:
        return HeartbeatRecord(epoch=epoch, beat=0, at_ns=0, released=False)


def heartbeat_of(volume: str, epoch: int, data: bytes) -> HeartbeatRecord:
    """CorruptError: it is damaged, or another one."""
    what = f"the heartbeat of volume {volume}, epoch {epoch}"
    found = HeartbeatRecord.decode(data, what=what)
    if found.epoch != epoch:
        raise CorruptError(f"{what} says it is of epoch {found.epoch}")
    return found


def _judge(
    store: ObjectStore,
    volume: str,
    taken: _Taken,
    heartbeat: HeartbeatRecord | None,
    *,
    now_ns: int | None = None,
) -> LeaseInfo:
    epoch, record = taken.epoch, taken.record

    def info(state: LeaseState, age_s: float, heard_ns: int) -> LeaseInfo:
        if record is None:
            return LeaseInfo(epoch, None, heard_ns, age_s, state, None, heard_ns)
        return LeaseInfo(epoch, record.holder, record.since_ns, age_s, state, record.write_id, heard_ns)

    if heartbeat and heartbeat.released:
        return info("released", 0.0, heartbeat.at_ns)
    seen_key = keys.heartbeat(volume, epoch) if heartbeat else keys.lease(volume, epoch)
    seen_ns = next((found.mtime_ns for found in store.list(seen_key, limit=1) if found.key == seen_key), 0)
    if now_ns is None:
        now_ns = store_now_ns(store) if seen_ns else clock.now_ns()
    said_ns = max(heartbeat.at_ns if heartbeat else 0, record.since_ns if record else 0)
    heard_ns = seen_ns or said_ns or now_ns  # nothing at all is known of a damaged one where there are no times
    age_s = (now_ns - heard_ns) / 1e9
    if record is not None and (record.write_id in _given_back or is_dead(record.holder)):
        return info("dead", age_s, heard_ns)
    return info("expired" if age_s > EXPIRY_S else "held", age_s, heard_ns)


def _lease_held(volume: str, lease: LeaseInfo) -> LeaseHeldError:
    holder = lease.holder
    since = datetime.fromtimestamp(lease.since_ns / 1e9, UTC)
    is_mount = holder is not None and holder.mount_path.startswith("/")
    is_ahead = lease.heartbeat_age_s < -EXPIRY_S
    left_s = max(EXPIRY_S - lease.heartbeat_age_s, 1)
    heard = f"last heartbeat {max(lease.heartbeat_age_s, 0):.0f} s ago"
    if is_ahead:
        heard = f"with a last sign of life whose time is {-lease.heartbeat_age_s:.0f} s ahead of the store's clock"
        hint = (
            "A clock was ahead, so the age of that heartbeat is unknown. If it still runs, wait until it ends, or fork the "
            f"volume. If it does not, take over by a mount here (take_over=True, {Command('mount', '--take-over')}), and unmount that "
            "for anything else. Its work stays on its machine."
        )
    elif holder is None:
        hint = (
            f"Try again in {left_s:.0f} s: if there is no writer, the lease has expired then. Or take over by a mount here "
            f"(take_over=True, {Command('mount', '--take-over')}): the writer there can then publish nothing more; its work stays "
            "on its machine. The next lease takes the place of the damaged one."
        )
    elif is_of_earlier_boot(holder):
        hint = (
            f"If that was this machine before it was restarted, try again in {left_s:.0f} s, when its lease has "
            f"expired, or take over now (take_over=True, {Command('mount', '--take-over')}): the work that is kept here goes on."
        )
    elif is_mount:
        hint = (
            f"Unmount it there, fork the volume, or take over by a mount here (take_over=True, {Command('mount', '--take-over')}): "
            "the other mount can then publish nothing more; its work stays on its machine, that of a scratch until it ends."
        )
    else:
        hint = (
            "A copy, a commit or a program that uses vol.files is at work there. Wait until it ends and try again, or fork "
            "the volume."
        )
    known = {"since_ns": lease.since_ns, "heartbeat_age_s": round(lease.heartbeat_age_s, 3), "epoch": lease.epoch}
    if holder is None:
        return LeaseHeldError(
            f"another process may be writing volume {volume}: the record of its lease ({keys.lease(volume, lease.epoch)}) is "
            f"damaged and does not say who, {heard}",
            hint=hint,
            details={"who": "an unknown writer", "where": "", "since": f"{since:%Y-%m-%d %H:%M:%S} UTC", **known},
        )
    return LeaseHeldError(
        f"volume {volume} is being written by {_describe(holder)} since {format_time(lease.since_ns, to_the_second=True)}, {heard}",
        hint=hint,
        details={
            "who": f"{holder.user}@{holder.host}",
            "where": holder.mount_path,
            "since": f"{since:%Y-%m-%d %H:%M:%S} UTC",
            "user": holder.user,
            "host": holder.host,
            "mount_path": holder.mount_path,
            "pid": holder.pid,
            **known,
        },
    )


def _describe(holder: Holder) -> str:
    return f"{holder.user} on {holder.host} at {holder.mount_path} (pid {holder.pid})"
