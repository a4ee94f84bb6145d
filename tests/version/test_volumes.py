"""Volumes are claimed whole or not at all, from versions that exist."""

from __future__ import annotations

import math

import pytest

from cowfs.errors import NotFoundError
from cowfs.format import keys
from cowfs.format.records import HeadRecord
from cowfs.ids import VersionId, WriteId
from cowfs.store import ObjectStore, refs
from cowfs.version.volumes import create_volume, find_head, fork_volume, locator, read_head
from tests.faulty_store import Fault, FaultyStore

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("impatient")]


def test_a_volume_whose_record_cannot_be_written_is_made(store: ObjectStore) -> None:
    faulty = FaultyStore(store)
    faulty.inject(Fault.FAIL, "put_if_absent", key_part="/meta/", times=math.inf)
    assert create_volume(faulty, "v").number == 1
    assert read_head(store, "v").version is None


def test_a_version_that_does_not_exist_is_not_forked(store: ObjectStore) -> None:
    with pytest.raises(NotFoundError, match="has no version") as caught:
        fork_volume(store, "f", locator(store, "gone", VersionId(bytes(32))))
    assert caught.value.hint
    assert find_head(store, "f") is None


def test_a_fork_asks_for_what_keeps_its_version_and_no_more(store: ObjectStore) -> None:
    version = VersionId(bytes(32))
    store.put(keys.version(version), b"a manifest")
    counting = FaultyStore(store)
    fork_volume(counting, "f", locator(store, "v", version))
    asked = [(method, key.split("/")[0]) for method, key in counting.calls]
    assert asked[:4] == [("put_if_absent", "pins"), ("list", "gc"), ("size", "versions"), ("put_if_absent", "volumes")]
    beside = [("delete", "pins"), ("put_if_absent", "volumes"), ("size", "pins")]
    assert sorted(asked[4:]) == beside, "beside one another"
    assert store.list(keys.PINS) == []


def test_a_void_volume_is_no_volume(store: ObjectStore) -> None:
    create_volume(store, "v")
    refs.append(store, refs.head("v"), 2, HeadRecord("void", None, 0, 1, WriteId(bytes(16))))
    with pytest.raises(NotFoundError, match="being deleted"):
        read_head(store, "v")
