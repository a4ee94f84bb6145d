"""Rules of pruning in a volume's record: saved, read, and never half understood."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cowfs.errors import CorruptError, NotFoundError, UnsupportedFormatError
from cowfs.store import ObjectStore, initialize, open_store
from cowfs.store.refs import refs
from cowfs.version.names import described
from cowfs.version.names.volumes import create_volume
from cowfs.version.retention import saved_rules
from cowfs.version.retention.retention import Rules

pytestmark = pytest.mark.quick


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    store = open_store((tmp_path / "store").as_uri(), create=True)
    initialize(store)
    create_volume(store, "v", owner="ada")
    return store


def set_meta(store: ObjectStore, settings: dict[str, str | int]) -> None:
    found = refs.newest(store, refs.meta("v"))
    assert found is not None
    refs.append(
        store, refs.meta("v"), found[0] + 1, replace(found[1], settings=settings, write_id=described._write_id())
    )


def test_what_is_saved_is_read_and_the_rest_of_the_record_stays(store: ObjectStore) -> None:
    assert saved_rules.read(store, "v") is None
    set_meta(store, {"description": "mine"})
    rules = Rules(last=3, within=timedelta(days=30), daily=7, yearly=1)
    saved_rules.save(store, "v", rules)
    saved_rules.save(store, "v", rules)
    assert saved_rules.read(store, "v") == rules
    saved_rules.save(store, "v", Rules(weekly=2))
    assert saved_rules.read(store, "v") == Rules(weekly=2)
    found = refs.newest(store, refs.meta("v"))
    assert found is not None
    assert (found[0], found[1].owner, dict(found[1].settings)) == (4, "ada", {"description": "mine", "keep.weekly": 2})
    saved_rules.save(store, "v", None)
    assert saved_rules.read(store, "v") is None
    with pytest.raises(NotFoundError):
        saved_rules.save(store, "w", rules)


def test_a_rule_that_is_not_known_stops_it(store: ObjectStore) -> None:
    set_meta(store, {"keep.last": 1, "keep.tagged_by": "ada"})
    with pytest.raises(UnsupportedFormatError, match="tagged_by"):
        saved_rules.read(store, "v")
    set_meta(store, {"keep.last": "all"})
    with pytest.raises(CorruptError):
        saved_rules.read(store, "v")
    saved_rules.save(store, "v", Rules(last=1))
    assert saved_rules.read(store, "v") == Rules(last=1)


def test_of_two_who_save_at_once_the_last_one_counts_and_nothing_is_mixed(store: ObjectStore) -> None:
    wanted = [Rules(last=number) if number % 2 else Rules(daily=number) for number in range(1, 5)]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda rules: saved_rules.save(store, "v", rules), wanted))
    assert saved_rules.read(store, "v") in wanted
