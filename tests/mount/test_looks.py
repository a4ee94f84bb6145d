"""Versions of a volume looked at inside of its mount, under .cowfs/versions."""

from __future__ import annotations

import errno
import functools
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cowfs.blocking import Volume
from cowfs.session.looks import OPEN_MAX
from tests.api.conftest import place
from tests.mount.test_handles import handle_of, open_by_handle

__all__ = ["place"]

pytestmark = [pytest.mark.mount, pytest.mark.usefixtures("place")]

LARGE = bytes(range(256)) * 16_384
SERVERS = pytest.mark.parametrize("fast_lane", [True, False], ids=["lane", "pyfuse3"])


def versions_of(path: Path) -> Path:
    return path / ".cowfs" / "versions"


def refused(call: Callable[[], object]) -> int:
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        call()
    return caught.value.errno or 0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@SERVERS
def test_programs_see_numbers_that_a_double_can_hold(fast_lane: bool) -> None:
    volume = Volume.new("data")
    path = volume.mount(fast_lane=fast_lane, show_versions=True)
    (path / "d").mkdir()
    (path / "d" / "file").write_text("one")
    versions = [volume.commit().id]
    (path / "d" / "file").write_text("two")
    versions.append(volume.commit().id)
    own = [path, path / "d", path / "d" / "file"]
    assert all(at.stat().st_ino < 1 << 37 for at in own)
    hidden = [path / ".cowfs", versions_of(path)]
    for version in versions:
        hidden += [versions_of(path) / version / each.relative_to(path) for each in own]
    seen = [at.stat().st_ino for at in own + hidden]
    assert len(seen) == len(set(seen))
    assert max(seen) < 1 << 53
    for directory in (path, path / "d", *hidden[:2], versions_of(path) / versions[0] / "d"):
        with os.scandir(directory) as entries:
            assert all(entry.inode() == os.stat(entry.path).st_ino for entry in entries)
    # In the volume they are the inode's own: those of the index.
    assert path.stat().st_ino == 1


@SERVERS
def test_every_version_is_there_by_its_id_and_by_its_names(fast_lane: bool) -> None:
    volume = Volume.new("data")
    path = volume.mount(fast_lane=fast_lane)
    (path / "d").mkdir(mode=0o750)
    (path / "d" / "file").write_text("one")
    os.link(path / "d" / "file", path / "d" / "again")
    os.symlink("file", path / "d" / "link")
    os.setxattr(path / "d" / "file", "user.colour", b"red")
    (path / "large").write_bytes(LARGE)
    one = volume.commit("one")
    (path / "d" / "file").write_text("two")
    (path / "large").unlink()
    two = volume.commit("two")
    one.tag("best")
    versions = versions_of(path)
    assert os.listdir(path) == ["d"], "hidden"
    assert os.listdir(path / ".cowfs") == ["versions"]
    assert set(os.listdir(versions)) == {one.id, two.id, "best"}
    assert [(versions / name / "d" / "file").read_text() for name in (one.id, "best", one.id[:9])] == ["one"] * 3
    assert (versions / two.id / "d" / "file").read_text() == "two"
    assert os.readlink(versions / "best") == one.id
    old = versions / one.id
    assert (old / "large").read_bytes() == LARGE
    assert (old / "d" / "link").read_text() == "one"
    assert os.getxattr(old / "d" / "file", "user.colour") == b"red"
    known, again = (old / "d" / "file").stat(), (old / "d" / "again").stat()
    assert (known.st_ino, known.st_nlink) == (again.st_ino, 2)
    assert len({(at / "d" / "file").stat().st_ino for at in (path, old, versions / two.id)}) == 3
    assert (old / "d").stat().st_mode & 0o7777 == 0o750
    subprocess.run(["diff", "-r", versions / two.id / "d", path / "d"], check=True)
    two.tag("best", move=True)
    until(lambda: os.readlink(versions / "best") == two.id)
    volume.unmount()


@SERVERS
def test_nothing_else_is_there(fast_lane: bool) -> None:
    with Volume.new("other") as other:
        (other / "file").touch()
        foreign = other.commit("foreign")
    volume = Volume.new("data")
    versions = versions_of(volume.mount(fast_lane=fast_lane))
    assert os.listdir(versions) == [], "of a volume without versions"
    for name in ("nothing", "{0}", foreign.id, foreign.id[:12], "0" * 64, "a" * 255, os.fsdecode(b"\xff"), "@"):
        assert refused((versions / name).stat) == errno.ENOENT
    assert refused((versions.parent / "others").stat) == errno.ENOENT
    assert refused((versions / ("a" * 256)).stat) == errno.ENAMETOOLONG
    one = volume.commit("one")
    assert os.listdir(versions) == [one.id], "what was not there is looked up again"
    assert os.listdir(versions / one.id) == []
    volume.unmount()


def changes_of(directory: Path, path: Path) -> list[Callable[[], object]]:
    """Of a directory that is not the volume's; path: of the mount, where a file is, `own`."""
    return [
        (directory / "new").mkdir,
        (directory / "new").touch,
        lambda: os.symlink("a", directory / "new"),
        lambda: os.mkfifo(directory / "new"),
        lambda: os.rename(path / "own", directory / "new"),
        lambda: directory.chmod(0o700),
        lambda: os.utime(directory, (1, 1)),
        lambda: os.setxattr(directory, "user.a", b""),
        directory.rmdir,
        lambda: directory.rename(path / "moved"),
    ]


@SERVERS
def test_no_call_changes_anything_there(fast_lane: bool) -> None:
    volume = Volume.new("data")
    path = volume.mount(fast_lane=fast_lane)
    (path / "d").mkdir()
    (path / "d" / "file").write_text("one")
    (path / "own").write_text("own")
    one = volume.commit("one")
    one.tag("best")
    versions = versions_of(path)
    file = versions / one.id / "d" / "file"
    for directory in (path / ".cowfs", versions, versions / one.id, file.parent):
        assert {refused(change) for change in changes_of(directory, path)} == {errno.EROFS}, directory
        unnamed = refused(functools.partial(os.open, directory, os.O_TMPFILE | os.O_RDWR))
        assert unnamed == (errno.EROFS if fast_lane else errno.EOPNOTSUPP), "which pyfuse3 has not got"
    for change in (
        file.unlink,
        lambda: file.write_text("two"),
        lambda: os.truncate(file, 0),
        lambda: os.rename(file, path / "moved"),
        lambda: os.rename(file, file.parent / "moved"),
        lambda: os.chown(file, 1, 1),
        lambda: os.removexattr(file, "user.a"),
        (versions / "best").unlink,
    ):
        assert refused(change) == errno.EROFS
    assert refused(lambda: os.link(file, path / "linked")) == errno.EXDEV
    assert refused((path / ".cowfs").mkdir) == errno.EEXIST
    assert sorted(os.listdir(path)) == ["d", "own"]
    subprocess.run(["cp", "-a", "--reflink=auto", file.parent, path / "copied"], check=True)
    assert (path / "copied" / "file").read_text() == "one"
    changed = {change.path for change in one.diff(volume.commit("two"))}
    assert changed == {"/copied", "/copied/file"}
    volume.unmount()


@SERVERS
def test_a_volume_keeps_an_entry_of_that_name(fast_lane: bool, tmp_path: Path) -> None:
    (tmp_path / ".cowfs").mkdir()
    (tmp_path / ".cowfs" / "own").write_text("mine")
    volume = Volume.new("data")
    volume.files.upload(tmp_path, "/")
    path = volume.mount(fast_lane=fast_lane, show_versions=True)
    assert os.listdir(path) == [".cowfs"]
    assert os.listdir(path / ".cowfs") == ["own"]
    (path / ".cowfs" / "own").unlink()
    (path / ".cowfs").rmdir()
    assert os.listdir(path) == [".cowfs"], "the mount's own now"
    until(lambda: os.listdir(path / ".cowfs") == ["versions"])
    volume.unmount()


@SERVERS
def test_it_is_listed_where_that_is_asked_for(fast_lane: bool) -> None:
    volume = Volume.new("data")
    path = volume.mount(fast_lane=fast_lane, show_versions=True)
    for number in range(300):  # several answers to one listing
        (path / f"file{number}").write_text(str(number))
    assert len(os.listdir(path)) == len(set(os.listdir(path))) == 301
    assert os.listdir(path)[-1] == ".cowfs"
    with os.scandir(path) as entries:
        assert [entry.name for entry in entries if entry.is_dir()] == [".cowfs"]
    version = volume.commit("one")
    walked = [len(files) for _, _, files in os.walk(path)]
    assert sum(walked) == 600, "the volume's, and its version's"
    assert version.stats.files == 300
    assert len(list(volume.files.glob("*"))) == 300, "the volume's"
    volume.unmount()


@pytest.mark.parametrize("options", [{}, {"fast_lane": False}, {"resident": True}], ids=["lane", "pyfuse3", "resident"])
def test_a_mount_of_a_version_shows_the_others(options: dict[str, bool], place: Path) -> None:
    with Volume.new("data") as volume:
        (volume / "d").mkdir()
        (volume / "d" / "large").write_bytes(LARGE)
        one = volume.commit("one")
        (volume / "d" / "large").write_bytes(LARGE[::-1])
        two = volume.commit("two")
    path = one.mount(place / "mnt" / "one", **options)  # type: ignore[arg-type]
    assert (path / "d" / "large").read_bytes() == LARGE
    assert (versions_of(path) / two.id / "d" / "large").read_bytes() == LARGE[::-1]
    one.unmount()
    folder = Volume.from_locator(f"{two.locator}/d")
    path = folder.mount(place / "mnt" / "two", **options)  # type: ignore[arg-type]
    assert (versions_of(path) / one.id / "large").read_bytes() == LARGE, "the same folder of the other"
    folder.unmount()


@SERVERS
def test_open_files_stay_whole_while_versions_come_and_go(fast_lane: bool) -> None:
    volume = Volume.new("data")
    path = volume.mount(fast_lane=fast_lane)
    ids = []
    for number in range(2 * OPEN_MAX + 3):
        (path / "large").write_bytes(LARGE + bytes([number]))
        ids.append(volume.commit(str(number)).id)
    versions = versions_of(path)
    looked_at = os.open(versions / ids[0] / "large", os.O_PATH)
    files = [os.open(versions / id / "large", os.O_RDONLY | os.O_DIRECT) for id in ids[: OPEN_MAX + 2]]
    for number, id in enumerate(ids):
        assert (versions / id / "large").read_bytes()[-1] == number
    (path / "new").write_text("beside")
    volume.commit("beside")
    for number, file in enumerate(files):
        with os.fdopen(file, "rb", closefd=True) as opened:
            content = opened.read()
        assert (content[:-1] == LARGE, content[-1]) == (True, number)
    for number, id in enumerate(ids[1:], 1):
        assert (versions / id / "large").read_bytes()[-1] == number
    with open(f"/proc/self/fd/{looked_at}", "rb") as opened:
        assert opened.read() == LARGE + b"\0", "it was closed meanwhile"
    os.close(looked_at)
    volume.unmount()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to open by handle")
def test_a_file_handle_never_finds_another_version() -> None:
    volume = Volume.new("data")
    path = volume.mount()
    for text in ("one", "two"):
        (path / "file").write_text(text)
        volume.commit(text)
    one, two = (version.id for version in reversed(list(volume.history())))
    handle = handle_of(versions_of(path) / one / "file")
    volume.unmount()
    path = volume.mount()
    assert (versions_of(path) / two / "file").read_text() == "two", "it has the number now that the other had"
    assert refused(lambda: open_by_handle(path, handle)) == errno.ESTALE
    volume.unmount()
