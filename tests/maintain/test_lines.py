"""Each head names the one before it, whoever writes it, and whoever reads two that disagree says
so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cowfs.api.access import file_session
from cowfs.base.ids import WriteId
from cowfs.blocking import Store, Volume
from cowfs.errors import CorruptError, InvalidStateError
from cowfs.format import keys
from cowfs.format.records import HeadRecord
from cowfs.machine.known_stores import KnownStore
from cowfs.store import ObjectStore, load_record, open_store
from cowfs.store.credentials.unlocking import PASSPHRASE
from cowfs.store.refs import refs
from cowfs.version.names import head_line
from cowfs.version.names.volumes import find_head
from cowfs.version.publish.heads import settle_head
from tests.cli.conftest import Run
from tests.maintain.conftest import first, place, run, second

__all__ = ["first", "place", "run", "second"]


@pytest.fixture(params=["plain", "encrypted"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, place: Path) -> Iterator[ObjectStore]:
    """Of a volume `data` with two versions."""
    if request.param == "encrypted":
        monkeypatch.setenv(PASSPHRASE, "correct horse battery staple")
    request.getfixturevalue("second")
    store = opened(place / "store")
    yield store
    store.close()


def opened(directory: Path) -> ObjectStore:
    store = open_store(str(directory))
    load_record(store)
    return store


def line(store: ObjectStore, volume: str) -> list[HeadRecord]:
    return [record for _, record in reversed(refs.history(store, refs.head(volume)))]


def is_joined(heads: list[HeadRecord]) -> bool:
    return [head.prev for head in heads] == [None, *(head.check for head in heads[:-1])]


def test_every_writer_names_the_head_before(store: ObjectStore, place: Path) -> None:
    Volume.version("data").fork("fork").commit("goes on")
    Volume.open("fork").files.write("x", b"x")
    Volume.open("fork").commit("again")
    file_session._end_all()
    settle_head(store, "fork", epoch=line(store, "fork")[-1].epoch + 1, intent=None, needs_fence=True)
    Store().delete("fork")
    Store().undelete("fork")
    assert [head.kind for head in line(store, "fork")] == ["fork", "commit", "commit", "fence", "delete", "undelete"]
    assert is_joined(line(store, "fork"))
    assert is_joined(line(store, "data"))
    assert len({head.prev for head in line(store, "fork")}) == 6


def test_a_push_makes_a_line_of_its_own(store: ObjectStore, place: Path) -> None:
    Store().push("data", place / "mirror", all_versions=True)
    mirror = opened(place / "mirror")
    ours, theirs = line(store, "data"), line(mirror, "data")
    assert [head.version for head in ours] == [head.version for head in theirs]
    assert is_joined(theirs)
    assert {head.check for head in ours}.isdisjoint(head.check for head in theirs)
    mirror.close()


def replaced(store: ObjectStore, number: int) -> None:
    """Head `number` of data by another one that is whole."""
    other = replace(refs.read(store, refs.head("data"), number), write_id=WriteId(bytes(16)))
    store.put(keys.head("data", number), other.encode(key=keys.head("data", number)))


def test_a_head_that_was_replaced_is_found_by_who_reads_the_line(store: ObjectStore, place: Path, run: Run) -> None:
    versions = [head.version for head in line(store, "data")]
    replaced(store, 2)
    for read in (
        lambda: refs.history(store, refs.head("data")),
        lambda: list(head_line.steps(store, "data", len(versions))),
        lambda: Volume.version("data@{1}"),
    ):
        with pytest.raises(CorruptError, match="number 3, was put after another number 2") as caught:
            read()
        assert caught.value.details["key"] == keys.head("data", 2)
    said = run("verify")
    assert said.code == 1
    assert "number 3, was put after another number 2" in said.out + said.err
    assert Volume.version("data").id == str(versions[-1]), "what needs no other head goes on"


def test_a_replaced_head_stops_collections_until_a_user_accepts_it(store: ObjectStore, place: Path) -> None:
    replaced(store, 2)
    with pytest.raises(InvalidStateError, match="number 3, was put after another number 2") as caught:
        Store().gc()
    plan_id = caught.value.details["plan_id"]
    assert Store().gc(dry_run=True).plan_id == plan_id
    assert Store().gc(accept_loss=plan_id).alarms
    assert list(Volume.version("data").files.ls())
    with pytest.raises(InvalidStateError):
        Store().gc()
    Store().delete("data")
    last = min((place / "store/volumes/data/head").iterdir())  # numbers count down
    os.utime(last, ns=(0, 0))
    assert not Store().gc(dry_run=True).alarms, "a volume that can be restored no more protects nothing"


def test_heads_of_before_are_read_and_gone_on_from(store: ObjectStore) -> None:
    """None of them names the one before."""
    for number in (2, 3):
        head = replace(refs.read(store, refs.head("data"), number), prev=None)
        store.put(keys.head("data", number), head.encode())
    KnownStore(store.url).forget()
    Volume.open("data").commit("goes on")
    heads = line(store, "data")
    assert [head.prev is None for head in heads[:4]] == [True, True, True, False]
    assert heads[3].prev == heads[2].check
    assert find_head(store, "data") is not None
