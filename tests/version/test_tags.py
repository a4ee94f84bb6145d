"""Tags: one of several who set one at once gets it, and no tag stands on what may be collected."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cowfs.base.ids import VersionId, WriteId
from cowfs.blocking import ROVolume, Store, Volume
from cowfs.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from cowfs.format import keys
from cowfs.format.records import PrunedRecord
from cowfs.store import ObjectStore, open_store
from cowfs.store.contract import Data
from cowfs.store.refs import refs
from cowfs.version.names import head_line, tags
from cowfs.version.retention import pruned
from tests.api.conftest import place
from tests.faulty_store import Fault, FaultyStore

__all__ = ["place"]


@pytest.fixture
def versions(place: Path) -> list[ROVolume]:
    data = Volume.new("data")
    return [data.commit(text) for text in ("one", "two", "three")]


@pytest.fixture
def store(versions: list[ROVolume]) -> Iterator[ObjectStore]:
    store = open_store(Volume.open("data").resolve().store_url or "")
    yield store
    store.close()


def id_of(version: ROVolume) -> VersionId:
    return VersionId.from_hex(version.id)


def test_a_tag_is_set_moved_listed_and_removed(versions: list[ROVolume]) -> None:
    one, two, three = versions
    tag = one.tag("v1")
    assert (tag.name, tag.version, tag.locator) == ("v1", one.id, one.locator)
    assert one.tag("v1") == tag, "again: nothing changes"
    assert Volume.version("data@v1").id == one.id
    with pytest.raises(ConflictError, match="is on version"):
        two.tag("v1")
    two.tag("v1", move=True)
    assert Volume.version("data@v1").id == two.id
    with pytest.raises(ConflictError):
        three.tag("v1", expect=one.id)
    three.tag("v1", expect=two.id)
    one.tag("a.first")
    assert [(each.name, each.version) for each in Store().tags("data")] == [("a.first", one.id), ("v1", three.id)]
    with pytest.raises(ConflictError):
        Store().untag("data", "v1", expect=one.id)
    assert Store().untag("data", "v1").version == three.id
    assert [each.name for each in Store().tags("data")] == ["a.first"]
    for missing in ("v1", "never"):
        with pytest.raises(NotFoundError, match="no tag"):
            Store().untag("data", missing)
    two.tag("v1")
    assert Volume.version("data@v1").id == two.id


def test_of_many_who_move_a_tag_at_once_one_does(versions: list[ROVolume], store: ObjectStore) -> None:
    one, *others = versions
    one.tag("best")

    def move(version: ROVolume) -> bool:
        try:
            tags.set_tag(store, "data", "best", id_of(version), expected=id_of(one))
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(move, [others[n % 2] for n in range(8)])) >= 1
    history = refs.history(store, refs.tag("data", "best"))
    assert [number for number, _ in history] == [2, 1], "the rest has changed nothing"


def test_only_what_the_volume_keeps_is_tagged(versions: list[ROVolume], store: ObjectStore) -> None:
    fork = versions[1].fork("fork")
    new = fork.commit("four")
    new.tag("new")
    Volume.version(f"fork@{versions[1].id}").tag("base")
    with pytest.raises(NotFoundError) as refused:
        Volume.version(f"fork@{versions[0].id}").tag("first")
    assert f"data@{versions[0].id[:12]}" in refused.value.hint
    pruned.append(store, "data", pruned.read(store, "data"), [(2, 2)])
    with pytest.raises(NotFoundError, match="is pruned"):
        versions[0].tag("late")
    assert Store().tags("data") == []
    with pytest.raises(InvalidInputError):
        versions[2].tag("f" * 64)
    with pytest.raises(InvalidInputError, match="folder"):
        Volume.version("data:/x").tag("folder")


@pytest.mark.parametrize("was", [None, 2])
def test_what_is_pruned_while_it_is_tagged_gets_no_tag(
    versions: list[ROVolume], store: ObjectStore, monkeypatch: pytest.MonkeyPatch, was: int | None
) -> None:
    if was is not None:
        versions[was].tag("late")
    append = refs.append

    def prune_first(store: ObjectStore, ref: refs.Ref[refs.R], n: int, record: refs.R) -> None:
        append(store, ref, n, record)
        if ref.prefix == keys.tag_prefix("data", "late") and not pruned.read(store, "data").number:
            pruned.append(store, "data", pruned.read(store, "data"), [(2, 2)])

    monkeypatch.setattr(refs, "append", prune_first)
    with pytest.raises(ConflictError, match="was pruned while"):
        tags.set_tag(store, "data", "late", id_of(versions[0]), may_move=True)
    found = tags.find_tag(store, "data", "late")
    assert (found and found.version) == (id_of(versions[was]) if was is not None else None)


@pytest.mark.parametrize("cause", [UnavailableError("gone", hint="Wait."), AccessDeniedError("expired")])
def test_a_tag_that_is_set_is_told_so_when_its_version_cannot_be_looked_at(
    versions: list[ROVolume], store: ObjectStore, cause: CowfsError
) -> None:
    faulty = FaultyStore(store)
    put_if_absent = faulty.put_if_absent

    def put_last(key: str, data: Data) -> None:
        put_if_absent(key, data)
        faulty.inject(Fault.FAIL, times=math.inf, error=cause)

    faulty.put_if_absent = put_last  # type: ignore[method-assign]
    with pytest.raises(
        type(cause), match=f"tag 'late' of volume 'data' is set on .* not known: {cause.message}"
    ) as caught:
        tags.set_tag(faulty, "data", "late", id_of(versions[0]))
    assert caught.value.hint == f"{cause.hint} Run the same again: that finds out.".lstrip()
    found = tags.find_tag(store, "data", "late")
    assert found is not None
    assert found.version == id_of(versions[0])
    assert tags.set_tag(store, "data", "late", id_of(versions[0])) == found


def test_an_unreadable_tag_is_an_error_for_who_asks_for_all(
    versions: list[ROVolume], store: ObjectStore, place: Path
) -> None:
    versions[0].tag("v1")
    path = place / "store" / keys.tag("data", "v1", 1)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b"tag", b"tug"))
    with pytest.raises(CorruptError):
        tags.all_tags(store, "data")


def test_heads_that_repeat_a_version_are_one_step(versions: list[ROVolume], store: ObjectStore) -> None:
    Store().delete("data")
    Store().undelete("data")
    newest = refs.newest(store, refs.head("data"))
    assert newest is not None
    found = list(head_line.steps(store, "data", newest[0]))
    assert [each.version.hex() for each in found] == [each.id for each in reversed(versions)]
    assert found[0].last == newest[0]
    assert [each.first for each in found] == [4, 3, 2]
    pruned.append(store, "data", pruned.read(store, "data"), [(2, 3)])
    assert [each.is_pruned for each in head_line.steps(store, "data", newest[0])] == [False, True, True]


def test_what_no_head_keeps_any_more(
    versions: list[ROVolume], store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that became the last one a second time has a step that is not pruned."""
    ids = {id_of(each) for each in versions}
    with monkeypatch.context() as patch:
        patch.setattr(refs, "head", None)
        assert head_line.find_given_up(store, "data", ids) == set(), "nothing was pruned: no head is looked at"
    newest = refs.newest(store, refs.head("data"))
    assert newest is not None
    again = replace(newest[1], version=id_of(versions[0]), write_id=WriteId(bytes(16)), prev=newest[1].check)
    refs.append(store, refs.head("data"), newest[0] + 1, again)
    pruned.append(store, "data", pruned.read(store, "data"), [(2, 3)])
    assert head_line.find_given_up(store, "data", ids) == {id_of(versions[1])}
    assert head_line.find_given_up(store, "data", {id_of(versions[0])}) == set()


def test_heads_that_are_pruned_are_not_read_where_the_others_say_it(
    versions: list[ROVolume], store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pruned.append(store, "data", pruned.read(store, "data"), [(3, 3)])
    asked: list[str] = []
    real = refs.read

    def read(store: ObjectStore, ref: refs.Ref[Any], n: int) -> Any:
        asked.append(ref.key(n))
        return real(store, ref, n)

    monkeypatch.setattr(refs, "read", read)
    assert head_line.find_given_up(store, "data", {id_of(versions[0])}) == set()
    assert keys.head("data", 2) in asked
    assert keys.head("data", 3) not in asked


def test_pruned_heads_stay_pruned(versions: list[ROVolume], store: ObjectStore) -> None:
    first = pruned.append(store, "data", pruned.read(store, "data"), [(2, 2), (5, 7)])
    second = pruned.append(store, "data", first, [(3, 4), (12, 12)])
    assert second.ranges == ((2, 7), (12, 12))
    assert [number for number in range(14) if pruned.read(store, "data").has(number)] == [2, 3, 4, 5, 6, 7, 12]
    with pytest.raises(ConflictError):
        pruned.append(store, "data", first, [(9, 9)])
    for ranges in (((0, 1),), ((3, 2),), ((1, 2), (3, 4)), ((5, 6), (1, 2))):
        with pytest.raises(InvalidInputError):
            PrunedRecord(ranges, 0, WriteId(bytes(16)))
