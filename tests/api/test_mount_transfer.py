"""Uploads and imports to, and downloads from, a volume that is mounted on this machine, by FUSE or
as a copy: through its mount, whose commit publishes them."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cowfs.api.mounts.folder import FolderMount
from cowfs.api.mounts.fuse import FuseMount
from cowfs.base.beneath import Root
from cowfs.blocking import RWVolume, Store, TransferReport, Volume
from cowfs.errors import ConflictError, InvalidInputError
from cowfs.store.origin import OriginObject
from cowfs.store.origin.s3 import S3Origin
from tests.api.conftest import place
from tests.api.test_uploading import Seen, in_source
from tests.object_server import ObjectServer

__all__ = ["place"]

MODES = ["copy", pytest.param("fuse", marks=pytest.mark.mount)]


@pytest.fixture(params=MODES)
def volume(request: pytest.FixtureRequest, place: Path) -> RWVolume:
    """Mounted, with a version that has "old" in it, and with uncommitted work."""
    volume: RWVolume = Volume.new("data")
    path = volume.mount(mode=request.param)
    (path / "old").write_text("old")
    volume.commit()
    (path / "work").write_text("uncommitted")
    return volume


@pytest.fixture
def tree(place: Path) -> Path:
    root = place / "tree"
    (root / "sub").mkdir(parents=True)
    (root / "file").write_text("file")
    (root / "large").write_bytes(os.urandom(3_000_000))
    with (root / "sparse").open("wb") as sparse:
        sparse.seek(1_000_000)
        sparse.write(b"end")
    os.link(root / "file", root / "sub" / "same")
    os.symlink("../file", root / "sub" / "link")
    (root / "sub" / "skipped.pyc").write_text("x")
    os.mkfifo(root / "pipe")
    return root


def contents(found: dict[str, Seen]) -> dict[str, Any]:
    return {name: (seen.mode, seen.content, seen.first) for name, seen in found.items()}


def test_an_upload_goes_into_the_mount(volume: RWVolume, tree: Path) -> None:
    before = volume.locator
    report = volume.files.upload(tree, "/in/here", exclude=["*.pyc"])
    path = volume.path
    assert (report.mount_path, report.locator, report.is_new) == (str(path), before, False)
    assert (report.files, report.symlinks, report.skipped, report.unchanged) == (4, 1, 1, 0)
    assert report.skipped_paths == ("pipe",)
    (tree / "pipe").unlink()
    (tree / "sub" / "skipped.pyc").unlink()
    assert contents(in_source(path / "in" / "here")) == contents(in_source(tree))
    assert volume.history(limit=1)[0].locator == before, "nothing is published"
    again = volume.files.upload(tree, "/in/here")
    assert again.unchanged == 4, "each name"
    version = volume.finalize()
    assert version.files.read("in/here/sub/same") == b"file"
    assert version.files.read("work") == b"uncommitted"


def test_what_is_not_in_the_source_goes_only_if_asked(volume: RWVolume, tree: Path) -> None:
    path = volume.path
    (path / "in" / "file").mkdir(parents=True)
    (path / "in" / "file" / "below").write_text("a directory in the way")
    (path / "in" / "gone").mkdir()
    (path / "in" / "gone" / "deep").write_text("x")
    (path / "in" / "kept.log").write_text("x")
    with pytest.raises((InvalidInputError, ConflictError)):
        volume.files.upload(tree, "/in")
    assert (path / "in" / "file" / "below").exists()
    report = volume.files.upload(tree, "/in", delete=True, exclude=["*.log"])
    assert report.removed == 4
    assert sorted(os.listdir(path / "in")) == ["file", "kept.log", "large", "sparse", "sub"]
    assert sorted(os.listdir(path)) == ["in", "old", "work"]
    shutil.rmtree(tree)
    tree.mkdir()
    assert volume.files.upload(tree, "/", delete=True).removed > 0
    assert os.listdir(path) == []
    volume.unmount()


def test_what_is_excluded_in_the_mount_stays_wherever_it_lies(volume: RWVolume, tree: Path) -> None:
    path = volume.path
    (path / "work").unlink()
    (path / "work" / "logs").mkdir(parents=True)
    (path / "work" / "logs" / "keep.log").write_text("in no version")
    (path / "work" / "logs" / "other").write_text("x")
    assert volume.files.upload(tree, "/", delete=True, exclude=["*.log"]).removed == 2
    assert [each.name for each in (path / "work").rglob("*")] == ["logs", "keep.log"]
    (tree / "work").write_text("a file in its place")
    (tree / "sub" / "link").unlink()
    with pytest.raises(ConflictError, match=r"work of the source .* work/logs/keep\.log is excluded"):
        volume.files.upload(tree, "/", delete=True, exclude=["*.log"])
    assert (path / "work" / "logs" / "keep.log").read_text() == "in no version"
    assert (path / "sub" / "link").is_symlink(), "nothing was removed before"
    volume.unmount()


def test_nothing_is_written_outside_of_the_mount(volume: RWVolume, tree: Path, place: Path) -> None:
    (place / "outside").mkdir()
    os.symlink(place / "outside", volume.path / "in")
    with pytest.raises(InvalidInputError):
        volume.files.upload(tree, "/in/here")
    for source in (volume.path, place):
        with pytest.raises(InvalidInputError, match="has"):
            volume.files.upload(source, "/in")
    with pytest.raises(InvalidInputError, match="lies in"):
        volume.files.download(dst=volume.path / "copy")
    with pytest.raises(InvalidInputError, match="mounted"):
        volume.files.upload(tree, message="no version is made")
    assert list((place / "outside").iterdir()) == []
    volume.unmount()


def test_a_file_goes_where_it_is_sent(volume: RWVolume, tree: Path) -> None:
    volume.files.upload(tree / "file", "/new/name")
    volume.files.upload(tree / "file", "/new/")
    volume.files.upload(tree / "file", "/")
    path = volume.path
    assert [(path / each).read_text() for each in ("new/name", "new/file", "file")] == ["file"] * 3
    volume.unmount()


def test_a_download_has_what_programs_see(volume: RWVolume, place: Path) -> None:
    report = volume.files.download(dst=place / "got")
    assert (report.files, report.mount_path, report.locator) == (2, str(volume.path), volume.locator)
    assert (place / "got" / "work").read_text() == "uncommitted"
    assert volume.files.download(dst=place / "got").unchanged == 2
    (volume / "work").write_text("changed")
    with pytest.raises(ConflictError):
        volume.files.download(dst=place / "got")
    volume.unmount()


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_written_below_the_path_of_a_mount_that_ends(
    place: Path, tree: Path, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    """After it was found, and before its root is opened."""
    path = place / "mnt" / "own"
    path.mkdir()
    volume: RWVolume = Volume.new("data")
    kind = FolderMount if mode == "copy" else FuseMount
    open_root: Any = kind.open_root

    def open_late(mount: Any) -> Root | None:
        monkeypatch.setattr(kind, "open_root", open_root)
        volume.unmount()
        found: Root | None = open_root(mount)
        return found

    for use in ("write", "upload"):
        volume.mount(path, mode=mode)
        monkeypatch.setattr(kind, "open_root", open_late)
        other = Volume.open("data")
        if use == "write":
            other.files.write("written", b"kept")
            other.commit()
        else:
            with pytest.raises(ConflictError, match="unmounted"):
                other.files.upload(tree, "/uploaded")
        assert os.listdir(path) == []
        assert other.files.read("written") == b"kept"
        other.unmount()


@pytest.fixture
def server(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "cowfs-tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret-at-all")
    with ObjectServer() as server:
        yield server


def test_an_import_goes_into_the_mount(volume: RWVolume, server: ObjectServer, place: Path) -> None:
    large = os.urandom(40_000_000)
    server.put("in/large", large)
    server.put("in/sub/small", b"small")
    server.put("in/sub/skipped.pyc", b"x")
    path, before = volume.path, volume.locator

    def imported() -> TransferReport:
        return Store().import_files(server.url("in"), "data", exclude=["*.pyc"])

    report = imported()
    assert (report.files, report.unchanged, report.mount_path) == (2, 0, str(path))
    assert ((path / "large").read_bytes(), (path / "sub" / "small").read_bytes()) == (large, b"small")
    assert (volume.history(limit=1)[0].locator, (path / "sub" / "skipped.pyc").exists()) == (before, False)
    server.requests.clear()
    assert imported().unchanged == 2
    assert server.asked("GET") == []
    server.put("in/sub/small", b"other")  # of the same size and time
    assert imported().unchanged == 1
    assert (path / "sub" / "small").read_bytes() == b"other"
    with pytest.raises(ConflictError, match="is mounted"):
        Store().import_(server.url("in"), "data")
    with pytest.raises(ConflictError, match="is mounted"):
        Store().import_files(server.url("in"), "data", link=True)
    with tarfile.open(place / "a.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("a"))
    with pytest.raises(ConflictError, match="is mounted"):
        Store().import_files(f"tar://::{place}/a.tar", "data")
    assert volume.finalize().files.read("large") == large


def test_an_object_that_is_replaced_meanwhile_is_read_anew(
    volume: RWVolume, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is smaller then, and nothing of what was read first is left."""
    server.put("in/object", b"1" * 40_000_000)
    read, asked = S3Origin.read, list[int]()

    def replacing(self: S3Origin, found: OriginObject, offset: int, length: int) -> bytes:
        if offset >= 20_000_000 and not asked:
            asked.append(offset)
            server.put("in/object", b"2" * 10_000_000)
        return read(self, found, offset, length)

    monkeypatch.setattr(S3Origin, "read", replacing)
    Store().import_files(server.url("in"), "data")
    assert asked
    assert (volume.path / "object").read_bytes() == b"2" * 10_000_000
