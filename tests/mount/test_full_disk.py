"""A full disk under a mount: whoever removes, commits or leaves can; nothing acknowledged is lost;
with room again, all goes on.

The disk is real and small: a tmpfs, or ext4 on a loop device, that holds working copy and caches,
and the store where a test says so. It is filled through the mount, or by others beside it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cowfs.blocking import Volume
from cowfs.errors import NoSpaceError
from tests.mount.daemons import Mount, Place

pytestmark = [pytest.mark.mount, pytest.mark.slow]

DISK_BYTES = 96 << 20
FILE_BYTES = 300_000


@contextlib.contextmanager
def small_disk(path: Path, kind: str) -> Iterator[Path]:
    path.mkdir(mode=0o700, exist_ok=True)
    image = path.with_name(f"{path.name}.image")
    if kind == "ext4":
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-F", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, path], check=True)
    else:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "cowfs-test", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)
        image.unlink(missing_ok=True)


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", request.param) as path:
        yield path


@pytest.fixture
def place(disk: Path) -> Iterator[Place]:
    """Working copies and caches are on the small disk, the store is not."""
    with Place() as place:
        (place.root / "c").rmdir()
        (place.root / "c").symlink_to(disk)
        place.volume("v")
        yield place


def fill(mount: Mount) -> dict[str, str]:
    """Writes files until there is no room, then small ones; {name: digest} of what was written
    whole."""
    whole: dict[str, str] = {}
    for size in (FILE_BYTES, 1000):
        with contextlib.suppress(OSError):
            while True:
                name, data = f"f{len(whole)}", os.urandom(size)
                with (mount.path / name).open("wb", buffering=0) as file:
                    written = file.write(data)
                if written != size:
                    os.unlink(mount.path / name)
                    break
                whole[name] = hashlib.sha256(data).hexdigest()
    assert len(whole) > 100, f"only {len(whole)} files fitted"
    for path in mount.path.iterdir():
        if path.name not in whole:
            path.unlink()
    return whole


def make_directories(path: Path) -> None:
    """Some fit into what the journal's last block has left."""
    for number in range(1000):
        (path / f"d{number}").mkdir()


def take_the_rest(disk: Path) -> Path:
    """Somebody else takes what is free."""
    others = disk / "others"
    with others.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return others


def check(path: Path, whole: dict[str, str]) -> None:
    assert sorted(entry.name for entry in path.iterdir()) == sorted(whole)
    for name, digest in whole.items():
        assert hashlib.sha256((path / name).read_bytes()).hexdigest() == digest, name


def test_a_full_disk_can_be_left(place: Place, disk: Path) -> None:
    mount = place.mount("v")
    whole = fill(mount)
    others = take_the_rest(disk)
    with pytest.raises(OSError, match="No space left"):
        make_directories(mount.path)
    for path in mount.path.glob("d*"):
        path.rmdir()

    names = list(whole)
    (mount.path / names[0]).unlink()
    os.truncate(mount.path / names[1], 0)
    (mount.path / names[2]).chmod(0o600)
    (mount.path / names[3]).rename(mount.path / "renamed")
    whole["renamed"] = whole.pop(names[3])
    del whole[names[0]]
    whole[names[1]] = hashlib.sha256(b"").hexdigest()
    check(mount.path, whole)
    version = mount.commit(message="full")
    (mount.path / names[4]).unlink()
    mount.call("discard")
    mount.wait_clean_end()
    others.unlink()
    check(place.mount("v", version=version).path, whole)


def test_little_that_is_removed_shows_and_makes_room(place: Place, disk: Path) -> None:
    """Less than a sixteenth of any segment, spread over all of them."""

    def available_bytes() -> int:
        found = os.statvfs(mount.path)
        return found.f_bavail * found.f_frsize

    mount = place.mount("v")
    whole = fill(mount)
    take_the_rest(disk)
    full_bytes = available_bytes()
    for name in list(whole)[::20]:
        (mount.path / name).unlink()
        del whole[name]
    shown_bytes = available_bytes() - full_bytes
    assert shown_bytes > 5 * FILE_BYTES
    data = os.urandom(shown_bytes // 2)
    (mount.path / "new").write_bytes(data)
    whole["new"] = hashlib.sha256(data).hexdigest()
    check(mount.path, whole)
    mount.kill()
    check(place.mount("v").path, whole)


def test_a_daemon_killed_on_a_full_disk_is_mounted_again(place: Place, disk: Path) -> None:
    mount = place.mount("v")
    whole = fill(mount)
    take_the_rest(disk)
    mount.kill()
    mount = place.mount("v")
    check(mount.path, whole)
    for name in list(whole)[::2]:
        (mount.path / name).unlink()
        del whole[name]
    version = mount.commit()
    mount.unmount()
    mount = place.mount("v")
    check(mount.path, whole)
    assert mount.ready["version"] == version


def test_with_room_again_everything_goes_on(place: Place, disk: Path) -> None:
    mount = place.mount("v")
    others = disk / "others"
    with others.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, DISK_BYTES // 3)
    whole = fill(mount)
    take_the_rest(disk)
    others.unlink()
    data = os.urandom(10 << 20)
    (mount.path / "more").write_bytes(data)
    whole["more"] = hashlib.sha256(data).hexdigest()
    (mount.path / "directory").mkdir()
    (mount.path / "directory").rmdir()
    check(mount.path, whole)
    mount.unmount(commit=True)


def test_removing_most_of_what_filled_the_disk_makes_room_at_once(place: Place, disk: Path) -> None:
    mount = place.mount("v")
    whole = fill(mount)
    for number, name in enumerate(list(whole)):
        if number % 20:
            (mount.path / name).unlink()
            del whole[name]
    data = os.urandom(DISK_BYTES // 2)
    (mount.path / "new").write_bytes(data)
    whole["new"] = hashlib.sha256(data).hexdigest()
    check(mount.path, whole)
    mount.kill()
    check(place.mount("v").path, whole)


def test_a_store_on_the_same_full_disk(disk: Path) -> None:
    """The default of the README: everything in one home directory."""
    (disk / "store").mkdir()
    with Place((disk / "store").as_uri()) as place:
        (place.root / "c").rmdir()
        (disk / "c").mkdir()
        (place.root / "c").symlink_to(disk / "c")
        place.volume("v")
        mount = place.mount("v")
        whole = fill(mount)
        with pytest.raises(NoSpaceError) as full:
            mount.commit()
        assert full.value.hint
        for number, name in enumerate(list(whole)):
            if number % 20:
                (mount.path / name).unlink()
                del whole[name]
        version = mount.commit()
        check(mount.path, whole)
        mount.unmount()
        check(place.mount("v", version=version).path, whole)


def test_a_database_on_a_full_disk_keeps_its_integrity(place: Place, disk: Path) -> None:
    mount = place.mount("v")
    database = sqlite3.connect(mount.path / "db", isolation_level=None)
    database.execute("create table t (n integer primary key, data blob)")
    others = take_the_rest(disk)
    done = 0
    for number in range(2000):
        try:
            database.execute("begin")
            database.execute("insert into t values (?, randomblob(20000))", (number,))
            database.execute("update t set data = randomblob(20000) where n = ?", (number // 2,))
            database.execute("commit")
        except sqlite3.OperationalError:
            with contextlib.suppress(sqlite3.OperationalError):
                database.execute("rollback")
            break
        done += 1
    else:
        pytest.fail("the disk never was full")
    database.close()
    others.unlink()
    with sqlite3.connect(mount.path / "db") as again:
        assert again.execute("pragma integrity_check").fetchone() == ("ok",)
        assert again.execute("select count(*) from t").fetchone() == (done,)
        again.execute("insert into t values (-1, randomblob(20000))")
    again.close()
    mount.unmount(commit=True)


def test_a_cache_on_another_disk_is_left_alone(place: Place, disk: Path, tmp_path: Path) -> None:
    mount = place.mount("v")
    (mount.path / "f").write_bytes(os.urandom(5 << 20))
    mount.unmount(commit=True)
    with small_disk(tmp_path / "other", "tmpfs") as cache:
        mount = place.mount("v", cache_dir=str(cache))
        (mount.path / "f").read_bytes()
        chunks = {path for path in (cache / "segments").iterdir() if path.stat().st_size > 0}
        assert chunks
        fill(mount)
        assert {path for path in (cache / "segments").iterdir() if path.stat().st_size > 0} >= chunks
        mount.call("discard")
        mount.wait_clean_end()


def test_a_full_disk_of_the_runtime_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("COWFS_CACHE_DIR", "COWFS_STATE_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    with small_disk(tmp_path / "run", "tmpfs") as run:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(run))
        volume = Volume.new("data", store=tmp_path / "store")
        volume.resolve()
        rest = take_the_rest(run)
        for _ in range(2):  # the file is there already at the second time
            with pytest.raises(NoSpaceError, match=re.escape(f"the local disk is full, {run}/")) as refused:
                volume.mount(tmp_path / "mnt")
            assert "XDG_RUNTIME_DIR" in (refused.value.hint or "")
        rest.unlink()
        volume.mount(tmp_path / "mnt")
        volume.unmount()


def test_a_full_disk_of_the_state_is_not_that_of_what_is_uploaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("one")
    with small_disk(tmp_path / "state", "tmpfs") as state:
        monkeypatch.setenv("COWFS_STATE_DIR", str(state))
        volume = Volume.open("data", store=tmp_path / "store", create=True)
        volume.files.upload(source)
        (source / "file").write_text("other")
        rest = take_the_rest(state)
        with pytest.raises(NoSpaceError, match="the local disk is full, data: ") as refused:
            volume.files.upload(source)
        assert str(source) not in refused.value.message
        rest.unlink()
        volume.files.upload(source)
        assert volume.files.read("file") == b"other"
        volume.finalize()
