"""Leases: one holder; refusals say who and how to go on; the silent, the dead and the overruled
make room."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from cowfs.base import clock
from cowfs.errors import CorruptError, LeaseHeldError, LeaseLostError, UnavailableError
from cowfs.format import keys
from cowfs.format.records import Holder
from cowfs.machine import proc, processes
from cowfs.store import ObjectStore
from cowfs.store.refs import leases
from cowfs.store.refs.holder import current_holder, is_dead
from tests.faulty_store import Fault, FaultyStore, PagesInstead
from tests.hiding_store import HidingStore
from tests.store.conftest import PatientClock

ELSEWHERE = Holder("ada", "far-away", "/mnt/data", 4711, 99, "another machine", "another boot")


@pytest.fixture
def holder() -> Holder:
    return current_holder("/mnt/here")


def test_life_of_a_lease(store: ObjectStore, holder: Holder) -> None:
    assert leases.read(store, "data") is None
    lease = leases.acquire(store, "data", holder)
    assert (lease.epoch, lease.predecessor, lease.needs_fence) == (1, None, False)
    found = leases.read(store, "data")
    assert found is not None
    assert (found.epoch, found.holder, found.state) == (1, holder, "held")
    assert found.heartbeat_age_s < 60
    lease.renew()
    lease.renew()
    found = leases.read(store, "data")
    assert found is not None
    assert found.state == "held"
    lease.release()
    lease.release()
    lease.renew()  # a late heartbeat must not undo the release
    found = leases.read(store, "data")
    assert found is not None
    assert (found.state, found.heartbeat_age_s) == ("released", 0.0)
    second = leases.acquire(store, "data", holder)
    assert (second.epoch, second.needs_fence) == (2, False)
    second.release()


def test_a_second_writer_is_told_who_where_and_what_to_do(store: ObjectStore, holder: Holder) -> None:
    first = leases.acquire(store, "data", ELSEWHERE)
    first.renew()
    with pytest.raises(LeaseHeldError) as caught:
        leases.acquire(store, "data", holder)
    for part in ("ada", "far-away", "/mnt/data", "4711", "data", "since 20", "ago"):
        assert part in str(caught.value)
    assert "take over" in caught.value.hint
    details = caught.value.details
    assert {name: details[name] for name in ("user", "host", "mount_path", "pid", "epoch")} == {
        "user": "ada",
        "host": "far-away",
        "mount_path": "/mnt/data",
        "pid": 4711,
        "epoch": 1,
    }
    assert details["heartbeat_age_s"] < 60
    first.renew()
    leases.acquire(store, "other", holder).release()
    first.release()


def test_after_a_restart_it_is_said_how_long_to_wait(store: ObjectStore, holder: Holder) -> None:
    """The machine itself, or another one made from the same image: nobody is taken for dead."""
    leases.acquire(store, "data", replace(ELSEWHERE, machine_id=processes.machine_id()))
    with pytest.raises(LeaseHeldError) as caught:
        leases.acquire(store, "data", holder)
    assert "before it was restarted, try again in 1" in caught.value.hint
    assert "take over" in caught.value.hint


def test_take_over_ends_the_first_lease(store: ObjectStore, holder: Holder) -> None:
    first = leases.acquire(store, "data", ELSEWHERE)
    second = leases.acquire(store, "data", holder, take_over=True)
    assert (second.epoch, second.needs_fence) == (2, True)
    assert second.predecessor is not None
    assert second.predecessor.holder == ELSEWHERE
    with pytest.raises(LeaseLostError, match="/mnt/here"):
        first.renew()
    second.renew()
    first_heartbeats = store.list(keys.heartbeat("data", 1))
    assert first_heartbeats == []
    second.release()


def test_a_lease_that_never_fenced_leaves_the_fence_to_its_successor(store: ObjectStore, holder: Holder) -> None:
    """Else the first holder, paused all the while, could publish over the third."""
    leases.acquire(store, "data", ELSEWHERE)
    leases.acquire(store, "data", holder, take_over=True).release()
    third = leases.acquire(store, "data", holder, take_over=True)
    assert third.needs_fence
    third.settle()
    third.release()
    assert not leases.acquire(store, "data", holder).needs_fence


@pytest.mark.quick
def test_a_silent_holder_expires_by_the_stores_clock(directory: ObjectStore, holder: Holder) -> None:
    leases.acquire(directory, "data", ELSEWHERE).renew()
    root = directory.url.removeprefix("file://")
    heartbeat = f"{root}/{keys.heartbeat('data', 1)}"
    now_ns = os.stat(heartbeat).st_mtime_ns

    os.utime(heartbeat, ns=(now_ns, now_ns - int((leases.EXPIRY_S - 30) * 1e9)))
    with pytest.raises(LeaseHeldError):
        leases.acquire(directory, "data", holder)

    os.utime(heartbeat, ns=(now_ns, now_ns - int((leases.EXPIRY_S + 30) * 1e9)))
    found = leases.read(directory, "data")
    assert found is not None
    assert found.state == "expired"
    assert found.heartbeat_age_s > leases.EXPIRY_S
    lease = leases.acquire(directory, "data", holder)
    assert (lease.epoch, lease.needs_fence) == (2, True)


@pytest.mark.quick
@pytest.mark.parametrize("damaged", [b"", b"{}", b"no record"])
def test_a_damaged_heartbeat_protects_its_holder_as_long_as_a_whole_one(
    directory: ObjectStore, holder: Holder, damaged: bytes
) -> None:
    first = leases.acquire(directory, "data", ELSEWHERE)
    first.release()
    key = keys.heartbeat("data", 1)
    heartbeat = f"{directory.url.removeprefix('file://')}/{key}"

    directory.put(key, damaged)
    os.utime(directory.url.removeprefix("file://") + "/" + keys.lease("data", 1), (10**9, 10**9))
    with pytest.raises(LeaseHeldError):
        leases.acquire(directory, "data", holder)

    now_ns = os.stat(heartbeat).st_mtime_ns
    os.utime(heartbeat, ns=(now_ns, now_ns - int((leases.EXPIRY_S + 30) * 1e9)))
    found = leases.read(directory, "data")
    assert found is not None
    assert found.state == "expired"
    lease = leases.acquire(directory, "data", holder)
    assert (lease.epoch, lease.needs_fence) == (2, True), "whether the first was given back is not known"

    directory.put(keys.heartbeat("data", 2), damaged)
    assert leases.acquire(directory, "data", holder, take_over=True).epoch == 3


@pytest.mark.quick
@pytest.mark.parametrize("damaged", [b"", b"{}", b"no record"])
def test_of_a_damaged_lease_the_holder_is_unknown_and_protected_all_the_same(
    directory: ObjectStore, holder: Holder, damaged: bytes
) -> None:
    first = leases.acquire(directory, "data", ELSEWHERE)
    root = directory.url.removeprefix("file://")
    key = keys.lease("data", 1)
    directory.put(key, damaged)
    with pytest.raises(CorruptError) as corrupt:
        leases.check(directory, "data")
    assert corrupt.value.details["key"] == key
    with pytest.raises(LeaseHeldError, match=key) as caught:
        leases.acquire(directory, "data", holder, left_epoch=1)
    assert "Try again in 1" in caught.value.hint
    assert "take over" in caught.value.hint

    now_ns = os.stat(f"{root}/{key}").st_mtime_ns
    os.utime(f"{root}/{key}", ns=(now_ns, now_ns - int((leases.EXPIRY_S + 30) * 1e9)))
    found = leases.read(directory, "data")
    assert found is not None
    assert (found.epoch, found.holder, found.write_id, found.state) == (1, None, None, "expired")
    first.renew()
    with pytest.raises(LeaseHeldError):
        leases.acquire(directory, "data", holder)
    second = leases.acquire(directory, "data", holder, take_over=True)
    assert (second.epoch, second.needs_fence) == (2, True)
    leases.check(directory, "data")

    directory.put(keys.lease("data", 2), damaged)
    with pytest.raises(LeaseLostError, match="somebody"):
        first.renew()
    second.settle()
    second.release()
    assert not leases.acquire(directory, "data", holder).needs_fence, "its heartbeat says that it was given back"


@pytest.mark.quick
def test_a_wrong_local_clock_expires_nobody(
    directory: ObjectStore, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ahead(clock.SystemClock):
        def now_ns(self) -> int:
            return super().now_ns() + 48 * 3600 * 10**9

    leases.acquire(directory, "data", ELSEWHERE).renew()
    monkeypatch.setattr(clock, "current", Ahead())
    with pytest.raises(LeaseHeldError):
        leases.acquire(directory, "data", holder)


@pytest.mark.quick
def test_a_sign_of_life_that_is_still_to_come_proves_nothing(
    directory: ObjectStore, holder: Holder, patient_clock: PatientClock
) -> None:
    """Of a holder whose clock, or the store's, was ahead."""
    first = leases.acquire(directory, "data", replace(ELSEWHERE, mount_path="a process"))
    first.renew()
    heartbeat = f"{directory.url.removeprefix('file://')}/{keys.heartbeat('data', 1)}"
    watch = leases.Watch(directory)

    def look(*, hours: int) -> str:
        at_s = clock.now_ns() // 10**9 + hours * 3600
        os.utime(heartbeat, (at_s, at_s))
        found = watch.read("data", now_ns=clock.now_ns())
        assert found is not None
        return found.state

    assert look(hours=365 * 24) == "held"
    with pytest.raises(LeaseHeldError) as caught:
        leases.acquire(directory, "data", holder)
    assert "ahead of the store's clock" in str(caught.value)
    assert "0 s ago" not in str(caught.value)
    assert "`cowfs mount --take-over`" in caught.value.hint
    patient_clock.sleep_s(leases.EXPIRY_S + 1)
    assert look(hours=2 * 365 * 24) == "held", "it was renewed, by a clock that is still ahead"
    for waited_s, state in ((leases.EXPIRY_S - 10, "held"), (20, "expired")):
        patient_clock.sleep_s(waited_s)
        found = watch.read("data", now_ns=clock.now_ns())
        assert found is not None
        assert found.state == state
    first.renew()
    assert look(hours=0) == "held"
    assert leases.acquire(directory, "data", holder, take_over=True).needs_fence


@pytest.mark.quick
def test_a_dead_process_of_this_machine_makes_room(directory: ObjectStore, holder: Holder) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    gone = current_holder("/mnt/gone", pid=child.pid)
    leases.acquire(directory, "data", gone).renew()
    with pytest.raises(LeaseHeldError):
        leases.acquire(directory, "data", holder)
    child.kill()
    child.communicate()
    found = leases.read(directory, "data")
    assert found is not None
    assert found.state == "dead"
    lease = leases.acquire(directory, "data", holder)
    assert (lease.epoch, lease.needs_fence) == (2, True), "its last put may still be on its way"
    assert lease.predecessor is not None


IN_ANOTHER_CONTAINER = replace(ELSEWHERE, boot_id=processes.boot_id())


@pytest.mark.quick
def test_whoever_has_the_working_copy_of_a_holder_need_not_wait_for_it(directory: ObjectStore, holder: Holder) -> None:
    """As the next container does that gets the state directory of a killed one."""
    leases.acquire(directory, "data", IN_ANOTHER_CONTAINER).renew()
    for stranger in (None, 0, 2):
        with pytest.raises(LeaseHeldError):
            leases.acquire(directory, "data", holder, left_epoch=stranger)
    lease = leases.acquire(directory, "data", holder, left_epoch=1)
    assert (lease.epoch, lease.needs_fence) == (2, True), "its last put may still be on its way"
    assert lease.predecessor is not None
    assert lease.predecessor.state == "dead"


@pytest.mark.quick
def test_a_lease_given_back_needs_no_fence_with_its_working_copy_either(directory: ObjectStore, holder: Holder) -> None:
    leases.acquire(directory, "data", IN_ANOTHER_CONTAINER).release()
    assert not leases.acquire(directory, "data", holder, left_epoch=1).needs_fence


@pytest.mark.quick
def test_a_copy_of_a_working_copy_proves_nothing_about_a_process_that_is_seen(
    directory: ObjectStore, holder: Holder
) -> None:
    leases.acquire(directory, "data", holder).renew()
    with pytest.raises(LeaseHeldError):
        leases.acquire(directory, "data", holder, left_epoch=1)


@pytest.mark.quick
def test_a_working_copy_proves_nothing_about_another_machine(directory: ObjectStore, holder: Holder) -> None:
    """Its directory may be shared, by a file system whose locks do not exclude other machines."""
    leases.acquire(directory, "data", ELSEWHERE).renew()
    with pytest.raises(LeaseHeldError):
        leases.acquire(directory, "data", holder, left_epoch=1)


@pytest.mark.quick
def test_only_processes_of_this_machine_are_judged(holder: Holder) -> None:
    assert not is_dead(holder)
    assert is_dead(replace(holder, start_time=holder.start_time + 2))  # the pid was used again
    assert is_dead(replace(holder, pid=2**22 + 1))
    for elsewhere in (replace(holder, machine_id="x", pid=1), replace(holder, boot_id="x", pid=1)):
        assert not is_dead(elsewhere)


@pytest.mark.quick
def test_a_holder_that_does_not_show_is_not_dead_for_that(holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(processes, "_stat", lambda pid: None)  # another user's, and /proc has hidepid
        assert not is_dead(holder)
        assert is_dead(replace(holder, pid=2**22 + 1))
    monkeypatch.setattr(proc, "is_own", lambda: False)
    assert not is_dead(replace(holder, pid=2**22 + 1))


@pytest.mark.quick
def test_a_lost_reply_does_not_lock_out_its_own_holder(
    directory: ObjectStore, holder: Holder, patient_clock: PatientClock
) -> None:
    faulty = FaultyStore(directory)
    faulty.inject(Fault.LOSE_REPLY, "put_if_absent")
    lease = leases.acquire(faulty, "data", holder)
    assert lease.epoch == 1
    lease.release()


@pytest.mark.quick
def test_a_failed_heartbeat_can_be_tried_again(directory: ObjectStore, holder: Holder) -> None:
    faulty = FaultyStore(directory)
    lease = leases.acquire(faulty, "data", holder)
    for method in ("get", "put"):
        faulty.inject(Fault.FAIL, method)
        with pytest.raises(UnavailableError):
            lease.renew()
        lease.renew()
    lease.release()


@pytest.mark.quick
def test_only_a_lease_ends_the_one_before(directory: ObjectStore, holder: Holder) -> None:
    """A page of something on the way, which says that there is an object, does not."""
    store = PagesInstead(directory, keys.lease("data", 2))
    lease = leases.acquire(store, "data", holder)
    store.times = math.inf
    with pytest.raises(UnavailableError, match="number 2"):
        lease.renew()
    store.times = 1
    lease.renew()
    store.calls.clear()
    lease.renew()
    assert store.calls == [("get", keys.lease("data", 2)), ("put", keys.heartbeat("data", 1))]

    leases.acquire(directory, "data", ELSEWHERE, take_over=True)
    store.times = 1
    with pytest.raises(LeaseLostError, match="ada on far-away"):
        lease.renew()


@pytest.mark.quick
def test_a_process_whose_lease_could_not_be_given_back_does_not_wait_for_itself(
    directory: ObjectStore, holder: Holder
) -> None:
    store = FaultyStore(directory)
    first = leases.acquire(store, "data", holder)
    with pytest.raises(LeaseHeldError):
        leases.acquire(directory, "data", holder)
    store.inject(Fault.FAIL, "put")
    with pytest.raises(UnavailableError):
        first.release()
    second = leases.acquire(directory, "data", holder)
    assert (second.epoch, second.needs_fence) == (2, True), "its last put may be on its way"


def test_a_lease_that_is_listed_and_cannot_be_read_is_not_free(directory: ObjectStore, holder: Holder) -> None:
    leases.acquire(directory, "v", holder).renew()
    hiding = HidingStore(directory)
    listed = hiding.list
    hiding.list = lambda prefix, **options: (listed(prefix, **options), hiding.hidden.add(keys.VOLUMES))[0]  # type: ignore[method-assign,func-returns-value]
    with pytest.raises(UnavailableError, match="cannot be read"):
        leases.acquire(hiding, "v", holder)


def test_scratch_objects_are_deleted(directory: ObjectStore, holder: Holder) -> None:
    leases.acquire(directory, "data", ELSEWHERE)
    leases.read(directory, "data")
    assert directory.list("probe/") == []
