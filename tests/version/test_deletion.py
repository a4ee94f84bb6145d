"""Deleting a volume is one head of its line, and so is bringing it back."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from cowfs.base.ids import WriteId
from cowfs.errors import ConflictError, LeaseHeldError, LeaseLostError, NotFoundError
from cowfs.format.records import HeadRecord
from cowfs.store import ObjectStore
from cowfs.store.contract import Data
from cowfs.store.refs import leases, refs
from cowfs.store.refs.holder import current_holder
from cowfs.version.history import open_named
from cowfs.version.names.deletion import delete_volume, undelete_volume
from cowfs.version.names.source_names import resolve_name
from cowfs.version.names.volumes import create_volume, find_head, fork_volume, locator, read_head
from cowfs.version.publish.heads import is_only_fenced, settle_head
from tests.faulty_store import Fault, FaultyStore
from tests.version.working_volume import WorkingVolume

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("impatient")]

ME = current_holder("a test")


def committed(store: ObjectStore, tmp_path: Path) -> WorkingVolume:
    volume = WorkingVolume(store, "v", tmp_path / "v")
    volume.write(b"f", b"kept")
    volume.commit()
    return volume


def test_a_deleted_volume_is_none_and_comes_back_whole(store: ObjectStore, tmp_path: Path) -> None:
    committed(store, tmp_path).close()
    before = read_head(store, "v")
    assert before.version is not None
    fork_volume(store, "fork", locator(store, "v", before.version))

    delete_volume(store, "v", ME)
    with pytest.raises(NotFoundError, match="was deleted") as caught:
        read_head(store, "v")
    assert "undelete" in caught.value.hint
    with pytest.raises(NotFoundError, match="was deleted"):
        resolve_name(store, "v", None)
    with pytest.raises(NotFoundError, match="was deleted"):
        delete_volume(store, "v", ME)
    with pytest.raises(ConflictError, match="keeps a volume 'v' that was deleted"):
        create_volume(store, "v")
    assert read_head(store, "fork").version == before.version
    assert open_named(store, "v", before.version).volume == "v", "locators lead there still"

    assert undelete_volume(store, "v")
    again = read_head(store, "v")
    assert again.version == before.version
    assert not undelete_volume(store, "v")
    assert read_head(store, "v") == again, "twice is once"
    assert is_only_fenced(store, "v", before.number, read_head(store, "v")), "work made on it goes on"


def test_a_volume_without_versions_is_deleted_too(store: ObjectStore) -> None:
    create_volume(store, "v")
    delete_volume(store, "v", ME)
    assert undelete_volume(store, "v")
    assert read_head(store, "v").version is None
    with pytest.raises(NotFoundError, match="no volume"):
        undelete_volume(store, "never")


def test_a_volume_that_somebody_writes_to_is_deleted_by_force_only(store: ObjectStore, tmp_path: Path) -> None:
    create_volume(store, "v")
    lease = leases.acquire(store, "v", ME)
    with pytest.raises(LeaseHeldError):
        delete_volume(store, "v", ME)
    assert read_head(store, "v").number == 1
    delete_volume(store, "v", ME, take_over=True)
    with pytest.raises(LeaseLostError):
        lease.renew()
    with pytest.raises(NotFoundError, match="was deleted"):
        settle_head(store, "v", epoch=lease.epoch, intent=None, needs_fence=True)
    head = find_head(store, "v")
    assert head is not None
    assert head.is_deleted, "a fence would have brought it back"


@pytest.mark.parametrize("is_for_good", [False, True])
def test_a_writer_of_a_deleted_volume_publishes_nothing_and_loses_nothing(
    store: ObjectStore, tmp_path: Path, is_for_good: bool
) -> None:
    volume = committed(store, tmp_path)
    volume.write(b"f", b"newer")
    delete_volume(store, "v", ME, take_over=True)
    if is_for_good:
        last = find_head(store, "v")
        assert last is not None
        refs.append(store, refs.head("v"), last.number + 1, HeadRecord("void", None, 0, 1, WriteId(bytes(16))))
    with pytest.raises(LeaseLostError, match="gone for good" if is_for_good else "was deleted") as caught:
        volume.commit()
    assert ("undelete" in caught.value.hint) != is_for_good
    assert volume.read(b"f") == b"newer"
    assert volume.engine.is_dirty()
    volume.close()


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.FAIL])
def test_whatever_becomes_of_a_request_there_is_one_answer(store: ObjectStore, fault: Fault) -> None:
    create_volume(store, "v")
    faulty = FaultyStore(store)
    faulty.inject(fault, "put_if_absent", key_part="/head/", times=1)
    delete_volume(faulty, "v", ME)
    head = find_head(store, "v")
    assert head is not None
    assert (head.number, head.is_deleted) == (2, True)
    faulty.inject(fault, "put_if_absent", key_part="/head/", times=1)
    undelete_volume(faulty, "v")
    assert read_head(store, "v").number == 3
    lease = leases.read(store, "v")
    assert lease is not None
    assert lease.state == "released"


def test_a_deletion_is_done_although_its_lease_cannot_be_given_back(store: ObjectStore) -> None:
    create_volume(store, "v")
    faulty = FaultyStore(store)
    faulty.inject(Fault.FAIL, "put", key_part="/heartbeat/", times=math.inf)
    delete_volume(faulty, "v", ME)
    head = find_head(store, "v")
    assert head is not None
    assert head.is_deleted


def test_a_late_put_of_a_dead_writer_does_not_come_behind(store: ObjectStore, tmp_path: Path) -> None:
    """A writer that took over while the volume was being deleted has fenced first: nothing is
    deleted."""
    create_volume(store, "v")

    class Overtaken(FaultyStore):
        def put_if_absent(self, key: str, data: Data) -> None:
            if "/head/" in key and not taken:
                taken.append(leases.acquire(store, "v", ME, take_over=True))
                settle_head(store, "v", epoch=taken[0].epoch, intent=None, needs_fence=True)
            super().put_if_absent(key, data)

    taken: list[leases.Lease] = []
    with pytest.raises(LeaseLostError, match="taken volume 'v' over"):
        delete_volume(Overtaken(store), "v", ME)
    assert read_head(store, "v").epoch == taken[0].epoch
    assert not [record for _, record in refs.history(store, refs.head("v")) if record.kind == "delete"]
