"""A version is opened under the name of a volume that has it, and under no other; a history goes on
behind what is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cowfs.api import stores
from cowfs.base.ids import VersionId
from cowfs.blocking import ROVolume, Volume
from cowfs.errors import AccessDeniedError, CorruptError, CowfsError, InvalidInputError, NotFoundError
from cowfs.format import canonical, keys
from cowfs.format.fields import ENVELOPE, seal
from cowfs.store import ObjectStore
from cowfs.version import history
from cowfs.version.names import head_line
from cowfs.version.retention.kept_behind import KeptBehind
from tests.api.conftest import place

__all__ = ["place"]

pytestmark = pytest.mark.usefixtures("place")


def renamed(version: ROVolume, name: str) -> str:
    return version.locator.replace(f"/-/{version.name}@", f"/-/{name}@")


def test_a_version_belongs_to_the_volumes_that_have_it() -> None:
    data, other = Volume.new("data"), Volume.new("other").resolve()
    first = data.commit("one")
    second = data.commit("two")
    fork = second.fork("fork")
    third = fork.commit("three")
    for version in (first, second, third):
        assert Volume.version(f"fork@{version.id}").id == version.id
        assert Volume.from_locator(renamed(version, "fork") + "\n").name == "fork"
    wrong = [renamed(third, name) for name in (other.name, "missing", "data")]
    for source in (*wrong, f"data@{third.id}"):
        with pytest.raises(NotFoundError, match="belongs to volume 'fork'") as caught:
            Volume.version(source)
        assert f"fork@{third.id}" in caught.value.hint
        assert caught.value.details["volume"] == "fork"


def test_what_lies_behind_a_pruned_version_is_believed(place: Path) -> None:
    data = Volume.new("data")
    versions = [data.commit(text) for text in ("one", "two", "three")]
    versions[-1].fork("fork").commit("four")
    (place / "store" / "versions" / versions[1].id[:2] / versions[1].id).unlink()
    assert Volume.from_locator(renamed(versions[0], "fork")).message == "one"


def test_what_lies_behind_a_head_of_a_newer_cowfs_is_believed() -> None:
    first = Volume.new("data").commit("one")
    first.fork("fork").commit("two")
    store, newest = objects(), keys.head("fork", 2)
    record = canonical.decode(store.get(newest), what="head")
    store.put(newest, seal(record["record"], 99, {each: record[each] for each in record if each not in ENVELOPE}))
    assert Volume.from_locator(renamed(first, "fork")).message == "one"


@pytest.mark.parametrize("what", ["head", "manifest", "gone"])
def test_what_lies_behind_damage_is_believed(place: Path, what: str) -> None:
    first = Volume.new("data").commit("one")
    last = first.fork("fork").commit("two")
    manifest = place / "store" / "versions" / last.id[:2] / last.id
    if what == "gone":
        manifest.unlink()
    else:
        damaged = min((place / "store" / "volumes" / "fork" / "head").iterdir()) if what == "head" else manifest
        damaged.write_bytes(b"")
    assert Volume.from_locator(renamed(first, "fork")).message == "one"


def test_a_long_line_is_not_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "LINE_LIMIT", 2)
    data = Volume.new("data")
    first = data.commit("one")
    for text in ("two", "three", "four"):
        data.commit(text)
    data.fork("fork").commit("five")
    assert Volume.from_locator(renamed(first, "fork")).message == "one"


def objects() -> ObjectStore:
    """Of the store, once there is one; encrypted stores are opened."""
    return stores.open_store(stores.name(None)).objects


def id_of(version: ROVolume) -> VersionId:
    return VersionId.from_hex(version.id)


def messages(version: ROVolume) -> list[str | None]:
    store = objects()
    past = history.history(store, id_of(version), KeptBehind(store, "data"))
    return [each.manifest.message if each.manifest is not None else None for each in past]


def damage(place: Path, key: str) -> None:
    (place / "store" / key).unlink()
    (place / "store" / key).write_bytes(b"x")


def test_a_line_that_does_not_have_a_version_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Volume.new("data")
    first, second = (data.commit(text) for text in ("one", "two"))
    forked = [Volume.version("data").fork(name).commit(name) for name in ("fork", "other")]
    calls: list[str] = []
    real = head_line.steps

    def steps(*args: Any) -> Iterator[head_line.Step]:
        calls.append("steps")
        return real(*args)

    monkeypatch.setattr(head_line, "steps", steps)
    kept_behind = KeptBehind(objects(), "data")
    assert [kept_behind(id_of(each), "data") for each in forked] == [[], []]
    (line,) = kept_behind(id_of(second), "data")
    assert next(line) == id_of(first)
    assert kept_behind(id_of(second), "data") == [], "it was told already"
    assert calls == ["steps"]


@pytest.mark.parametrize("error", [None, InvalidInputError("no lists"), AccessDeniedError("no")], ids=str)
def test_tags_that_cannot_be_read_end_no_history(
    place: Path, monkeypatch: pytest.MonkeyPatch, error: CowfsError | None
) -> None:
    data = Volume.new("data")
    one, two, three = (data.commit(text) for text in ("one", "two", "three"))
    one.tag("v1")
    damage(place, keys.tag("data", "v1", 1))
    (place / "store" / keys.version(id_of(two))).unlink()
    if error is not None:
        kind = type(objects())
        real = kind.list

        def listed(self: ObjectStore, prefix: str, **options: Any) -> Any:
            if prefix == keys.tags_prefix("data"):
                raise error
            return real(self, prefix, **options)

        monkeypatch.setattr(kind, "list", listed)
    assert messages(three) == ["three", None, "one"]


def test_what_is_damaged_behind_a_gap_is_left_out(place: Path) -> None:
    data = Volume.new("data")
    made = [data.commit(text) for text in ("one", "two", "three", "four", "five")]
    for gone in (made[3], made[1]):
        (place / "store" / keys.version(id_of(gone))).unlink()
    damage(place, keys.version(id_of(made[2])))
    assert messages(made[4]) == ["five", None, None, "one"]
    damage(place, keys.version(id_of(made[4])))
    with pytest.raises(CorruptError):
        messages(made[4])


def test_a_damaged_parent_is_an_error(place: Path) -> None:
    data = Volume.new("data")
    made = [data.commit(text) for text in ("one", "two", "three")]
    damage(place, keys.version(id_of(made[1])))
    with pytest.raises(CorruptError):
        messages(made[2])
