"""Volumes are claimed whole or not at all, from versions that exist."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from cowfs.base.ids import VersionId, WriteId
from cowfs.errors import AccessDeniedError, ConflictError, CorruptError, CowfsError, NotFoundError, UnavailableError
from cowfs.format import keys
from cowfs.format.records import HeadRecord
from cowfs.machine.known_stores import KnownStore
from cowfs.store import ObjectStore
from cowfs.store.contract import Data
from cowfs.store.refs import refs
from cowfs.version.names.volumes import create_volume, find_head, fork_volume, locator, read_head, require_free
from tests.faulty_store import Fault, FaultyStore, PagesInstead

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
    beside = [("delete", "pins"), ("get", "pins"), ("put_if_absent", "volumes")]
    assert sorted(asked[4:]) == beside, "beside one another"
    assert store.list(keys.PINS) == []


def test_a_new_volume_costs_a_list_and_two_objects(store: ObjectStore) -> None:
    counting = FaultyStore(store)
    create_volume(counting, "v")
    assert [method for method, _ in counting.calls] == ["list", "put_if_absent", "put_if_absent"]
    with pytest.raises(ConflictError, match="already"):
        create_volume(store, "v")


def test_the_name_of_a_volume_that_has_lost_its_heads_is_refused(store: ObjectStore) -> None:
    create_volume(store, "v")
    lost = keys.head("v", 1)
    head = store.get(lost)
    store.delete([lost])
    refused: list[Callable[[], object]] = [
        lambda: create_volume(store, "v"),
        lambda: read_head(store, "v"),
    ]
    for call in refused:
        with pytest.raises(CorruptError, match="is missing") as caught:
            call()
        assert "from a backup" in caught.value.hint
        assert "volumes/v/ in the store by hand" in caught.value.hint
        assert caught.value.details["key"] == lost
    store.put(lost, head)
    assert read_head(store, "v").number == 1
    for info in store.list(keys.volume("v")):
        store.delete([info.key])
    with pytest.raises(NotFoundError, match="no volume"):
        read_head(store, "v")
    KnownStore(store.url).accept("v", "head", None)
    assert create_volume(store, "v").number == 1


@pytest.mark.parametrize("answers", [1, math.inf])
def test_a_fork_is_taken_back_for_a_dead_pin_only(store: ObjectStore, answers: float) -> None:
    """Not for a page of something on the way, which says that there is a record."""
    version = VersionId(bytes(32))
    store.put(keys.version(version), b"a manifest")
    pages = PagesInstead(store, keys.PINS, times=answers)
    if answers == 1:
        fork_volume(pages, "f", locator(store, "v", version))
    else:
        with pytest.raises(UnavailableError, match=r"'f' was made, .* not known") as caught:
            fork_volume(pages, "f", locator(store, "v", version))
        assert "cowfs verify f" in caught.value.hint
    head = read_head(store, "f")
    assert (head.number, head.version) == (1, version)


@pytest.mark.parametrize("cause", [UnavailableError("gone", hint="Wait."), AccessDeniedError("expired")])
def test_a_fork_that_is_made_is_told_so_when_its_pin_cannot_be_asked_for(store: ObjectStore, cause: CowfsError) -> None:
    version = VersionId(bytes(32))
    store.put(keys.version(version), b"a manifest")
    faulty = FaultyStore(store)
    faulty.inject(Fault.FAIL, "get", key_part=keys.PINS, times=math.inf, error=cause)
    with pytest.raises(type(cause), match=f"volume 'f' was made, .* not known: {cause.message}") as caught:
        fork_volume(faulty, "f", locator(store, "v", version))
    assert caught.value.hint.startswith(cause.hint)
    assert "The volume is yours" in caught.value.hint
    assert read_head(store, "f").version == version


@pytest.mark.parametrize("written", [b"<html>", None], ids=["damaged", "whole"])
def test_a_fork_is_taken_back_for_a_dead_pin_damaged_or_not(store: ObjectStore, written: bytes | None) -> None:
    version = VersionId(bytes(32))
    store.put(keys.version(version), b"a manifest")

    class Collected(FaultyStore):
        """A collection declares the pin dead while the fork's head is put."""

        def put_if_absent(self, key: str, data: Data) -> None:
            if key == keys.head("f", 1):
                pin = store.list(keys.PINS)[0].key
                id = WriteId.from_hex(pin.split("/")[1])
                record = replace(refs.read(store, refs.pin(id), 1), kind="dead")
                second = keys.pin(id, 2)
                store.put(second, written or record.encode(key=keys.pin_prefix(id)))
            super().put_if_absent(key, data)

    with pytest.raises(NotFoundError, match="being deleted"):
        fork_volume(Collected(store), "f", locator(store, "v", version))
    head = find_head(store, "f")
    assert head is not None
    assert head.is_void


def test_a_void_volume_is_no_volume(store: ObjectStore) -> None:
    create_volume(store, "v")
    refs.append(store, refs.head("v"), 2, HeadRecord("void", None, 0, 1, WriteId(bytes(16))))
    with pytest.raises(NotFoundError, match="being deleted"):
        read_head(store, "v")
    for claim in (lambda: create_volume(store, "v"), lambda: require_free(store, "v")):
        with pytest.raises(ConflictError, match="gone for good") as caught:
            claim()
        assert caught.value.hint == "Its name stays taken. Choose another one."
