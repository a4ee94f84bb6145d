"""A version is opened under the name of a volume that has it, and under no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from cowfs.blocking import ROVolume, Volume
from cowfs.errors import NotFoundError
from cowfs.version import history
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
