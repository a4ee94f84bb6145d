"""Requests to the store: what is known already is not fetched again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cowfs.api import sources
from cowfs.api.access.volume_handle import VolumeHandle
from cowfs.api.mounts import launch
from cowfs.api.rw_volume import make_volume
from cowfs.base.ids import WriteId
from cowfs.blocking import Volume
from cowfs.control import MountSpec
from cowfs.format import keys
from cowfs.format.records import HeadRecord
from cowfs.store.backends.directory.directory_store import DirectoryStore
from cowfs.store.refs import refs
from cowfs.version.names.volumes import volume_names
from tests.api.conftest import place

__all__ = ["place"]

pytestmark = pytest.mark.usefixtures("place")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What this process asks the store, as `call key`."""
    found: list[str] = []

    def noting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(self: DirectoryStore, key: str, *arguments: Any, **options: Any) -> Any:
            found.append(f"{name} {key}")
            return call(self, key, *arguments, **options)

        return noted

    for name in ("get", "list"):
        monkeypatch.setattr(DirectoryStore, name, noting(name, getattr(DirectoryStore, name)))
    return found


def make() -> None:
    vol = Volume.new("data")
    vol.files.write("file", b"x")
    vol.finalize()


def test_opening_to_write_fetches_the_manifest_once(asked: list[str]) -> None:
    make()
    asked.clear()
    Volume.open("data").files.write("file", b"y")
    assert len([each for each in asked if each.startswith("get versions/")]) == 1


def test_a_source_that_was_found_is_not_looked_up_again(asked: list[str]) -> None:
    make()
    asked.clear()
    found = sources.find("data", None)
    assert found.head is not None
    assert asked.count("list volumes/data/head/") == 1
    make_volume(VolumeHandle.of_head(found.store, found.head)).resolve()
    assert asked.count("list volumes/data/head/") == 1


def test_a_volume_without_versions_is_opened_without_its_middle_heads(asked: list[str]) -> None:
    vol = Volume.new("data")
    vol.resolve()
    objects = sources.find("data", None).store.objects
    for n in range(2, 6):
        fence = HeadRecord("fence", None, 0, 1, WriteId(bytes([n]) * WriteId.length))
        refs.append(objects, refs.head("data"), n, fence)
    asked.clear()
    Volume.open("data").files.write("file", b"x")
    read = [n for n in range(1, 6) if f"get {keys.head('data', n)}" in asked]
    assert read == [1, 5]


def test_names_of_volumes_cost_a_list(asked: list[str]) -> None:
    for n in range(5):
        Volume.new(f"v{n}").commit()
    asked.clear()
    store = sources.find("v0", None).store
    asked.clear()
    assert volume_names(store.objects) == [f"v{n}" for n in range(5)]
    assert asked == ["list volumes/"]
    assert volume_names(store.objects, limit=2, start="v1") == ["v1", "v2"]


@pytest.mark.mount
def test_a_commit_of_a_mount_says_what_it_made(asked: list[str]) -> None:
    """The daemon knows it; this process asks the store for nothing."""
    vol = Volume.new("data")
    (vol.mount() / "file").write_text("x")
    asked.clear()
    version = vol.commit("what it is for")
    assert (version.message, version.stats.files, version.is_new) == ("what it is for", 1, True)
    assert asked == []
    vol.finalize()


@pytest.mark.mount
def test_a_daemon_takes_what_was_read_for_it(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """Record and manifest are gone when the daemon begins."""
    vol = Volume.new("data")
    vol.files.write("file", b"x")
    version = vol.finalize()
    version.files.read("file")
    away = place / "away"
    away.mkdir()
    taken = [place / "store/cowfs.json", *(place / "store/versions").glob("*/*")]
    start = launch._process

    def spawned(spec: MountSpec) -> Any:
        for path in taken:
            path.rename(away / path.name)
        return start(spec)

    monkeypatch.setattr(launch, "_process", spawned)
    try:
        assert (version.mount() / "file").read_bytes() == b"x"
    finally:
        for path in taken:
            (away / path.name).rename(path)
    version.unmount()
