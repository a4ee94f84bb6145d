"""Work that lies below a `meta_dir`, or in two places, is found or told of: no version without it
passes for all of it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from cowfs.api.mounts import rescue
from cowfs.api.upkeep import copied_stores
from cowfs.blocking import Store, Volume
from cowfs.errors import (
    CorruptError,
    InvalidInputError,
    InvalidStateError,
    LeaseHeldError,
    NotFoundError,
    UnavailableError,
)
from cowfs.machine import meta_dirs, mount_table
from cowfs.machine.lock import LockHolder
from cowfs.machine.working_copy import WorkingCopy
from cowfs.storage import accept_store

pytestmark = [pytest.mark.mount, pytest.mark.usefixtures("place")]


def left(name: str, text: str, **options: Path) -> None:
    """Leaves uncommitted work behind, as a process that is not there any more."""
    vol = Volume.open(name, create=True)
    (vol.mount(**options) / text).write_text(text)  # type: ignore[arg-type]
    vol.unmount()


def names(version: object) -> list[str]:
    from cowfs.blocking import ROVolume

    assert isinstance(version, ROVolume)
    with version:
        return sorted(each.name for each in version.path.iterdir())


def test_work_below_a_meta_dir_is_committed_without_naming_it(place: Path) -> None:
    left("data", "one", meta_dir=place / "meta")
    volume = Volume.open("data").resolve()
    assert volume.has_changes()
    status = volume.status()
    assert status is not None
    assert status.working_copy is not None
    assert Path(status.working_copy).parent == place / "meta" / "working"
    version = volume.commit()
    assert names(version) == ["one"]
    assert meta_dirs.list_remembered() == [], "nothing is left there"


def test_work_below_a_meta_dir_is_mounted_again_without_naming_it(place: Path) -> None:
    left("data", "one", meta_dir=place / "meta")
    again = Volume.open("data")
    assert [each.name for each in again.mount().iterdir()] == ["one"]
    again.discard()
    assert meta_dirs.list_remembered() == []
    assert not Volume.open("data").has_changes()


def test_work_below_a_meta_dir_moves_to_a_fork_there(place: Path) -> None:
    """A rename to another file system would fail."""
    left("data", "one", meta_dir=place / "meta")
    writer = Volume.open("data")
    (writer.mount(meta_dir=place / "theirs", take_over=True) / "two").write_text("two")
    writer.finalize()
    fork = Volume.open("data").fork("saved")
    assert [path.parent for path in meta_dirs.list_remembered()] == [place / "meta" / "working"]
    assert names(fork.commit()) == ["one"]


def test_a_fork_that_cannot_have_the_work_makes_no_volume() -> None:
    left("data", "one")
    volume = Volume.open("data").resolve()
    kept, store = volume._handle.working_copy(), volume._handle.opened
    with WorkingCopy(kept.path).lock(LockHolder.this_process("/mnt")), pytest.raises(LeaseHeldError):
        rescue.fork(store, kept, "saved", strict=True)
    assert [each.name for each in Store().volumes()] == ["data"]
    head, _ = rescue.fork(store, kept, "saved", strict=True)
    assert head.volume == "saved"
    assert Volume.open("saved").has_changes()


def test_a_place_that_is_not_there_is_told_of_and_no_version_made_without_it(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left("data", "one", meta_dir=place / "meta")
    (place / "meta").rename(place / "unplugged")
    volume = Volume.open("data").resolve()
    for attempt in (volume.commit, volume.finalize, lambda: volume.fork("copy")):
        with pytest.raises(UnavailableError, match="not there now") as caught:
            attempt()
        assert "--discard" in caught.value.hint
    assert volume.history() == []
    volume.mount()
    assert "not there now" in caplog.text, "a mount goes on, and says it"
    volume.unmount()

    (place / "unplugged").rename(place / "meta")
    assert names(Volume.open("data").commit()) == ["one"]


def test_a_journal_that_was_put_away_is_whole_or_refused() -> None:
    """Also where its end is what was damaged: that could be what a crash leaves."""
    left("data", "one")
    left("data", "two")
    kept = Volume.open("data").resolve()._handle.working_copy()
    whole = {path: path.read_bytes() for path in kept.journal_dir.iterdir()}
    for path, data in whole.items():
        middle = len(data) // 2
        flipped = data[:-20] + bytes([data[-20] ^ 1]) + data[-19:]
        for damaged in (data[:-1], data[:middle], data[: middle - 40], b"", flipped, None):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            with pytest.raises(CorruptError, match="damaged") as caught:
                Volume.open("data").commit()
            assert "moved away" in caught.value.hint
        path.write_bytes(data)
    assert names(Volume.open("data").commit()) == ["one", "two"]


def test_a_place_that_is_gone_for_good_is_given_up_by_discarding(place: Path) -> None:
    left("data", "one", meta_dir=place / "meta")
    shutil.rmtree(place / "meta")
    assert Volume.open("data").has_changes()
    Volume.open("data").discard()
    assert names(Volume.open("data").commit()) == []


def test_work_in_two_places_is_told_of(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    left("data", "usual")
    assert "also lies in" not in caplog.text
    left("data", "other", meta_dir=place / "meta")
    assert "also lies in" in caplog.text
    with pytest.raises(InvalidStateError, match="two places"):
        Volume.open("data").commit()
    volume = Volume.open("data")
    assert [each.name for each in volume.mount(meta_dir=place / "meta").iterdir()] == ["other"]
    assert names(volume.finalize()) == ["other"]
    assert names(Volume.open("data").fork("saved").commit()) == ["usual"]


def test_a_place_is_not_forgotten_when_something_else_is_made_there(place: Path) -> None:
    """A disk that is not attached, below whose path another volume is mounted meanwhile."""
    left("data", "one", meta_dir=place / "disk" / "meta")
    (place / "disk").rename(place / "away")
    left("other", "two", meta_dir=place / "disk" / "meta")
    with pytest.raises(UnavailableError, match="not there now"):
        Volume.open("data").commit()
    shutil.rmtree(place / "disk")
    (place / "away").rename(place / "disk")
    assert names(Volume.open("data").commit()) == ["one"]


def test_a_mount_without_the_work_that_was_at_its_place_says_so(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    left("data", "one", meta_dir=place / "meta")
    (place / "meta").rename(place / "away")
    again = Volume.open("data")
    again.mount(meta_dir=place / "meta")
    assert "not there now" in caplog.text
    again.unmount()


def test_a_missing_place_is_given_up_without_the_work_that_is_there(place: Path) -> None:
    left("data", "one", meta_dir=place / "meta")
    (place / "meta").rename(place / "gone")
    left("data", "precious")
    volume = Volume.open("data").resolve()
    with pytest.raises(UnavailableError) as missing:
        volume.commit()
    assert f"cowfs unmount data --discard --meta-dir {place / 'meta'}" in missing.value.hint
    with pytest.raises(InvalidStateError, match="several places") as refused:
        volume.discard()
    assert str(place / "meta") in refused.value.message
    assert f"--meta-dir {place / 'meta'}" in refused.value.hint
    command = shlex.split(missing.value.hint.split("`")[1])
    done = subprocess.run(
        [sys.executable, "-m", "cowfs.cli", *command[1:]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert names(Volume.open("data").commit()) == ["precious"]


def test_no_reachable_work_is_discarded_that_nobody_named(place: Path) -> None:
    left("data", "usual")
    left("data", "other", meta_dir=place / "meta")
    volume = Volume.open("data").resolve()
    with pytest.raises(InvalidStateError, match="several places"):
        volume.discard()
    with pytest.raises(NotFoundError, match="no uncommitted work"):
        volume.discard(meta_dir=place / "mistyped")
    with volume:
        volume.discard(meta_dir=place / "meta")
        assert volume.is_mounted, "that was of another place"
    assert names(Volume.open("data").commit()) == ["usual"]


@pytest.mark.parametrize("mode", ["fuse", "copy"])
def test_work_on_a_version_that_the_store_has_not_any_more_is_told_of(
    place: Path, mode: Literal["fuse", "copy"]
) -> None:
    """The store was put back to what it was before that version."""
    store, later = place / "store", place / "later"
    volume = Volume.open("data", create=True)
    first = volume.commit("first")
    shutil.copytree(store, place / "backup")
    (volume.mount(place / "mnt" / "data", mode=mode) / "one").write_text("1")
    version = volume.commit("second")
    Store().push("data", place / "mirror")
    (volume.path / "two").write_text("2")
    volume.unmount()
    kept = place / "mnt" / "data" if mode == "copy" else volume._handle.working_copy().path
    store.rename(later)
    (place / "backup").rename(store)
    with pytest.raises(InvalidStateError, match="was put back to an earlier state"):
        volume.fork("saved")
    accept_store(store)
    uses: list[Callable[[], object]] = [
        volume.commit,
        volume.mount,
        lambda: list(volume.diff()),
        lambda: volume.fork("saved"),
    ]
    told = "Uncommitted work of volume 'data', which stands on that version, is kept on this machine, in "
    for use in uses if mode == "fuse" else uses[2:]:  # of a copy the others say that it was overtaken
        with pytest.raises(NotFoundError, match=f"has no version {version.id}") as caught:
            use()
        assert f"{told}{kept}" in caught.value.message
        assert "`cowfs unmount data --discard`" in caught.value.hint
    assert volume.history()[0].id == first.id
    Store(place / "mirror").push(f"data@{version.id[:12]}", store, name="back")
    assert (Volume.open("data").mount(place / "mnt" / "data", mode=mode) / "two").read_text() == "2"
    Volume.open("data").unmount()
    store.rename(place / "backup")
    later.rename(store)
    accept_store(store)
    assert names(volume.commit()) == ["one", "two"]


def copied(place: Path) -> Path:
    """The default store, copied as it is."""
    shutil.copytree(place / "store", place / "copy")
    return place / "copy"


def test_work_of_a_store_is_not_taken_for_that_of_its_copy(place: Path) -> None:
    original = Volume.new("data")
    first = original.commit()
    copy = copied(place)
    original.files.write("work", b"kept")
    for state in ("open in this process", "kept"):
        theirs = Volume.open("data", store=copy).resolve()
        assert not theirs.is_mounted, state
        assert theirs.history()[0].id == first.id
        uses = (
            theirs.commit,
            theirs.discard,
            theirs.mount,
            theirs.has_changes,
            lambda at=theirs: at.files.write("work", b"other"),
            lambda at=theirs: list(at.diff()),
            lambda: Store(str(copy)).copy(str(place / "home"), "data:"),
        )
        for use in uses:
            with pytest.raises(InvalidStateError, match=rf"{place}/store; file://{copy} is another place") as caught:
                use()
            assert f"--store file://{place}/store" in caught.value.hint
        assert original.files.read("work") == b"kept"
        original.unmount()
    Store(copy).delete("data")
    Store(copy).undelete("data")
    original.commit()
    assert [each.id for each in original.history()][1:] == [first.id]
    assert not Volume.open("data", store=copy).has_changes()


def test_a_copy_without_work_is_not_unmounted_as_one_of_the_copied_store(place: Path) -> None:
    volume = Volume.new("data")
    volume.commit()
    store = copied(place)
    path = volume.mount(place / "mnt" / "data", mode="copy")
    theirs = Volume.open("data", store=store).resolve()
    for use in (theirs.discard, theirs.unmount, theirs.mount):
        with pytest.raises(InvalidStateError, match="is another place"):
            use()
    assert volume.path == path


def test_a_mount_of_a_store_is_not_one_of_its_copy(place: Path) -> None:
    original = Volume.new("data")
    original.commit()
    copy = copied(place)
    (original.mount() / "work").write_text("mine")
    theirs = Volume.open("data", store=copy).resolve()
    for use in (theirs.commit, theirs.discard, theirs.unmount, theirs.mount):
        with pytest.raises(InvalidStateError, match="is another place"):
            use()
    assert not theirs.is_mounted
    assert (original.path / "work").read_text() == "mine"
    (theirs.mount(meta_dir=place / "meta") / "theirs").write_text("theirs")
    assert names(Volume.open("data", store=copy).commit()) == ["theirs"]
    theirs.unmount()
    assert names(original.commit()) == ["work"]


def test_a_store_that_has_two_paths_is_one(place: Path) -> None:
    original = Volume.new("data")
    original.commit()
    (place / "link").symlink_to(place / "store")
    original.files.write("work", b"1")
    linked = Volume.open("data", store=place / "link")
    assert linked.files.read("work") == b"1"
    original.unmount()
    assert linked.has_changes()
    assert names(linked.commit()) == ["work"]


def test_work_goes_on_where_its_store_was_moved_to(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left("data", "one")
    (place / "store").rename(place / "moved")
    monkeypatch.setenv("COWFS_STORE", str(place / "moved"))
    Volume.new("other", store=place / "other").resolve()
    (place / "other").rename(place / "store")  # another store, where that one was
    assert names(Volume.open("data").commit()) == ["one"]


def test_a_store_and_its_copy_are_two_for_what_takes_two(place: Path) -> None:
    volume = Volume.new("data")
    volume.commit()
    copy = copied(place)
    volume.files.write("more", b"1")
    version = volume.commit()
    assert Store().push("data", copy).is_new
    assert Volume.version("data", store=copy).id == version.id
    pack = max((copy / "packs").rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
    pack.unlink()
    assert not Store(copy).verify().is_sound
    assert Store(copy).repair(Store(copy).plan_repair(sources=[place / "store"])).is_sound
    with pytest.raises(InvalidInputError, match="where the version is already"):
        Store().push("data", place / "store")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://a;endpoint=http%3A%2F%2Fhost%3A1/p", "s3://b;endpoint=http%3A%2F%2Fhost%3A1/p"),
        ("gs://a/p", "gs://a/q"),
        ("abfs://c@account/p", "az://c@account/q"),
        ("file:///nothing/here", "file:///nothing/there"),
    ],
)
def test_places_are_two_only_where_that_is_certain(one: str, other: str) -> None:
    assert not copied_stores.are_apart(one, other)


def test_what_may_not_answer_is_not_touched(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe, which nobody writes to, stands for a file system of a network."""
    Volume.new("data").resolve()
    copy, silent = copied(place), place / "silent"
    silent.mkdir()
    os.mkfifo(silent / "cowfs.json")
    seems_local = mount_table.seems_local
    monkeypatch.setattr(mount_table, "seems_local", lambda path: "silent" not in path and seems_local(path))
    assert copied_stores.are_apart(f"file://{place}/store", copy.as_uri())
    assert not copied_stores.are_apart(silent.as_uri(), copy.as_uri())
    assert not mount_table.seems_local("/proc/self")


def test_a_session_of_a_store_is_not_one_of_its_copy(place: Path) -> None:
    """Each has work below a directory of its own."""
    original = Volume.new("data")
    original.commit()
    copy = copied(place)
    left("data", "first", meta_dir=place / "meta")
    theirs = Volume.open("data", store=copy)
    (theirs.mount(meta_dir=place / "theirs") / "work").write_text("theirs")
    theirs.unmount()
    original = Volume.open("data")
    original.files.write("work", b"mine")
    for use in (
        lambda: Volume.open("data", store=copy).files.write("work", b"other"),
        Volume.open("data", store=copy).commit,
        lambda: list(Volume.open("data", store=copy).diff()),
    ):
        with pytest.raises(InvalidStateError, match="is another place"):
            use()
    assert original.files.read("work") == b"mine"
    original.unmount()
    assert names(Volume.open("data", store=copy).commit()) == ["work"]
    assert names(Volume.open("data").commit()) == ["first", "work"]
