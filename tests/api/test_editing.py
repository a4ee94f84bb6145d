"""Store.remove, move and mkdir: changes of a volume by NAME:PATH, without a mount."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import pytest

import cowfs
from cowfs.blocking import EditReport, Store, Volume
from cowfs.errors import ConflictError, CowfsError, InvalidInputError, InvalidStateError, NotFoundError, ReadOnlyError
from cowfs.machine.working_copy import list_working_copies
from tests.api.conftest import place

__all__ = ["place"]

pytestmark = pytest.mark.mount


@pytest.fixture
def paths(place: Path) -> Callable[[], list[str]]:
    """Lists everything in volume "data", which has some files."""
    volume = Volume.new("data")
    volume.files.mkdir("img/deep", parents=True)
    for path in ("img/1.png", "img/2.png", "img/deep/3.png", "[x]", "a*b", "ab"):
        volume.files.write(path, path.encode())
    volume.files.symlink("link", "img")
    volume.finalize("first")
    return lambda: [each.path for each in Volume.version("data").files.ls(recursive=True)]


def test_each_call_is_one_version_or_nothing(paths: Callable[[], list[str]]) -> None:
    store, before = Store(), Volume.version("data")
    gone = store.remove(["data:img/*.png", "data:ab"], author="me", labels={"why": "test"})
    assert gone.paths == ("/img/1.png", "/img/2.png", "/ab")
    version = Volume.version("data")
    assert (gone.locator, gone.is_new, gone.mount_path) == (version.locator, True, None)
    assert (version.author, version.labels, version.message) == (
        "me",
        {"why": "test"},
        "Remove /img/1.png, /img/2.png, /ab",
    )
    assert version.parents == [before.id]
    assert paths() == ["/[x]", "/a*b", "/img", "/img/deep", "/img/deep/3.png", "/link"]
    moved = store.move("data:img/deep", "data:new/place/")
    assert moved.paths == ("/new/place/deep",)
    assert Volume.version("data").message == "Move /img/deep to /new/place"
    assert Volume.version("data").files.read("new/place/deep/3.png") == b"img/deep/3.png"
    made = store.mkdir(["data:k/l", "data:k/m"], parents=True, message="made")
    assert made.paths == ("/k", "/k/l", "/k/m")
    last = Volume.version("data")
    for nothing in (
        store.mkdir("data:k/l", parents=True, message="again"),
        store.remove(["data:nosuch", "data:*.txt"], missing_ok=True, message="again"),
    ):
        assert nothing == EditReport("data", (), last.locator, False)
    assert Volume.version("data") == last
    assert len(last.history()) == 4
    assert list_working_copies() == [], "nothing is left on this machine"


def test_a_name_that_exists_is_no_pattern(paths: Callable[[], list[str]]) -> None:
    store = Store()
    assert store.remove("data:a*b").paths == ("/a*b",)
    assert store.remove("data:[x]").paths == ("/[x]",)
    assert store.remove("data:a*b").paths == ("/ab",), "now it is one"
    assert store.remove(r"data:\img/\1.png").paths == ("/img/1.png",)
    assert store.remove("data:**", recursive=True).paths == ("/img", "/link")
    assert paths() == []


def test_a_dry_run_changes_nothing(paths: Callable[[], list[str]]) -> None:
    before = Volume.version("data")
    assert Store().remove("data:img", recursive=True, dry_run=True) == EditReport(
        "data", ("/img",), before.locator, False
    )
    assert Store().move("data:img/*.png", "data:link", dry_run=True).paths == ("/link/1.png", "/link/2.png")
    assert Volume.version("data") == before


def test_moves_follow_the_rules_of_copies(paths: Callable[[], list[str]]) -> None:
    store = Store()
    store.move(["data:ab", "data:[x]"], "data:both")
    store.move("data:img/1.png", "data:img/2.png")
    store.move("data:link", "data:renamed")
    store.move("data:img/2.png", "data:renamed")
    assert paths() == [
        "/a*b",
        "/both",
        "/both/[x]",
        "/both/ab",
        "/img",
        "/img/2.png",
        "/img/deep",
        "/img/deep/3.png",
        "/renamed",
    ]
    assert Volume.version("data").files.read("img/2.png") == b"img/1.png", "a file is replaced"
    assert Volume.version("data").files.stat("renamed", follow=False).target == "img", "a link is moved, not its target"


def test_what_is_refused_changes_nothing(paths: Callable[[], list[str]]) -> None:
    store, before = Store(), Volume.version("data")
    Volume.new("other").resolve()
    cases: list[tuple[Callable[[], object], type[CowfsError], str]] = [
        (lambda: store.remove("data:nosuch"), NotFoundError, "data:/nosuch: No such file"),
        (lambda: store.remove("data:*.txt"), NotFoundError, r"nothing in data matches '\*.txt'"),
        (lambda: store.remove(["data:ab", "data:img"]), InvalidInputError, "data:/img is a directory"),
        (lambda: store.remove("data"), InvalidInputError, "no path in a volume"),
        (lambda: store.remove("./data"), InvalidInputError, "path of this machine"),
        (lambda: store.remove("data:", recursive=True), InvalidInputError, "is the root"),
        (lambda: store.remove(["data:ab", "other:x"]), InvalidInputError, "two volumes"),
        (lambda: store.remove("data@{0}:ab"), ReadOnlyError, "a version never changes"),
        (lambda: store.remove("none:ab"), NotFoundError, "none"),
        (lambda: store.move("data:img", "data:img/deep"), InvalidInputError, "into itself"),
        (lambda: store.move("data:ab", "data:ab"), InvalidInputError, "at its target already"),
        (lambda: store.move("data:img", "data:ab"), InvalidInputError, "Not a directory"),
        (lambda: store.move(["data:img/1.png", "data:new/1.png"], "data:n"), NotFoundError, "data:/new/1.png"),
        (lambda: store.move("data:ab", "other:ab"), InvalidInputError, "two volumes"),
        (lambda: store.mkdir("data:img"), ConflictError, "is there already"),
        (lambda: store.mkdir("data:new/deep"), InvalidInputError, "data:/new does not exist"),
        (lambda: store.mkdir("data:ab/deep", parents=True), InvalidInputError, "Not a directory"),
    ]
    for call, kind, said in cases:
        with pytest.raises(kind, match=said) as caught:
            call()
        assert caught.value.hint, said
    assert Volume.version("data") == before


def test_an_empty_volume_gets_its_first_version(place: Path) -> None:
    Volume.new("new").resolve()
    with pytest.raises(NotFoundError, match="new:/x"):
        Store().remove("new:x")
    assert Store().remove("new:x", missing_ok=True).locator is None
    assert Store().mkdir("new:x").is_new
    assert [each.path for each in Volume.version("new").files.ls()] == ["/x"]


def test_in_a_mount_the_commit_publishes(paths: Callable[[], list[str]]) -> None:
    before, volume, store = Volume.version("data"), Volume.open("data"), Store()
    mount = volume.mount()
    (mount / "fresh").write_text("uncommitted")
    made = store.mkdir("data:dir")
    assert (made.mount_path, made.is_new, made.locator) == (str(mount), False, before.locator)
    store.move(["data:fresh", "data:img/*.png"], "data:dir")
    assert sorted(os.listdir(mount / "dir")) == ["1.png", "2.png", "fresh"]
    assert store.remove("data:img", recursive=True, dry_run=True).paths == ("/img",)
    store.remove("data:img", recursive=True)
    assert not (mount / "img").exists()
    with pytest.raises(InvalidInputError, match="mounted"):
        store.remove("data:ab", message="no version is made")
    assert Volume.version("data") == before
    volume.finalize()
    assert paths() == ["/[x]", "/a*b", "/ab", "/dir", "/dir/1.png", "/dir/2.png", "/dir/fresh", "/link"]


@pytest.mark.parametrize("is_mounted", [True, False])
def test_a_refused_move_moves_nothing(is_mounted: bool, paths: Callable[[], list[str]]) -> None:
    """A mount has no step back: what is refused, is refused before the first move."""
    volume, store = Volume.open("data"), Store()
    for directory in ("img/dir", "to/img/deep", "to/ab"):
        volume.files.mkdir(directory, parents=True)
    volume.files.write("to/dir", b"a file")
    volume.finalize()
    before = paths()
    top = Volume.open("data").mount() if is_mounted else None
    for given, target, said in (
        (["img", "img/deep"], "new", "moves along"),
        (["img", "img/deep/3.png"], "new", "moves along"),
        (["[x]", "img/dir"], "to", "/to/dir: Not a directory"),
        (["[x]", "ab"], "to", "/to/ab: Is a directory"),
        (["[x]", "img"], "to", "something in it"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            store.move([f"data:{path}" for path in ["a*b", *given]], f"data:{target}")
        assert paths() == before
        if top is not None:
            assert sorted(f"/{path.relative_to(top)}" for path in top.rglob("*")) == sorted(before)
    moved = store.move(["data:img/deep/3.png", "data:img/deep"], "data:new")
    assert moved.paths == ("/new/3.png", "/new/deep"), "the inner one first"
    store.move("data:new/deep", "data:to/img/deep")


def test_changes_of_two_writers_are_both_there(paths: Callable[[], list[str]]) -> None:
    """Each call works on the newest version, so those that run at once do not undo each other."""

    async def body() -> None:
        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(cowfs.Store().mkdir, f"data:of-{number}")
            group.start_soon(partial(cowfs.Store().remove, "data:img", recursive=True))

    anyio.run(body)
    assert {each for each in paths() if each.startswith(("/of", "/img"))} == {f"/of-{number}" for number in range(6)}


def test_uncommitted_work_is_not_left_behind(paths: Callable[[], list[str]]) -> None:
    volume = Volume.open("data")
    volume.files.write("work", b"kept")
    volume.unmount()
    with pytest.raises(InvalidStateError, match="uncommitted work"):
        Store().mkdir("data:x")
