"""What people write for a version means that version, or an error names what is near."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cowfs.api import sources
from cowfs.base.ids import VersionId
from cowfs.blocking import ROVolume, Store, Volume
from cowfs.errors import InvalidInputError, NotFoundError
from cowfs.format import keys
from cowfs.format.manifest import version_id
from cowfs.store import ObjectStore, open_store
from cowfs.version.names.source_names import resolve_name
from cowfs.version.names.tags import set_tag
from tests.api.conftest import place
from tests.format.samples import MANIFEST

__all__ = ["place"]

JUST_AFTER = timedelta(microseconds=1)


@pytest.fixture
def versions(place: Path) -> list[ROVolume]:
    data = Volume.new("data")
    return [data.commit(text) for text in ("one", "two", "three", "four")]


@pytest.fixture
def store(versions: list[ROVolume]) -> Iterator[ObjectStore]:
    store = open_store(Volume.open("data").resolve().store_url or "")
    yield store
    store.close()


@pytest.fixture(params=["UTC", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def test_so_many_versions_before_the_last_one(versions: list[ROVolume]) -> None:
    Store().delete("data")
    Store().undelete("data")
    for count, version in enumerate(reversed(versions)):
        assert Volume.version(f"data@{{{count}}}").id == version.id
    with pytest.raises(NotFoundError) as caught:
        Volume.version("data@{4}")
    assert f"data@{{3}}, {versions[0].id[:12]}" in caught.value.hint
    fork = versions[1].fork("fork")
    fork.commit("five")
    assert Volume.version("fork@{1}").id == versions[1].id
    with pytest.raises(NotFoundError):
        Volume.version("fork@{2}")
    Volume.new("empty").resolve()
    with pytest.raises(NotFoundError, match="no version 0 before"):
        Volume.version("empty@{0}")


def test_at_a_time(versions: list[ROVolume], zone: str) -> None:
    for version in versions:
        local = (version.created + JUST_AFTER).astimezone()
        for text in (local.replace(tzinfo=None).isoformat(), local.isoformat(), local.astimezone(UTC).isoformat(" ")):
            assert Volume.version(f"data@{{{text}}}").id == version.id, text
    tomorrow = datetime.now().astimezone() + timedelta(days=1)
    assert Volume.version(f"data@{{{tomorrow:%Y-%m-%d}}}").id == versions[-1].id
    with pytest.raises(NotFoundError, match="had no version at") as caught:
        Volume.version("data@{2020-02-03}")
    assert f"data@{{3}}, {versions[0].id[:12]}" in caught.value.hint
    for wrong in ("yesterday", "-1", "", "2026-13-01", "²"):
        with pytest.raises(InvalidInputError, match="neither a number nor a time"):
            Volume.version(f"data@{{{wrong}}}")


def test_a_colon_of_a_time_is_no_path() -> None:
    for text, source, path in (
        ("data@{2026-11-20T12:00}:a/b:c", "data@{2026-11-20T12:00}", b"a/b:c"),
        ("data@{2026-11-20T12:00+01:00}", "data@{2026-11-20T12:00+01:00}", b""),
        ("data@{3}:x", "data@{3}", b"x"),
        ("data:x@{3}:y", "data", b"x@{3}:y"),
        ("data:{a:b}", "data", b"{a:b}"),
    ):
        assert sources.place(text) == sources.Place(source, path, is_directory=not path)
    assert sources.is_place("data@{2026-11-20T12:00}:a")
    assert not sources.is_place("./data@{3}:a")


def test_an_id_may_be_shortened(versions: list[ROVolume], store: ObjectStore) -> None:
    for version in versions:
        assert Volume.version(f"data@{version.id[:8]}").id == version.id
    other = Volume.new("other").commit("of another volume")
    with pytest.raises(NotFoundError):
        Volume.version(f"data@{other.id[:10]}")
    fork = versions[0].fork("fork")
    assert resolve_name(store, "fork", versions[0].id[:8]) == VersionId.from_hex(versions[0].id)
    fork.discard()


def test_a_tag_that_could_be_taken_for_a_version_is_refused(versions: list[ROVolume]) -> None:
    one, two, *_ = versions
    for name in (one.id[:8], one.id[:12], one.id, two.id[:10], "abcdef012345"):
        with pytest.raises(InvalidInputError, match="version") as caught:
            two.tag(name)
        assert "Choose a" in caught.value.hint
        with pytest.raises(InvalidInputError, match="version"):
            two.tag(name, move=True)
    for name in ("20261130", "202611301200", "abcdef01", "deadbeef-1"):
        two.tag(name)
        assert Volume.version(f"data@{name}").id == two.id
    with pytest.raises(InvalidInputError, match="text, not 5"):
        two.tag(5)  # type: ignore[arg-type]


def test_what_fits_a_tag_and_a_version_is_an_error_that_names_both(
    versions: list[ROVolume], store: ObjectStore
) -> None:
    """Tags that an older cowfs has set."""
    one, two, *_ = versions
    set_tag(store, "data", one.id[:8], VersionId.from_hex(two.id))
    set_tag(store, "data", two.id[:8], VersionId.from_hex(two.id))
    with pytest.raises(InvalidInputError) as caught:
        Volume.version(f"data@{one.id[:8]}")
    assert two.id[:12] in caught.value.message
    assert one.id[:12] in caught.value.message
    assert "--delete" in caught.value.hint
    assert Volume.version(f"data@{one.id[:9]}").id == one.id
    assert Volume.version(f"data@{two.id[:8]}").id == two.id, "both are the same version"
    two.tag(one.id[:8])
    one.tag(one.id[:8], move=True)
    assert Volume.version(f"data@{one.id[:8]}").id == one.id


def test_the_beginning_of_several_ids_names_them(
    versions: list[ROVolume], store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cowfs.version.names.source_names.SHORTEST_PREFIX", 2)
    taken = {version.id[:2] for version in versions}
    start = next(each for each in ("7e", "7f", "80", "81") if each not in taken)
    alike = []
    for count in range(10_000):
        data = replace(MANIFEST, volume="data", message=f"number {count}").encode()
        if version_id(data).hex().startswith(start):
            alike.append(version_id(data))
            store.put(keys.version(alike[-1]), data)
        if len(alike) == 7:
            break
    with pytest.raises(InvalidInputError, match=r"is the beginning of 7 versions: .* and 2 more") as caught:
        resolve_name(store, "data", start)
    assert all(version.hex()[:10] in caught.value.message for version in sorted(alike)[:5])


def test_what_is_not_there_names_what_is_near(versions: list[ROVolume], store: ObjectStore) -> None:
    versions[0].tag("released")
    with pytest.raises(NotFoundError) as caught:
        Volume.version("data@relaesed")
    assert "Did you mean data@released?" in caught.value.hint
    with pytest.raises(NotFoundError) as caught:
        Volume.version("data@unlike")
    assert "Its tags are released." in caught.value.hint
    wrong = versions[1].id[:8] + ("1" if versions[1].id[8] == "0" else "0")
    with pytest.raises(NotFoundError) as caught:
        Volume.version(f"data@{wrong}")
    assert f"data@{versions[1].id[:12]}" in caught.value.hint
    store.delete([keys.version(VersionId.from_hex(versions[2].id))])
    with pytest.raises(NotFoundError) as caught:
        Volume.version(f"data@{versions[2].id[:10]}")
    assert "was pruned, and is gone" in caught.value.hint
