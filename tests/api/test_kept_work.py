"""Work that lies below a `meta_dir`, or in two places, is found or told of: no version without it
passes for all of it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cowfs.api import rescue
from cowfs.blocking import Volume
from cowfs.errors import CorruptError, InvalidStateError, LeaseHeldError, NotFoundError, UnavailableError
from cowfs.machine import places
from cowfs.machine.lock import LockHolder
from cowfs.machine.working_copy import WorkingCopy

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
    assert places.remembered() == [], "nothing is left there"


def test_work_below_a_meta_dir_is_mounted_again_without_naming_it(place: Path) -> None:
    left("data", "one", meta_dir=place / "meta")
    again = Volume.open("data")
    assert [each.name for each in again.mount().iterdir()] == ["one"]
    again.discard()
    assert places.remembered() == []
    assert not Volume.open("data").has_changes()


def test_work_below_a_meta_dir_moves_to_a_fork_there(place: Path) -> None:
    """A rename to another file system would fail."""
    left("data", "one", meta_dir=place / "meta")
    writer = Volume.open("data")
    (writer.mount(meta_dir=place / "theirs", take_over=True) / "two").write_text("two")
    writer.finalize()
    fork = Volume.open("data").fork("saved")
    assert [path.parent for path in places.remembered()] == [place / "meta" / "working"]
    assert names(fork.commit()) == ["one"]


def test_a_fork_that_cannot_have_the_work_makes_no_volume() -> None:
    left("data", "one")
    volume = Volume.open("data").resolve()
    kept, store = volume._working_copy(), volume._opened()
    with WorkingCopy(kept.path).lock(LockHolder.this_process("/mnt")), pytest.raises(LeaseHeldError):
        rescue.fork(store, kept, "saved", strict=True)
    assert [each.name for each in Volume.list()] == ["data"]
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
    kept = Volume.open("data").resolve()._working_copy()
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


def test_work_below_both_state_directories_is_told_of(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left("data", "earlier")  # COWFS_CACHE_DIR/state
    monkeypatch.setenv("COWFS_STATE_DIR", str(place / "elsewhere"))
    volume = Volume.open("data")
    monkeypatch.setenv("COWFS_CACHE_DIR", str(place / "other-cache"))
    (volume.mount() / "new").write_text("new")
    volume.unmount()
    monkeypatch.setenv("COWFS_CACHE_DIR", str(place / "c"))
    assert "also lies in" not in caplog.text
    again = Volume.open("data")
    assert [each.name for each in again.mount().iterdir()] == ["new"]
    assert f"also lies in {place / 'c' / 'state'}" in caplog.text
    again.discard()
    with pytest.raises(InvalidStateError, match="not mounted"):
        _ = again.path
    assert names(Volume.open("data").commit()) == ["earlier"]


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
