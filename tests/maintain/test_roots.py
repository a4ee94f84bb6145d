"""A look at the pins misses none of them, though lists are no snapshots."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cowfs.errors import NotFoundError, UnavailableError
from cowfs.maintain.collect.roots import RootReader
from cowfs.store import ObjectInfo, ObjectStore, initialize, open_store
from cowfs.store.readonly import ReadOnlyStore
from cowfs.store.refs import refs
from cowfs.store.refs.pins import Pin
from tests.faulty_store import Fault, FaultyStore

pytestmark = pytest.mark.quick


class PagedStore(ReadOnlyStore):
    """Its lists come in pages of one key."""

    def __init__(self, store: ObjectStore, between: Callable[[], None]) -> None:
        super().__init__(store)
        self._between = between

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        found: list[ObjectInfo] = []
        while page := super().list(prefix, start_after=start_after, limit=1):
            found += page
            start_after = page[-1].key
            if len(found) == limit:
                break
            self._between()
        return found


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    store = open_store(str(tmp_path / "store"), create=True)
    initialize(store, writers=[store])
    return store


@pytest.mark.parametrize("renewed", [0, 1, 5])
def test_a_pin_that_is_renewed_between_two_pages_is_seen(store: ObjectStore, renewed: int) -> None:
    pins = [Pin.create(store, volume="data", number=0, owner=f"{number}") for number in range(4)]
    for pin in pins:
        for _ in range(renewed):
            pin.renew(is_forced=True)

    def renew() -> None:
        for pin in pins:
            pin.renew(generation=pin.generation + 1, is_forced=True)

    found = RootReader(PagedStore(store, renew), threads=1).pins()
    assert {pin.record.owner for pin in found} == {"0", "1", "2", "3"}
    assert all(pin.number > renewed for pin in found)


def test_a_pin_that_is_removed_meanwhile_is_none(store: ObjectStore) -> None:
    pins = [Pin.create(store, volume="data", number=0, owner=f"{number}") for number in range(2)]
    stays, goes = sorted(pins, key=lambda pin: pin.key)
    found = RootReader(PagedStore(store, goes.remove), threads=1).pins()
    assert [pin.record.owner for pin in found] == [stays.owner]


def test_a_directory_is_read_again_where_a_record_was_replaced(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has been listed, and what it had is gone before it is looked at."""
    pin = Pin.create(store, volume="data", number=0, owner="ada")
    pin.renew(is_forced=True)
    real = os.stat

    def stat(path: str | Path, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        if dir_fd is not None and "/pins/" in os.readlink(f"/proc/self/fd/{dir_fd}"):
            monkeypatch.setattr(os, "stat", real)
            pin.renew(is_forced=True)
        return real(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(os, "stat", stat)
    listed = store.list(pin.key)
    assert [info.key for info in listed] == [info.key for info in store.list(pin.key)]
    assert len(listed) == 2


def test_a_pin_that_a_list_shows_and_nobody_can_read_ends_the_look(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refs, "APPEND_S", 0.2)
    pin = Pin.create(store, volume="v", number=0, owner="me", generation=0)

    class Hidden(FaultyStore):
        def get(self, key: str) -> bytes:
            if key.startswith(pin.key):
                raise NotFoundError("a policy hides it, or it comes late")
            return super().get(key)

    with pytest.raises(UnavailableError, match="cannot be read"):
        RootReader(Hidden(store)).pins()
    monkeypatch.setattr(refs, "APPEND_S", 60.0)
    late = FaultyStore(store)
    late.inject(Fault.FAIL, "get", key_part=pin.key, error=NotFoundError("late"))
    assert len(RootReader(late).pins()) == 1
