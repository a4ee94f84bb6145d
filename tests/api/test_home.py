"""A path of this machine may begin with the user's home, as a store's URL may: a program gets it
from a file or an option, and no shell has looked at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cowfs.blocking import Store, Volume
from cowfs.errors import InvalidInputError


def test_a_home_is_filled_in_wherever_a_local_path_is_given(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, elsewhere = place / "at home", place / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(elsewhere)
    (home / "in").mkdir()
    (home / "in" / "file").write_text("x")
    vol = Volume.new("data")
    vol.files.upload("~/in")
    vol.files.write("file", b"y")
    vol.unmount()
    path = vol.mount("~/mnt", meta_dir="~/meta", cache_dir="~/cache")
    assert path == home / "mnt"
    (path / "new").write_text("z")
    assert vol.mount(Path("~/mnt")) == path
    vol.discard()
    version = Volume.version("data")
    version.files.download("/", "~/out")
    assert (home / "out" / "file").read_text() == "x"
    version.warm(cache_dir="~/warmed")
    assert (home / "warmed").is_dir()
    assert (home / "meta").is_dir()
    assert list(elsewhere.iterdir()) == []


def test_no_store_is_made_between_files_of_somebody(place: Path) -> None:
    theirs = place / "etc"
    theirs.mkdir()
    (theirs / "passwd").write_text("x")
    version = Volume.new("data").commit()
    for make in (lambda: Volume.new("tab", store=theirs).resolve(), lambda: Store().push("data", theirs)):
        with pytest.raises(InvalidInputError, match="not empty: 'passwd' lies there") as caught:
            make()
        assert "a directory of its own" in caught.value.hint
    assert sorted(theirs.iterdir()) == [theirs / "passwd"]
    disk = place / "disk"
    for name in ("lost+found", "probe", ".Trash"):
        (disk / name).mkdir(parents=True)
    Store().push("data", disk)
    (disk / "notes.txt").write_text("of somebody")
    assert Volume.version("data", store=disk).id == version.id
