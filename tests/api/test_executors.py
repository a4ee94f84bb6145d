"""Work on whole stores by processes of their own: the same answers as from threads of this one."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from cowfs.api import stores
from cowfs.api.access import file_session
from cowfs.api.upkeep import parts
from cowfs.blocking import RWVolume, Store, Volume
from cowfs.errors import CorruptError, InvalidInputError
from cowfs.format.pack import PackKind
from cowfs.maintain.collect import marking
from cowfs.storage import Storage
from tests.api.conftest import place
from tests.cli.test_gc import age, stored_bytes
from tests.maintain.damage import flip, packs
from tests.object_server import ObjectServer

__all__ = ["place"]


@pytest.fixture
def executor(place: Path) -> Iterator[Executor]:
    """Two processes that know of stores what their environment says."""
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.fixture
def cluster(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    """The same by dask.distributed."""
    import dask
    from distributed import Client, LocalCluster

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "cowfs-tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret-at-all")
    patient = {"distributed.comm.timeouts.connect": "300s", "distributed.comm.timeouts.tcp": "300s"}
    with (
        dask.config.set(patient),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,  # type: ignore[no-untyped-call]
        Client(cluster, timeout=300) as client,  # type: ignore[no-untyped-call]
    ):
        yield client.get_executor()


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PACKS", 2)
    monkeypatch.setattr(parts, "VERSIONS", 2)
    monkeypatch.setattr(marking, "MANY", 2)


def versions(count: int = 6) -> RWVolume:
    data = Volume.new("data")
    for number in range(count):
        data.files.write(f"f{number}", os.urandom(300_000))
        data.files.write("same", os.urandom(10_000))
        data.commit()
    file_session._end_all()
    return data


def test_a_store_is_verified_by_others(executor: Executor, place: Path) -> None:
    versions()
    whole = Store().verify(executor=executor)
    assert whole.is_sound
    assert whole == Store().verify()
    flip(packs(place / "store", PackKind.DATA)[0])
    heard = []
    damaged = Store().verify(executor=executor, progress=lambda progress: heard.append(progress.done))
    assert not damaged.is_sound
    assert damaged == Store().verify()
    assert max(heard) == whole.packs


def test_a_store_is_copied_by_others(executor: Executor, place: Path) -> None:
    versions()
    mirror = (place / "mirror").as_uri()
    first = Store().push("data", mirror, all_versions=True, executor=executor)
    assert first.put_packs > 4
    assert Store(mirror).verify().is_sound
    assert Store().push("data", mirror, all_versions=True, executor=executor).put_packs == 0
    flip(packs(place / "store", PackKind.DATA)[0])
    with pytest.raises(CorruptError):
        Store().push("data", (place / "other").as_uri(), all_versions=True, executor=executor)


def test_what_a_store_needs_is_marked_by_others(executor: Executor, place: Path) -> None:
    data = versions()
    for number in range(4):
        data.files.remove(f"f{number}")
    data.commit()
    file_session._end_all()
    Store().prune(Store().plan_prune("data", last=3))
    age(2 * 3600)
    plan = Store().gc(dry_run=True, executor=executor)
    assert plan == Store().gc(dry_run=True)
    before = stored_bytes()
    done = Store().gc(executor=executor)
    assert done.is_done
    assert before - stored_bytes() == plan.freed_bytes > 0
    assert Store().verify().is_sound


def test_a_cluster_does_the_same(cluster: Executor, place: Path) -> None:
    versions()
    assert Store().verify(executor=cluster) == Store().verify()
    mirror = (place / "mirror").as_uri()
    assert Store().push("data", mirror, executor=cluster).put_packs > 4
    assert Store(mirror).gc(dry_run=True, executor=cluster) == Store(mirror).gc(dry_run=True)
    with ObjectServer() as server:
        for name in "abc":
            server.put(name, name.encode() * 1000)
        version = Store().import_(server.url(), "copy", executor=cluster)
    assert version.files.read("/b") == b"b" * 1000


def test_credentials_do_not_travel(place: Path) -> None:
    versions(2)
    opened = stores.open_store(None)
    storage = Storage("s3://bucket", access_key="a", secret_key="b")
    with ProcessPoolExecutor(1) as pool, pytest.raises(InvalidInputError, match="workers get none"):
        list(parts.Workers(pool).check(replace(opened, storage=storage), []))
