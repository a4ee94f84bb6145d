"""What `diff` says of a volume that is mounted as a copy, or whose copy was left with work: what
its next commit publishes, and nothing is published by asking."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import pytest

import cowfs
from cowfs import storage
from cowfs.blocking import Change, ROVolume, RWVolume, Store, Volume
from cowfs.errors import ConflictError, InvalidStateError, NotFoundError
from cowfs.storage import KeyFile
from cowfs.transfer.source_files import SourceFile
from tests.api.conftest import place
from tests.api.test_uploading import OLD_NS

__all__ = ["place"]

LARGE = random.Random(1).randbytes(12_000_000)
"""Twelve megabytes: cut in buffers, in more than one."""


@pytest.fixture
def volume(place: Path) -> RWVolume:
    """Mounted as a copy; its version has some of everything."""
    return filled(Volume.new("data"))


def filled(volume: RWVolume) -> RWVolume:
    root = volume.mount(mode="copy")
    for directory in ("dir", "dir/below", "gone"):
        (root / directory).mkdir()
    for name in ("same", "changed", "moved", "mode", "dir/removed", "gone/deep"):
        (root / name).write_text(f"{name}\n")
    (root / "large").write_bytes(LARGE)
    (root / "sparse").write_bytes(b"x")
    os.truncate(root / "sparse", 1 << 20)
    (root / "link").symlink_to("same")
    os.link(root / "same", root / "dir" / "other name")
    volume.commit("first")
    return volume


def work_in(root: Path) -> None:
    """A change of each kind."""
    (root / "added").write_text("new\n")
    (root / "many").mkdir()
    (root / "many" / "small").write_bytes(b"s" * 70_000)
    (root / "changed").write_text("changed\nand longer\n")
    with (root / "large").open("r+b") as file:
        file.seek(6_000_000)
        file.write(b"in the middle")
    (root / "moved").rename(root / "dir" / "moved here")
    (root / "mode").chmod(0o600)
    (root / "dir" / "removed").unlink()
    (root / "gone" / "deep").unlink()
    (root / "gone").rmdir()
    (root / "link").unlink()
    (root / "link").symlink_to("changed")
    os.utime(root / "same", ns=(0, OLD_NS))


def state(place: Path, root: Path) -> dict[Path, object]:
    """Of the store, with times, of what is known of the copy, and of the copy itself."""
    found: dict[Path, object] = {}
    for path in (place / "store").rglob("*"):
        found[path] = (path.lstat().st_ino, path.lstat().st_mtime_ns)
    for path in (place / "c" / "state").rglob("*"):
        if path.name.startswith("copy.") or path.name == "state.json":
            found[path] = path.read_bytes()
    for path in root.rglob("*"):
        one = path.lstat()
        found[path] = (one.st_ino, one.st_mode, one.st_size, one.st_mtime_ns, one.st_ctime_ns)
    return found


def named(changes: list[Change]) -> list[tuple[str, str]]:
    return [(each.kind, each.path) for each in changes]


@pytest.mark.parametrize("is_mounted", [True, False])
@pytest.mark.parametrize("options", [{}, {"times": True}, {"renames": False}, {"times": True, "path": "dir"}])
def test_it_is_what_the_next_commit_publishes(
    volume: RWVolume, place: Path, options: dict[str, object], *, is_mounted: bool
) -> None:
    """Of a copy that is mounted, and of one that was left with its work."""
    first, root = Volume.version("data"), volume.path
    with Volume.open("data") as other:
        (other / "second").write_text("two\n")
        second = other.commit("second")
    work_in(root)
    if not is_mounted:
        volume.unmount()
        assert not volume.is_mounted
    before = state(place, root)
    told = [list(volume.diff(each, **options)) for each in (None, second, first)]  # type: ignore[arg-type]
    assert state(place, root) == before
    assert told[0] == told[1]
    assert volume.has_changes()
    made = volume.commit()
    compared = [list(each.diff(made, **options)) for each in (second, second, first)]  # type: ignore[arg-type]
    assert told == compared
    assert list(volume.diff(**options)) == []  # type: ignore[arg-type]


def test_each_change_has_its_kind(volume: RWVolume, place: Path) -> None:
    work_in(volume.path)
    changes = list(volume.diff())
    found = {each.path: (each.kind, each.what) for each in changes}
    [moved] = [each for each in changes if each.kind == "renamed"]
    assert (moved.old_path, moved.path, moved.what) == ("/moved", "/dir/moved here", ())
    assert {path: kind for path, (kind, _) in found.items() if path != moved.path} == {
        "/added": "added",
        "/many": "added",
        "/many/small": "added",
        "/changed": "changed",
        "/large": "changed",
        "/mode": "changed",
        "/dir/removed": "removed",
        "/gone": "removed",
        "/gone/deep": "removed",
        "/link": "changed",
    }
    assert found["/mode"][1] == ("mode",)
    assert "target" in found["/link"][1]
    assert {"/same", "/dir/other name"} <= {each.path for each in volume.diff(times=True)}
    [large] = [each for each in changes if each.path == "/large"]
    assert 0 < large.added_bytes < len(LARGE) / 2, "in chunks, as a commit stores them"


def test_nothing_has_changed(volume: RWVolume, place: Path) -> None:
    first = Volume.version("data")
    assert list(volume.diff(times=True)) == []
    assert list(volume.diff(first, times=True)) == []
    (volume.path / "same").write_text("same\n")
    assert named(list(volume.diff())) == [], "it has the same content"
    fresh: RWVolume = Volume.new("fresh")
    root = fresh.mount(mode="copy")
    assert list(fresh.diff()) == []
    (root / "file").write_text("x")
    assert named(list(fresh.diff())) == [("added", "/file")], "before the first version"


def test_of_an_async_volume_it_is_the_same(volume: RWVolume) -> None:
    work_in(volume.path)
    wanted = list(volume.diff())

    async def body() -> list[Change]:
        return [each async for each in cowfs.Volume.open("data").diff()]

    assert anyio.run(body) == wanted


def test_an_encrypted_store_names_its_chunks_in_its_own_way(place: Path) -> None:
    key = place / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    store = storage.Local(place / "sealed", encryption_key=KeyFile(key))
    volume = filled(Volume.new("data", store=store))
    first = Volume.version("data", store=store)
    (volume.path / "same").write_text("same\n")
    (volume.path / "large").write_bytes(LARGE)
    assert list(volume.diff()) == []
    work_in(volume.path)
    told = list(volume.diff())
    assert told == list(first.diff(volume.commit()))


def test_whoever_goes_on_with_the_volume_is_in_nobodys_way(
    volume: RWVolume, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told is what was done here."""
    (volume.path / "mine").write_text("x")
    with pytest.MonkeyPatch.context() as elsewhere:
        for variable in ("COWFS_CACHE_DIR", "COWFS_STATE_DIR", "XDG_RUNTIME_DIR"):
            elsewhere.setenv(variable, str(place / "elsewhere" / variable))
        other = Volume.open("data")
        other.files.write("theirs", b"published")
        assert other.commit().is_new
        with elsewhere.context() as here:
            for variable, path in (
                ("COWFS_CACHE_DIR", "c"),
                ("COWFS_STATE_DIR", "c/state"),
                ("XDG_RUNTIME_DIR", "run"),
            ):
                here.setenv(variable, str(place / path))
            assert named(list(volume.diff())) == [("added", "/mine")], "while somebody else writes"
        other.unmount()
    assert named(list(volume.diff())) == [("added", "/mine")]
    newest = Volume.version("data")
    assert named(list(volume.diff(newest))) == [("added", "/mine"), ("removed", "/theirs")]
    with pytest.raises(ConflictError):
        volume.commit()


def test_a_commit_whose_outcome_was_not_learnt_is_what_the_work_stands_on(
    volume: RWVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cowfs.machine.working_copy import WorkingCopy

    (volume.path / "published").write_text("x")
    with monkeypatch.context() as dying:
        dying.setattr(WorkingCopy, "record_published", _fails)
        with pytest.raises(KeyboardInterrupt):
            volume.commit()
    assert list(volume.diff()) == []
    (volume.path / "later").write_text("x")
    assert named(list(volume.diff())) == [("added", "/later")]


def _fails(*_: object) -> None:
    raise KeyboardInterrupt


def test_what_is_not_there_is_an_error(volume: RWVolume, place: Path) -> None:
    with pytest.raises(NotFoundError):
        list(volume.diff(path="no/where"))
    root = volume.path
    root.rename(place / "away")
    with pytest.raises(InvalidStateError, match="not there any more"):
        list(volume.diff())
    (place / "away").rename(root)
    assert list(volume.diff()) == []


def test_a_file_that_never_stands_still_is_an_error(volume: RWVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    (volume.path / "large").write_bytes(LARGE + b"more")
    settle: Callable[[SourceFile], object] = SourceFile.settle
    monkeypatch.setattr(SourceFile, "settle", lambda self: settle(self) and None)
    with pytest.raises(ConflictError, match="written to while it was read"):
        list(volume.diff())


@pytest.mark.parametrize("is_mounted", [True, False])
def test_into_a_copy_nothing_is_restored_and_why_is_told(volume: RWVolume, *, is_mounted: bool) -> None:
    first: ROVolume = Volume.version("data")
    (volume.path / "second").write_text("two\n")
    volume.commit()
    root = volume.path
    (root / "mine").write_text("x")
    if not is_mounted:
        volume.unmount()
    for take_back in (partial(Store().restore, "data", first, to="copy"), partial(Store().rollback, "data", first)):
        for is_dry in (True, False):
            with pytest.raises(ConflictError if is_mounted else InvalidStateError) as refused:
                take_back(dry_run=is_dry)
            assert f"copy at {root}: nothing is restored into a copy" in str(refused.value)
            to_publish = "cowfs unmount data --commit" if is_mounted else "cowfs commit data"
            assert f"`{to_publish}`" in str(refused.value.hint)
            assert ("is mounted as" in str(refused.value)) == is_mounted
    volume.finalize()
    assert Store().restore("data", first, to="copy").is_new
