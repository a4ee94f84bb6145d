"""A store is never made where one was used before, unless somebody says so; and whoever makes one
says it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cowfs.blocking import Store, Volume
from cowfs.errors import InvalidStateError, NotFoundError
from cowfs.integrations.fsspec import CowfsFileSystem
from tests.api.conftest import place
from tests.cli.conftest import Run, run

__all__ = ["place", "run"]

Use = Callable[[Path, str], object]
USES: dict[str, Use] = {
    "upload": lambda source, store: Volume.open("v", store=store, create=True).files.upload(source),
    "import": lambda source, store: Store(store).import_(source, "v"),
    "new": lambda source, store: Volume.new("v", store=store).resolve(),
    "open": lambda source, store: Volume.open("v", store=store, create=True).resolve(),
    "push": lambda source, store: Store().push("here", store),
    "fsspec": lambda source, store: CowfsFileSystem(store, skip_instance_cache=True).mkdir("v"),
}


@pytest.fixture
def source(place: Path) -> Path:
    made = place / "source"
    made.mkdir()
    (made / "a").write_text("a")
    Store().import_(made, "here")
    return made


def _forget() -> None:
    """Another process, of which nothing is left."""
    from cowfs.api import stores
    from cowfs.api.access import file_session

    file_session._end_all()
    for opened in stores._open.values():
        opened.objects.close()
    stores._open.clear()


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("use", USES)
def test_no_store_is_made_where_one_was_used(source: Path, place: Path, use: str, is_there: bool) -> None:
    """Its disk is not mounted; the mount point may be there, and be empty."""
    store = place / "disk/store"
    store.parent.mkdir()
    USES[use](source, str(store))
    _forget()
    store.parent.rename(place / "away")
    if is_there:
        store.mkdir(parents=True)
    before = sorted(store.parent.rglob("*"))
    with pytest.raises(InvalidStateError, match="this machine has used one there") as raised:
        USES[use](source, str(store))
    assert "--new-store" in raised.value.hint
    assert sorted(store.parent.rglob("*")) == before
    shutil.rmtree(store.parent, ignore_errors=True)
    (place / "away").rename(store.parent)
    Volume.open("v" if use != "push" else "here", store=str(store)).resolve()


@pytest.mark.parametrize("use", [each for each in USES if each not in ("new", "fsspec")])
def test_directories_above_are_made_by_who_makes_a_store_by_name_alone(source: Path, place: Path, use: str) -> None:
    store = place / "disk/backup/store"
    with pytest.raises(NotFoundError, match="nor a directory"):
        USES[use](source, str(store))
    assert not (place / "disk").exists()
    Volume.new("v", store=str(store)).resolve()


def test_the_default_store_makes_the_directories_of_a_user(
    source: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COWFS_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(place / "share"))
    assert Store().import_(source, "v").is_new


def test_commands_say_what_they_make_and_what_to_do(source: Path, place: Path, run: Run) -> None:
    store, url = str(place / "other"), (place / "other").as_uri()
    said = run("upload", str(source), "v", "--store", store)
    assert f"into a new store at {url}" in said.err
    assert "new store" not in run("upload", str(source), "w", "--store", store).err
    _forget()
    shutil.rmtree(store)
    refused = run("create", "v", "--store", store)
    assert refused.code == InvalidStateError.exit_code
    assert "--new-store" in refused.err
    assert run("create", "v", "--store", store, "--new-store").code == 0
    assert run("create", "w", "--store", store, "--new-store").code == 0, "it is there by now"


@pytest.mark.parametrize("kind", ["missing", "file", "read-only"])
def test_a_state_directory_that_cannot_be_written_is_in_nobodys_way(
    source: Path, place: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cowfs.base.ids import StoreId
    from cowfs.machine import known_stores
    from cowfs.machine.known_stores import PLAIN, KnownStore

    state = place / "no state"
    monkeypatch.setenv("COWFS_STATE_DIR", str(state))
    if kind == "file":
        state.write_text("")
    if kind == "read-only":
        state.mkdir(mode=0o500)
        monkeypatch.setattr(os, "replace", _refused)
    if kind == "missing":
        monkeypatch.setattr(Path, "mkdir", _refused)
    known = KnownStore("file:///x")
    known.remember(StoreId(bytes(16)), PLAIN)
    assert not known_stores.was_used("file:///x")
    assert known.load() is None
    assert list((state / "stores").glob("*")) == []


def _refused(*_: object, **__: object) -> None:
    raise PermissionError(13, "not permitted")
