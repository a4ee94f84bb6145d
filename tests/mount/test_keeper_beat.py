"""One heartbeat of a writable mount against a store on which collections have run."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cowfs import store as stores
from cowfs.base import clock
from cowfs.base.ids import PackId, WriteId
from cowfs.errors import UnavailableError
from cowfs.format import keys
from cowfs.format.records import CondemnedRecord
from cowfs.session.keeper import Keeper
from cowfs.session.session import Session
from cowfs.store import ObjectStore
from cowfs.store.refs.leases import HEARTBEAT_S
from cowfs.store.refs.pins import Pin
from tests.store.test_pins import declare_dead
from tests.version.working_volume import ReadingVolume, WorkingVolume

NEW = os.urandom(3 << 20)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return stores.open_store((tmp_path / "store").as_uri(), create=True)


class Beating:
    """The keeper of a volume that is written without FUSE; `noted` are the pins its working copy
    was told of."""

    def __init__(self, volume: WorkingVolume) -> None:
        self.noted: list[str] = []
        volume.publisher._protection._record_pin = self.noted.append
        lease = SimpleNamespace(renew=lambda: None, epoch=1)
        self.writer: Any = SimpleNamespace(
            lease=lease,
            committer=volume.committer,
            protection=volume.publisher._protection,
            lease_lost=None,
        )
        engine = SimpleNamespace(is_dirty=lambda: True, is_broken=lambda: False)
        self.keeper = Keeper(cast("Session", SimpleNamespace(writer=self.writer, store=volume.store, engine=engine)))

    def beat(self) -> None:
        assert self.keeper._beat()


def condemn_data_packs(store: ObjectStore) -> set[PackId]:
    doomed = {PackId.from_hex(info.key[-32:]) for info in store.list("packs/") if info.size > 1 << 20}
    assert doomed
    record = CondemnedRecord(1, tuple(sorted(doomed)), 1, WriteId(bytes(WriteId.length)))
    store.put(keys.condemnation(1), record.encode())
    return doomed


def test_a_beat_lets_go_of_what_was_condemned(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "other", tmp_path / "other") as volume:
        volume.write(b"f", NEW)
        volume.commit()
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.publisher.chunks._known.wait_loaded()
        doomed = condemn_data_packs(store)
        Beating(volume).beat()
        assert volume.publisher._protection.pin.generation == 1, "the collection need not wait for a commit"
        volume.write(b"f", NEW)
        base = volume.commit()
    assert base.version_id is not None
    store.delete([keys.pack(pack) for pack in doomed])
    with ReadingVolume(store, base.version_id, tmp_path / "r") as reader:
        assert reader.tree() == {b"f": NEW}


def test_a_collected_pin_is_made_anew_and_noted(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "other", tmp_path / "other") as volume:
        volume.write(b"f", NEW)
        volume.commit()
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"f", NEW)
        volume.committer.upload_quiet(idle_s=0)
        doomed = condemn_data_packs(store)
        beating = Beating(volume)
        old = volume.publisher._protection.pin
        declare_dead(store, old)
        beating.beat()
        found = volume.publisher._protection.pin
        assert found.key != old.key
        assert beating.noted == [found.key]
        assert Pin.resume(store, found.key) is not None
        base = volume.commit()
    assert base.version_id is not None
    store.delete([keys.pack(pack) for pack in doomed])
    with ReadingVolume(store, base.version_id, tmp_path / "r") as reader:
        assert reader.tree() == {b"f": NEW}


@pytest.mark.parametrize(
    ("is_dirty", "fails", "has_acknowledged", "beats"),
    [(False, False, True, 3), (True, False, True, 9), (False, True, True, 7), (False, False, False, 9)],
)
def test_a_mount_with_nothing_uncommitted_renews_its_lease_once_a_minute(
    is_dirty: bool, fails: bool, has_acknowledged: bool, beats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In three minutes. One whose lease could not be renewed goes on trying, and so does one that a
    collection may be waiting for."""
    now_s, renewed = 100.0, 0

    def renew() -> None:
        nonlocal renewed
        renewed += 1
        if fails:
            raise UnavailableError("the store does not answer", hint="")

    monkeypatch.setattr(clock, "monotonic_s", lambda: now_s)
    lease, committer = SimpleNamespace(renew=renew), SimpleNamespace(acknowledge_collections=lambda: None)
    protection = SimpleNamespace(has_acknowledged=has_acknowledged)
    writer = SimpleNamespace(lease=lease, committer=committer, protection=protection, lease_lost=None)
    engine = SimpleNamespace(is_dirty=lambda: is_dirty, is_broken=lambda: False)
    keeper = Keeper(cast("Session", SimpleNamespace(writer=writer, engine=engine)))
    for _ in range(int(180 / HEARTBEAT_S)):
        now_s += HEARTBEAT_S
        assert keeper._beat()
    assert renewed == beats
