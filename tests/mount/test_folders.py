"""Mounts of one folder of a version."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
from pathlib import Path

import pytest

from cowfs.blocking import ROVolume, Volume
from cowfs.errors import InvalidInputError, NotFoundError
from tests.api.conftest import place
from tests.cli.test_live import Command, run

__all__ = ["place", "run"]

pytestmark = [pytest.mark.mount, pytest.mark.usefixtures("place")]


@pytest.fixture
def version() -> ROVolume:
    with Volume.new("data") as volume:
        deep = volume / "a b" / "deep"
        deep.mkdir(parents=True)
        os.chmod(deep, 0o750)
        os.setxattr(deep, "user.colour", b"red")
        (deep / "file").write_text("deep")
        (deep / "sub").mkdir()
        (deep / "sub" / "large").write_bytes(bytes(range(256)) * 10_000)
        os.link(deep / "file", volume / "outside")
        os.symlink("file", deep / "link")
        os.symlink("a b", volume / "linked")
        (volume / os.fsdecode(b"\xff")).mkdir()
        (volume / os.fsdecode(b"\xff") / "x").touch()
        return volume.finalize("one")


def test_a_mount_point_may_have_a_name_that_is_no_text(place: Path) -> None:
    point = place / "mnt" / os.fsdecode(b"m\xff")
    point.mkdir()
    volume = Volume.new("data")
    volume.mount(point)
    (point / "f").write_bytes(b"here")
    assert volume.commit().files.read("f") == b"here"
    volume.unmount()


@pytest.mark.parametrize("options", [{}, {"fast_lane": False}, {"resident": True}], ids=["lane", "pyfuse3", "resident"])
def test_a_folder_is_mounted_as_a_root(version: ROVolume, place: Path, options: dict[str, bool]) -> None:
    folder = Volume.from_locator(f"{version.locator}/a%20b/deep")
    assert (folder.folder, folder.id, folder.message) == ("a b/deep", version.id, "one")
    path = folder.mount(place / "mnt" / "f", **options)  # type: ignore[arg-type]
    assert sorted(os.listdir(path)) == ["file", "link", "sub"]
    assert ((path / "file").read_text(), (path / "link").read_text()) == ("deep", "deep")
    assert (path / "sub" / "large").read_bytes() == bytes(range(256)) * 10_000
    assert (path / "sub" / ".." / "file").read_text() == "deep"
    root = path.stat()
    assert (root.st_mode & 0o7777, root.st_nlink, os.getxattr(path, "user.colour")) == (0o750, 3, b"red")
    assert (path / "file").stat().st_nlink == 2
    with pytest.raises(OSError, match="Read-only") as caught:
        (path / "new").touch()
    assert caught.value.errno == errno.EROFS
    with version:
        subprocess.run(["diff", "-r", version / "a b" / "deep", path], check=True)
        assert (version / "outside").stat().st_ino == (path / "file").stat().st_ino, "inode numbers are the version's"
    folder.unmount()


def test_a_folder_is_a_value(version: ROVolume) -> None:
    folder = Volume.version(f"data@{version.id[:8]}:a b//deep/")
    assert folder.locator == f"{version.locator}/a%20b/deep"
    assert folder == Volume.from_locator(folder.locator) == pickle.loads(pickle.dumps(folder))
    assert (folder != version, len({folder, version, Volume.version("data:a b/deep")})) == (True, 2)
    assert [each.locator for each in folder.history()] == [version.locator]
    with Volume.version("data:\udcff") as odd:
        assert os.listdir(odd) == ["x"]
    assert Volume.from_locator(odd.locator) == odd


def test_what_cannot_be_done_with_a_folder(version: ROVolume) -> None:
    source = f"data@{version.id[:12]}"
    for path, error, command in (
        ("missing", NotFoundError, f"ls {source}"),
        ("a b/deep/x/y", NotFoundError, f"ls '{source}:a b/deep'"),
        ("outside", InvalidInputError, f"cat {source}:outside"),
        ("linked/deep", NotFoundError, f"ls {source}:linked"),
    ):
        wrong = Volume.version(f"data:{path}")
        for mode in ("fuse", "copy"):
            with pytest.raises(error, match=path) as caught:
                wrong.mount(mode=mode)
            assert f"`cowfs {command}`" in caught.value.hint
            assert not wrong.is_mounted
    folder = Volume.version("data:a b")
    for refused in (lambda: folder.fork("f"), lambda: folder.mount(scratch=True)):
        with pytest.raises(InvalidInputError, match="one folder") as whole:
            refused()
        assert version.locator in whole.value.hint


def test_folders_from_the_command_line(run: Command, version: ROVolume, place: Path) -> None:
    path = place / "mnt" / "f"
    locator = f"{version.locator}/a%20b/deep"
    for source in (locator, f"{version.locator}:a b/deep", "data@{0}:a b/deep"):
        record = run("mount", source, path, "--json").json
        assert (record["is_read_only"], record["locator"]) == (True, locator)
        assert (path / "file").read_text() == "deep"
        assert run("unmount", path).code == 0
    assert run("mount", "data:a b/deep", path, "--read-only").code == 0
    assert run("unmount", path).code == 0
    refused = run("mount", "data:a b/deep", path)
    assert (refused.code, "--read-only" in refused.err) == (2, True)
    assert run("mount", f"{version.locator}/missing", place / "mnt" / "g").code == 3
    assert not (place / "mnt" / "g").exists()
