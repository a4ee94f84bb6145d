"""A collection on an S3 server: times of a second, deletions by the thousand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cowfs.base import clock
from cowfs.errors import PurgedError
from cowfs.maintain.collect import planning
from cowfs.maintain.purge.target import Target
from cowfs.store import ObjectStore, initialize, open_store, scratch_objects
from tests.maintain.stores import collect, commit, fork, prune, random_bytes, stored, survey, tree
from tests.maintain.test_purging import SECRET, decoded, purge, read
from tests.simulation.roots import closure

pytestmark = pytest.mark.s3


@pytest.fixture
def store(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    opened = open_store(s3["COWFS_STORE"], create=True)
    initialize(opened)
    yield opened
    opened.close()


def test_what_is_pruned_goes(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = [commit(store, "v", tmp_path, {b"f": random_bytes(n)}) for n in range(3)]
    fork(store, "v", "f", versions[0])
    prune(store, "v", 2, 3)
    assert survey(store, tmp_path)[1].objects == {}, "too young"
    monkeypatch.setattr(planning, "HOUR_NS", -(10**9))
    put_ns = scratch_objects.store_now_ns(store)
    while (
        scratch_objects.store_now_ns(store) == put_ns
    ):  # what was put in the second in which a collection begins stays
        clock.sleep_s(0.1)
    _, plan = survey(store, tmp_path)
    outcome = collect(store, tmp_path)
    assert outcome.deleted == dict(plan.objects)
    needed = [closure(store, version, tmp_path / "closures") for version in (versions[0], versions[2])]
    assert stored(store).keys() == set().union(*needed)
    assert tree(store, versions[0], tmp_path) == {b"f": random_bytes(0)}
    assert not collect(store, tmp_path).deleted


def test_what_is_purged_goes_at_once(store: ObjectStore, tmp_path: Path) -> None:
    """Whatever its age."""
    commit(store, "v", tmp_path, {b"secret": SECRET, b"a": random_bytes(1)})
    fork(store, "v", "w")
    version = commit(store, "w", tmp_path, {b"b": random_bytes(2)})
    other = commit(store, "x", tmp_path, {b"c": random_bytes(3)})
    assert SECRET in decoded(store)
    assert purge(store, tmp_path, Target("v", path=b"secret")).is_done
    assert SECRET not in decoded(store)
    assert tree(store, other, tmp_path) == {b"c": random_bytes(3)}
    assert read(store, version, tmp_path, b"a") == random_bytes(1)
    assert read(store, version, tmp_path, b"b") == random_bytes(2)
    with pytest.raises(PurgedError):
        read(store, version, tmp_path, b"secret")
    assert purge(store, tmp_path, Target("v")).is_done
    with pytest.raises(PurgedError):
        read(store, version, tmp_path, b"a")
    assert tree(store, other, tmp_path) == {b"c": random_bytes(3)}
