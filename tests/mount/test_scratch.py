"""Scratch mounts: a version that is written to, of which nothing is left, unless it is committed as
a new volume."""

from __future__ import annotations

import os
import pickle
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cowfs.api.mounts import overview
from cowfs.api.mounts.base import mount_of
from cowfs.api.mounts.summaries import MountSummary
from cowfs.api.versions import details
from cowfs.blocking import ROVolume, Store, Volume
from cowfs.errors import (
    ConflictError,
    InvalidInputError,
    InvalidStateError,
    LeaseHeldError,
    LeaseLostError,
    UnavailableError,
)
from cowfs.machine import mount_table, registry
from cowfs.machine.processes import wait_gone
from cowfs.version.commit import CommitRequest
from tests.api.conftest import place

__all__ = ["place"]

pytestmark = [pytest.mark.mount, pytest.mark.usefixtures("place")]

WRITER = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1], timeout=60) as db:
    for number in range(50):
        db.execute("INSERT INTO t VALUES (?)", (number,))
        db.commit()
"""


@pytest.fixture
def version() -> ROVolume:
    with Volume.new("data") as volume:
        (volume / "dir").mkdir()
        (volume / "dir" / "file").write_text("one")
        (volume / "large").write_bytes(bytes(range(256)) * 8192)
        return volume.finalize("one")


def objects(place: Path) -> dict[str, int]:
    """What lies in the store, and when it was last written."""
    store = place / "store"
    return {str(path.relative_to(store)): path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}


def scratches(place: Path) -> list[str]:
    directory = place / "c" / "state" / "scratch"
    return os.listdir(directory) if directory.exists() else []


@pytest.mark.parametrize("fast_lane", [True, False])
def test_a_scratch_is_written_to_and_leaves_nothing(version: ROVolume, place: Path, *, fast_lane: bool) -> None:
    before = objects(place)
    path = version.mount(scratch=True, fast_lane=fast_lane)
    assert path != Volume.from_locator(version.locator).mount(), "a reader beside it has a path of its own"
    (path / "dir" / "file").write_text("two")
    (path / "new").write_bytes(os.urandom(3 << 20))
    with open(path / "large", "r+b") as large:
        large.seek(1 << 20)
        large.write(b"overwritten")
        os.fsync(large.fileno())
    os.rename(path / "dir", path / "moved")
    assert (path / "moved" / "file").read_text() == "two"
    assert (path / "large").read_bytes()[1 << 20 : (1 << 20) + 11] == b"overwritten"
    assert len(scratches(place)) == 1
    with Volume.open("data") as volume:
        assert (volume / "dir" / "file").read_text() == "one", "the volume has its writer all the same"
    assert [each.kind for each in overview.status().mounts] == ["scratch", "fuse"]
    version.unmount()
    assert not path.exists()
    assert scratches(place) == []
    after = objects(place)
    made = {key for key in after.keys() - before.keys() if "/lease/" not in key and "pins/" not in key}
    assert not {key for key in made if "volumes/data/" not in key}, (
        "nothing in the store that the volume's mount has not made"
    )
    assert Volume.version("data") == version


def test_nothing_is_in_the_store_of_a_scratch_alone(version: ROVolume, place: Path) -> None:
    before = objects(place)
    path = version.mount(scratch=True)
    (path / "new").write_bytes(os.urandom(1 << 20))
    assert overview.status().mounts[0].has_uncommitted is None
    version.unmount()
    assert objects(place) == before


def test_databases_and_builds_work_on_a_version(version: ROVolume, place: Path) -> None:
    with Volume.new("base") as volume:
        with sqlite3.connect(volume / "db") as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("CREATE TABLE t (x)")
        db.close()
        base = volume.finalize()
    path = base.mount(place / "mnt" / "s", scratch=True)
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, path / "db"]) for _ in range(2)]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    with sqlite3.connect(path / "db") as db:
        assert db.execute("SELECT count(*) FROM t").fetchone() == (100,)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
    git: list[str | Path] = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-C", path]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"], ["gc", "-q"], ["fsck", "--strict"]):
        done = subprocess.run([*git, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done
    base.unmount()
    with base:
        assert sorted(os.listdir(base)) == ["db"]


def test_a_scratch_becomes_a_volume(version: ROVolume, place: Path) -> None:
    path = version.mount(scratch=True)
    (path / "dir" / "file").write_text("two")
    first = version.commit_scratch("from a scratch", name="made")
    assert (first.name, first.parents, first.message, first.is_new) == ("made", [version.id], "from a scratch", True)
    (path / "more").write_text("more")
    second = version.commit_scratch("more")
    assert (second.name, second.parents) == ("made", [first.id])
    assert version.commit_scratch() == second
    assert (overview.status().mounts[0].volume, overview.status().mounts[0].has_uncommitted) == ("made", False)
    with pytest.raises(LeaseHeldError):
        Volume.open("made").mount()
    (path / "lost").write_text("gone")
    assert overview.status().mounts[0].has_uncommitted is True
    version.unmount()
    assert scratches(place) == []
    with Volume.open("made") as volume:
        assert sorted(os.listdir(volume)) == ["dir", "large", "more"]
        assert (volume / "dir" / "file").read_text() == "two"
        assert [each.id for each in volume.history()] == [second.id, first.id, version.id]
    assert Volume.version("data") == version


def writer_of(version: ROVolume, kind: str) -> Path:
    """Mounts what writes to the new volume "made"."""
    if kind == "volume":
        return version.fork("made").mount()
    path = version.mount(scratch=True)
    version.commit_scratch(name="made")
    return path


@pytest.mark.parametrize("kind", ["volume", "scratch"])
def test_what_writes_to_a_volume_is_found_by_its_name(version: ROVolume, place: Path, kind: str) -> None:
    """As any mount of the volume: the work in it is the volume's."""
    path = writer_of(version, kind)
    made = Volume.open("made")
    assert (made.is_mounted, made.path, made.has_changes()) == (True, path, False)
    (path / "one").write_text("1")
    assert (made.has_changes(), [each.path for each in made.diff()]) == (True, ["/one"])
    status = made.status()
    assert isinstance(status, MountSummary)
    assert (status.mount_path, status.volume, status.has_uncommitted) == (str(path), "made", True)
    assert [each.mount_path for each in details.find("made").mounts] == [str(path)]
    assert made.files.read("one") == b"1"
    made.files.write("two", b"2")
    assert (path / "two").read_bytes() == b"2"
    first = made.commit("by name")
    assert (first.name, first.parents, first.is_new, made.has_changes()) == ("made", [version.id], True, False)
    assert Volume.open("made").commit() == first
    (path / "three").write_text("3")
    fork = Volume.open("made").fork("fork")
    assert fork.forked_from is not None
    assert (fork.files.read("three"), fork.forked_from.parents) == (b"3", [first.id])
    with pytest.raises(InvalidStateError, match="mounted"):
        Store().delete("made")
    with pytest.raises(InvalidStateError, match="mounted"):
        pickle.dumps(made)
    (path / "four").write_text("4")
    last = Volume.open("made").finalize("the end")
    assert not mount_table.mount_at(str(path)) or kind == "scratch", "which the object that made it shares"
    with last:
        assert (last / "four").read_text() == "4"
    version.unmount()
    fork.unmount()
    assert not Volume.open("made").is_mounted


def test_uncommitted_work_of_a_scratch_is_not_dropped_by_the_volumes_name(version: ROVolume) -> None:
    path = writer_of(version, "scratch")
    (path / "new").write_text("x")
    made = Volume.open("made")
    with pytest.raises(InvalidStateError, match="drop what is not committed"):
        made.unmount()
    with pytest.raises(LeaseHeldError) as caught:
        made.mount()
    assert (f"Work at {path}" in caught.value.hint, "stays on its machine" in caught.value.hint) == (True, False)
    with pytest.raises(LeaseHeldError):
        made.mount(meta_dir=path.parent)
    assert (path / "new").read_text() == "x"
    made.commit()
    made.unmount()
    assert mount_table.mount_at(str(path)) is None

    path = version.mount(scratch=True)
    other = version.commit_scratch(name="other").name
    (path / "dropped").write_text("x")
    Volume.open(other).discard()
    assert mount_table.mount_at(str(path)) is None


def test_a_scratch_that_goes_on_with_another_volume_leaves_the_name_before(version: ROVolume) -> None:
    path = writer_of(version, "scratch")
    made = Volume.open("made").resolve()
    entry = made._handle.live()
    assert entry is not None
    version.commit_scratch(name="other")
    assert (made.is_mounted, Volume.open("other").path) == (False, path)
    (path / "new").write_text("x")
    assert not made.has_changes()
    with pytest.raises(ConflictError, match="does not write to made any more, but to other"):
        mount_of(entry).commit(CommitRequest())
    version.unmount()


def test_a_volume_that_was_taken_over_from_a_scratch_is_the_new_writers(version: ROVolume) -> None:
    path = writer_of(version, "scratch")
    (path / "work").write_text("of the scratch")
    thief = Volume.open("made")
    theirs = thief.mount(take_over=True)
    assert (Volume.open("made").path, thief.has_changes()) == (theirs, False)
    (theirs / "theirs").write_text("x")
    thief.finalize()
    made = Volume.open("made")
    assert (made.path, made.has_changes()) == (path, True)
    for refused in (made.commit, made.fork):
        with pytest.raises(LeaseLostError) as caught:
            refused()
        assert f"`cowfs commit {path} --name NAME`" in caught.value.hint
    assert (path / "work").read_text() == "of the scratch"
    with made:
        assert (made / "theirs").exists(), "it is not in the way of a mount"
    version.unmount()


def test_names_of_committed_scratches(version: ROVolume) -> None:
    one, other = (Volume.from_locator(version.locator) for _ in range(2))
    paths = [each.mount(scratch=True) for each in (one, other)]
    for number, path in enumerate(paths):
        (path / "mine").write_text(str(number))
    with pytest.raises(ConflictError):
        one.commit_scratch(name="data", strict=True)
    taken, made_up = one.commit_scratch(name="data"), other.commit_scratch()
    for number, made in enumerate((taken, made_up)):
        assert made.name.startswith("data-")
        with made:
            assert (made / "mine").read_text() == str(number), "each has its own"
    for each in (one, other):
        each.unmount()


def test_another_name_makes_another_volume_from_there_on(version: ROVolume) -> None:
    path = version.mount(scratch=True)
    (path / "one").write_text("1")
    one = version.commit_scratch("1", name="one")
    (path / "two").write_text("2")
    two = version.commit_scratch("2", name="two")
    (path / "three").write_text("3")
    three = version.commit_scratch("3", name="two")
    assert [(each.name, each.parents) for each in (one, two, three)] == [
        ("one", [version.id]),
        ("two", [one.id]),
        ("two", [two.id]),
    ]
    with Volume.open("one") as volume:
        assert sorted(os.listdir(volume)) == ["dir", "large", "one"], "it has no writer any more"
    version.unmount()
    with three:
        assert sorted(os.listdir(three)) == ["dir", "large", "one", "three", "two"]


def test_commits_at_once_under_several_names_make_a_volume_each(version: ROVolume) -> None:
    path = version.mount(scratch=True)
    (path / "new").write_text("x")
    wanted = [f"at-once-{number}" for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda name: version.commit_scratch("m", name=name), wanted))
    assert [each.name for each in made] == wanted
    for each in made:
        assert Volume.from_locator(each.locator).history()[0].id == each.id
        head = Volume.open(each.name).resolve()
        assert head.locator == each.locator
    version.unmount()


def test_a_scratch_whose_volume_was_taken_over_is_committed_under_another_name(version: ROVolume) -> None:
    path = version.mount(scratch=True)
    (path / "first").write_text("first")
    first = version.commit_scratch(name="taken")
    thief = Volume.open("taken")
    (thief.mount(take_over=True) / "theirs").write_text("theirs")
    theirs = thief.finalize("theirs")
    (path / "work").write_text("mine")
    with pytest.raises(LeaseLostError) as lost:
        version.commit_scratch()
    assert "--name" in lost.value.hint
    saved = version.commit_scratch(name="saved")
    assert saved.parents == theirs.parents == [first.id]
    version.unmount()
    with saved:
        assert sorted(os.listdir(saved)) == ["dir", "first", "large", "work"]
    assert Volume.version("taken") == theirs


def test_nothing_written_is_a_fork(version: ROVolume) -> None:
    version.mount(scratch=True)
    same = version.commit_scratch(name="same")
    assert (same.id, same.name, same.is_new) == (version.id, "same", False)
    version.unmount()
    assert Volume.version("same").id == version.id


def test_what_a_killed_daemon_leaves_is_cleared_by_the_next_look(version: ROVolume, place: Path) -> None:
    path = version.mount(scratch=True)
    (path / "new").write_bytes(os.urandom(1 << 20))
    assert version._started is not None
    os.kill(version._started.pid, signal.SIGKILL)
    assert wait_gone(version._started.pid, 60)
    assert len(scratches(place)) == 1
    found = overview.status()
    assert (found.mounts, found.working_copies, [each.mount_path for each in found.dead_mounts]) == ([], [], [])
    assert scratches(place) == []
    assert mount_table.mount_at(str(path)) is None
    assert not path.exists(), "a default mount point goes too"
    assert (version.mount(scratch=True) / "dir" / "file").read_text() == "one"
    version.unmount()


def test_a_dead_one_of_another_state_directory_is_shown_as_one(
    version: ROVolume, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = version.mount(scratch=True)
    assert version._started is not None
    os.kill(version._started.pid, signal.SIGKILL)
    assert wait_gone(version._started.pid, 60)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("COWFS_STATE_DIR", str(place / "other"))
        found = {each.mount_path: each.kind for each in overview.status().dead_mounts}
    assert found[str(path)] == "scratch"
    overview.status()


@pytest.mark.parametrize(
    ("point", "is_published"),
    [("commit-before-packs", False), ("commit-before-head", False), ("commit-after-head", True)],
)
def test_a_daemon_that_dies_in_a_commit_leaves_a_whole_volume(
    version: ROVolume, place: Path, monkeypatch: pytest.MonkeyPatch, *, point: str, is_published: bool
) -> None:
    """The fork, or the fork with the commit; and whoever mounts it next is not kept waiting."""
    monkeypatch.setenv("COWFS_FAILPOINT", point)
    path = version.mount(scratch=True)
    monkeypatch.delenv("COWFS_FAILPOINT")
    (path / "new").write_text("new")
    with pytest.raises(UnavailableError) as caught:
        version.commit_scratch(name="made")
    assert "`cowfs log made`" in caught.value.hint
    assert "resumes" not in caught.value.hint
    assert version._started is not None
    assert wait_gone(version._started.pid, 60)
    assert str(path) not in [each.mount_path for each in overview.status().dead_mounts]
    assert scratches(place) == []
    with Volume.open("made") as volume:
        assert (volume / "new").exists() == is_published
        (volume / "goes").write_text("on")
    assert sorted(os.listdir(place / "home" / "cowfs")) == []


def test_the_next_scratch_clears_as_well(version: ROVolume, place: Path) -> None:
    path = version.mount(place / "mnt" / "s", scratch=True)
    assert version._started is not None
    os.kill(version._started.pid, signal.SIGKILL)
    assert wait_gone(version._started.pid, 60)
    other = Volume.from_locator(version.locator)
    other.mount(place / "mnt" / "t", scratch=True)
    assert len(scratches(place)) == 1, "its own"
    assert mount_table.mount_at(str(path)) is None
    overview.status()
    assert len(scratches(place)) == 1, "which lives"
    other.unmount()


def test_a_signal_ends_a_scratch_without_traces(version: ROVolume, place: Path) -> None:
    path = version.mount(place / "mnt" / "s", scratch=True)
    (path / "new").write_text("x")
    assert version._started is not None
    os.kill(version._started.pid, signal.SIGTERM)
    assert wait_gone(version._started.pid, 60)
    assert scratches(place) == []
    assert not registry.list_mounts()


def test_an_object_has_one_mount(version: ROVolume) -> None:
    path = version.mount(scratch=True)
    assert version.mount(scratch=True) == path
    with pytest.raises(InvalidStateError, match="as a scratch"):
        version.mount()
    version.unmount()
    with version, pytest.raises(InvalidStateError, match="read-only"):
        version.mount(scratch=True)
    with pytest.raises(InvalidStateError, match="no scratch mount"):
        version.commit_scratch(name="n")
    with pytest.raises(InvalidInputError, match="takes nothing over"):
        version.mount(scratch=True, take_over=True)  # type: ignore[call-arg]
