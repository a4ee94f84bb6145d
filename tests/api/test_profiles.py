"""What a job read is recorded, and fetched before the next one reads it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cowfs.blocking import ROVolume, Store, Volume
from cowfs.errors import AccessDeniedError, CorruptError, InvalidInputError, NotFoundError
from cowfs.format import profile
from cowfs.format.profile import ReadRange
from cowfs.machine.processes import wait_gone
from cowfs.session.profiles import profile_files
from tests.api.conftest import place

__all__ = ["place"]

pytestmark = [pytest.mark.usefixtures("place"), pytest.mark.mount]

LARGE = random.Random(1).randbytes(40_000_000)
SMALL = {f"{n:03}": random.Random(n).randbytes(3000) for n in range(200)}
WAIT_S = 60
BLOCK = 64 << 10


def made(place: Path) -> ROVolume:
    root = place / "source"
    (root / "small" / "deep").mkdir(parents=True)
    (root / "other").mkdir()
    (root / "large").write_bytes(LARGE)
    (root / "unread").write_bytes(random.Random(2).randbytes(5_000_000))
    for name, data in SMALL.items():
        (root / "small" / "deep" / name).write_bytes(data)
        (root / "other" / name).write_bytes(data[::-1])
    vol = Volume.new("data")
    vol.files.upload(root, "/")
    return vol.commit()


def job(root: Path) -> None:
    """Reads every other small file backwards, two ranges of a large one, and looks at a
    directory."""
    for name in sorted(SMALL, reverse=True)[::2]:
        assert (root / "small" / "deep" / name).read_bytes() == SMALL[name]
    fd = os.open(root / "large", os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for at in (20_000_000, 100):
            assert os.pread(fd, 10_000, at) == LARGE[at : at + 10_000]
    finally:
        os.close(fd)
    assert len(os.listdir(root / "other")) == 200


def recorded(place: Path, version: ROVolume, name: str = "profile", **options: Any) -> Path:
    file = place / name
    version.mount(place / "mnt" / "a", record=file, **options)
    job(version.path)
    version.unmount()
    return file


def cold(place: Path, version: ROVolume, monkeypatch: pytest.MonkeyPatch, cache: str) -> ROVolume:
    """The version, as a machine sees it that has read nothing of it."""
    monkeypatch.setenv("COWFS_CACHE_DIR", str(place / cache))
    return Volume.from_locator(version.locator)


@contextlib.contextmanager
def without_packs(place: Path) -> Iterator[None]:
    """Whoever asks the store for contents, or for a block of an index, fails."""
    (place / "store" / "packs").rename(place / "away")
    try:
        yield
    finally:
        (place / "away").rename(place / "store" / "packs")


def until(is_true: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def logged(place: Path) -> str:
    return "".join(log.read_text() for log in place.rglob("*.log"))


def cached_bytes(place: Path, cache: str) -> int:
    return sum(file.stat().st_size for file in (place / cache).rglob("*") if file.is_file())


@pytest.mark.parametrize("cache", ["cold", "warm"])
@pytest.mark.parametrize("fast_lane", [True, False])
def test_a_job_reads_without_the_store_what_it_read_before(
    place: Path, monkeypatch: pytest.MonkeyPatch, cache: str, fast_lane: bool
) -> None:
    version = made(place)
    if cache == "warm":
        version.warm()
        with version:  # files that are put together for passthrough
            (version.path / "large").read_bytes()
    else:
        version = cold(place, version, monkeypatch, "first")
    file = recorded(place, version, fast_lane=fast_lane)
    ranges = profile_files.load(file)
    read = [each.path.decode() for each in ranges if each.path.startswith(b"small/deep/")]
    assert read == [f"small/deep/{name}" for name in sorted(SMALL, reverse=True)[::2]]
    assert {each.path for each in ranges if each.length == 0} == {b"", b"small", b"small/deep", b"other"}
    there = cold(place, version, monkeypatch, "second")
    report = there.warm(replay=file)
    assert report.is_complete
    assert report.files == 101
    assert 300_000 < report.fetched_bytes < 10_000_000, "neither the rest of the large file, nor others"
    there.mount(place / "mnt" / "b")
    with without_packs(place):
        job(there.path)


def test_a_walk_needs_no_store_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up reads a directory whole, and so does the replay of one."""
    chance = random.Random(3)
    names = sorted(chance.randbytes(120).hex() for _ in range(8000))  # that do not compress: most of the index
    (place / "source" / "seen").mkdir(parents=True)
    for name in names:
        (place / "source" / "seen" / name).touch()
    vol = Volume.new("many")
    vol.files.upload(place / "source", "/")
    version = vol.commit()
    version.mount(place / "mnt" / "a", record=place / "profile")
    assert (version.path / "seen" / names[-1]).stat().st_size == 0
    version.unmount()
    assert {each.path for each in profile_files.load(place / "profile")} == {b"", b"seen"}
    there = cold(place, version, monkeypatch, "second")
    assert there.warm(replay=place / "profile").bytes == 0
    there.mount(place / "mnt" / "b")
    with without_packs(place):
        assert sorted(os.listdir(there.path / "seen")) == names


def test_a_mount_replays_in_the_background(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COWFS_LOG", "info")
    version = made(place)
    file = recorded(place, version)
    there = cold(place, version, monkeypatch, "second")
    there.mount(place / "mnt" / "b", replay=file, record=file)
    until(lambda: "replayed a profile" in logged(place))
    assert cached_bytes(place, "second") < 12_000_000
    with without_packs(place):
        job(there.path)
    there.unmount()
    again = [each.path for each in profile_files.load(file)]
    assert set(again) >= {f"small/deep/{name}".encode() for name in sorted(SMALL)[1::2]}


def test_another_version_has_some_of_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths that are gone are left out, and so is what is no file any more."""
    version = made(place)
    file = recorded(place, version)
    vol = Volume.open("data")
    with vol:
        deep = vol.path / "small" / "deep"
        for name in sorted(SMALL)[:100]:
            (deep / name).unlink()
        (deep / "150").unlink()
        (deep / "150").symlink_to("151")
        (deep / "151").write_bytes(b"")
        for path in (vol.path / "other").iterdir():
            path.unlink()
        (vol.path / "other").rmdir()
        (vol.path / "large").write_bytes(LARGE[:15_000_000])
        newer = vol.commit()
    there = cold(place, newer, monkeypatch, "second")
    report = there.warm(replay=file)
    assert report.is_complete
    kept = [name for name in sorted(SMALL)[1::2] if name >= "100" and name != "151"]
    assert report.files == len(kept) + 1
    there.mount(place / "mnt" / "b")
    with without_packs(place):
        assert all((there.path / "small" / "deep" / name).read_bytes() == SMALL[name] for name in kept)


def test_a_folder_has_its_part(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in a profile begin at the version's root, whatever of it was mounted."""
    monkeypatch.setenv("COWFS_LOG", "info")
    version = made(place)
    folder = Volume.from_locator(f"{version.locator}/small")
    folder.mount(place / "mnt" / "a", record=place / "profile")
    assert (folder.path / "deep" / "007").read_bytes() == SMALL["007"]
    folder.unmount()
    profile_files.store(
        place / "both", [*profile_files.load(place / "profile"), ReadRange(b"large", 0, 100), ReadRange(b"other")]
    )
    monkeypatch.setenv("COWFS_CACHE_DIR", str(place / "second"))
    assert Store().warm(f"{version.locator}/small", replay=place / "both").files == 1
    assert Store().warm("data:small/deep/008", replay=place / "both").files == 0
    assert Store().warm("data", replay=place / "both").files == 2
    monkeypatch.setenv("COWFS_CACHE_DIR", str(place / "third"))
    folder = Volume.from_locator(f"{version.locator}/small")
    folder.mount(place / "mnt" / "b", replay=place / "both")
    until(lambda: "replayed a profile" in logged(place))
    with without_packs(place):
        assert (folder.path / "deep" / "007").read_bytes() == SMALL["007"]


def test_what_is_written_is_recorded_where_it_is_read(place: Path) -> None:
    made(place)
    vol = Volume.open("data")
    vol.mount(place / "mnt" / "a", record=place / "profile")
    (vol.path / "new").write_bytes(b"new" * 100_000)
    (vol.path / "small").rename(vol.path / "moved")
    os.sync()
    assert (vol.path / "moved" / "deep" / "003").read_bytes() == SMALL["003"]
    vol.commit()
    vol.unmount()
    assert ReadRange(b"moved/deep/003", 0, BLOCK) in profile_files.load(place / "profile")


def test_a_killed_job_leaves_what_it_had_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = made(place)
    file = place / "profile"
    version.mount(place / "mnt" / "a", record=file)
    job(version.path)
    until(lambda: file.exists() and any(each.path == b"other" for each in profile_files.load(file)))
    assert version._started is not None
    os.kill(version._started.pid, signal.SIGKILL)
    assert wait_gone(version._started.pid, WAIT_S)
    version.unmount()
    there = cold(place, version, monkeypatch, "second")
    assert there.warm(replay=file).files == 101


def test_a_full_cache_ends_a_replay(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = made(place)
    everything = [ReadRange(b"large", 0, len(LARGE)), ReadRange(b"unread", 0, 5_000_000)]
    profile_files.store(place / "profile", everything)
    there = cold(place, version, monkeypatch, "second")
    report = there.warm(replay=place / "profile", cache_size="16M")
    assert not report.is_complete
    assert 4 << 20 < report.fetched_bytes < 16 << 20
    third = cold(place, version, monkeypatch, "third")
    third.mount(place / "mnt" / "b", replay=place / "profile", cache_size="16M")
    until(lambda: "no room for the whole profile" in logged(place))
    assert cached_bytes(place, "third") <= 17 << 20
    assert (third.path / "unread").stat().st_size == 5_000_000


def test_a_mount_that_reads_nothing_leaves_the_profile_that_is_there(place: Path) -> None:
    version = made(place)
    file = recorded(place, version)
    before = file.read_bytes()
    version.mount(place / "mnt" / "a", record=file)
    version.unmount()
    assert file.read_bytes() == before
    assert [path.name for path in place.iterdir() if "profile" in path.name] == ["profile"]
    version.mount(place / "mnt" / "a", record=place / "empty")
    version.unmount()
    assert profile_files.load(place / "empty") == []


def test_wrong_files_are_refused_before_anything_is_mounted(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = made(place)
    monkeypatch.chdir(place)
    (place / "damaged").write_bytes(profile.encode([ReadRange(b"large", 0, 10)])[:-1] + b"x")
    (place / "other").write_bytes(b"no profile")
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"replay": "nowhere"}, NotFoundError, "nowhere"),
        ({"replay": place}, InvalidInputError, "Is a directory"),
        ({"replay": "damaged"}, CorruptError, "damaged"),
        ({"replay": "other"}, CorruptError, "other is not a profile"),
        ({"record": "nowhere/profile"}, NotFoundError, "nowhere"),
        ({"record": place}, InvalidInputError, "Is a directory"),
        ({"record": "mnt/a/profile"}, InvalidInputError, "inside the mount that it is for"),
        ({"record": "profile", "mode": "copy"}, InvalidInputError, "cannot tell what is read"),
        ({"record": 7}, InvalidInputError, "a path"),
    ]
    for options, kind, text in wrong:
        with pytest.raises(kind, match=text):
            version.mount(place / "mnt" / "a", **options)
        assert not version.is_mounted
    with pytest.raises(CorruptError):
        version.warm(replay="damaged")
    if os.geteuid() != 0:
        (place / "closed").mkdir(mode=0o500)
        with pytest.raises(AccessDeniedError):
            version.mount(place / "mnt" / "a", record="closed/profile")
