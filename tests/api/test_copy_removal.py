"""What goes of a copy's folder and what stays: only what cowfs has put there, and is as it was, is
removed. Whoever is killed on the way in or out loses no file of the user's."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cowfs.api.mounts import overview
from cowfs.base import beneath, clock
from cowfs.blocking import RWVolume, Volume
from cowfs.errors import ConflictError, CowfsError, UnsupportedFormatError
from cowfs.machine import registry
from cowfs.machine.folders import record as copy_record
from cowfs.machine.folders import removal, stamps
from tests.api.conftest import killed, place
from tests.api.test_uploading import OPERATIONS, Changing, in_source, machine

__all__ = ["place"]

MOUNT, UNMOUNT = "Volume.open('data').mount(mode='copy')", "Volume.open('data').unmount(force=True)"


@pytest.fixture
def volume(place: Path) -> RWVolume:
    """Mounted as a copy; its version has two files and a directory that nobody may write to."""
    volume: RWVolume = Volume.new("data")
    root = volume.mount(mode="copy")
    (root / "file").write_text("one")
    (root / "dir").mkdir()
    (root / "dir" / "large").write_bytes(b"large" * 30_000)
    os.link(root / "dir" / "large", root / "linked")
    (root / "dir").chmod(0o555)
    volume.commit("first")
    return volume


@settings(max_examples=25)
@given(earlier=st.lists(OPERATIONS, max_size=10), meanwhile=st.lists(OPERATIONS, min_size=1, max_size=8))
@example(earlier=[("mkdir", "a"), ("write", "a/b", b"x")], meanwhile=[("mkdir", "a"), ("write", "a/c", b"y")])
@example(earlier=[("write", "a", b"x")], meanwhile=[("write", "a", b"y")])
@example(earlier=[("write", "a", b"x"), ("link", "a", "b")], meanwhile=[("write", "b", b"y")])
@pytest.mark.parametrize("by", ["unmount", "discard"])
def test_what_is_written_while_a_folder_goes_stays(
    by: str, earlier: list[tuple[Any, ...]], meanwhile: list[tuple[Any, ...]]
) -> None:
    with machine() as place, pytest.MonkeyPatch.context() as patch:
        volume: RWVolume = Volume.new("data")
        root = volume.mount(place / "mnt", mode="copy")
        for operation in earlier:
            Changing(root).apply(*operation)
        volume.commit()
        before, remove = in_source(root), removal.remove_known
        after = dict(before)

        def changed(at: Any, known: stamps.Stamps, **named: bool) -> Any:
            for operation in meanwhile:
                Changing(root).apply(*operation)
            after.update(in_source(root))
            return remove(at, known, **named)

        patch.setattr(removal, "remove_known", changed)
        getattr(volume, by)()
        left = in_source(root) if root.exists() else {}
        for path, each in after.items():
            if not stat.S_ISDIR(each.mode) and each.content != getattr(before.get(path), "content", None):
                assert left[path].content == each.content
        assert registry.list_mounts() == []


def test_a_file_that_is_replaced_at_the_moment_of_its_removal_stays(
    volume: RWVolume, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, rename = volume.path, beneath.rename_new

    def replaced(name: bytes, to: bytes, **named: int) -> bool:
        if name == b"file":
            (path / "new").write_text("saved at the last moment")
            (path / "new").rename(path / "file")
        return rename(name, to, **named)

    monkeypatch.setattr(beneath, "rename_new", replaced)
    volume.unmount()
    assert [str(each) for each in path.rglob("*")] == [str(path / "file")]
    assert (path / "file").read_text() == "saved at the last moment"
    assert f"{path / 'file'} stays" in caplog.text


def test_a_discard_leaves_what_differs(volume: RWVolume, caplog: pytest.LogCaptureFixture) -> None:
    path = volume.path
    (path / "file").write_text("mine")
    (path / "new").write_text("mine, too")
    volume.discard()
    assert sorted(str(each.relative_to(path)) for each in path.rglob("*")) == ["file", "new"]
    assert f"{path / 'file'} and 1 more stay" in caplog.text
    assert f"rm -r {path}" in caplog.text
    assert not volume.has_changes()
    again = Volume.open("data")
    root = again.mount(path.with_name("elsewhere"), mode="copy")
    assert (root / "file").read_text() == "one"
    again.unmount()
    assert (path / "file").read_text() == "mine"


@pytest.mark.parametrize("by", ["unmount", "discard"])
def test_a_folder_that_was_there_before_stays(place: Path, volume: RWVolume, by: str) -> None:
    volume.unmount()
    path = place / "mnt" / "mine"
    path.mkdir(mode=0o750)
    again = Volume.open("data")
    again.mount(path, mode="copy")
    getattr(again, by)()
    assert list(path.iterdir()) == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert copy_record.MARK not in os.listxattr(path)


@pytest.mark.parametrize("marks", [True, False])
def test_a_folder_in_which_everything_was_replaced_is_the_copy(
    place: Path, marks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a file system that keeps no attributes."""
    if not marks:
        monkeypatch.setattr(copy_record, "_set_mark", lambda root: "")
    volume: RWVolume = Volume.new("data")
    path = volume.mount(mode="copy")
    (path / "file").write_text("one")
    volume.commit("the first files in an empty folder")
    (path / "other").write_text("two")
    (path / "file").unlink()
    assert volume.commit().files.read("other") == b"two"
    (path / "other").unlink()
    assert volume.commit().stats.files == 0
    path.rename(place / "moved")
    (place / "moved").rename(path)
    volume.unmount()
    assert not path.exists()


def test_the_folder_is_the_copy_when_its_number_changes(volume: RWVolume) -> None:
    """As on an overlay of several file systems, whose directories get numbers when they are looked
    at."""
    record, path = volume._handle.working_copy().path / "copy.json", volume.path
    (path / "new").write_text("work")
    known = json.loads(record.read_bytes())
    record.write_text(json.dumps({**known, "root_ino": known["root_ino"] + 1, "root_device": 1}))
    assert volume.commit().files.read("new") == b"work"
    volume.unmount()
    assert not path.exists()


def test_what_may_be_another_folder_is_not_removed(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a file system keeps no attributes, one that has got the inode number."""
    monkeypatch.setattr(copy_record, "_set_mark", lambda root: "")
    volume: RWVolume = Volume.new("data")
    (volume.mount(mode="copy") / "file").write_text("one")
    volume.commit()
    record, path = volume._handle.working_copy().path / "copy.json", volume.path
    shutil.rmtree(path)
    path.mkdir()
    (path / "file").write_text("precious")
    known = json.loads(record.read_bytes())
    record.write_text(json.dumps({**known, "root_ino": path.lstat().st_ino}))
    volume.unmount()
    assert (path / "file").read_text() == "precious"
    Volume.open("data").discard()
    assert f"{path / 'file'} stays" in caplog.text
    assert (path / "file").read_text() == "precious"


@pytest.mark.parametrize("by", ["unmount", "discard", "mount", "commit"])
def test_a_record_that_is_not_understood_is_refused_and_nothing_changes(volume: RWVolume, by: str) -> None:
    record, path = volume._handle.working_copy().path / "copy.json", volume.path
    known = json.loads(record.read_bytes())
    record.write_text(json.dumps({**known, "format": 2}))
    before = in_source(path)
    with pytest.raises(UnsupportedFormatError) as caught:
        getattr(Volume.open("data"), by)(**({"mode": "copy"} if by == "mount" else {}))
    assert "cowfs upload" in caught.value.hint
    assert overview.status().mounts is not None
    assert in_source(path) == before
    assert record.exists()
    record.write_text(json.dumps(known))
    volume.unmount()


@contextmanager
def immutable(path: Path) -> Iterator[None]:
    """Not even root changes or removes it meanwhile."""
    if subprocess.run(["chattr", "+i", path], check=False, capture_output=True).returncode:
        pytest.skip("no immutable files here")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", path], check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files immutable")
@pytest.mark.parametrize("where", ["kept", "sub/kept"])
@pytest.mark.parametrize("by", ["unmount", "discard", "killed"])
def test_what_cannot_be_removed_is_told_of_and_locks_nothing(
    volume: RWVolume, place: Path, where: str, by: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = volume.path
    (path / "sub").mkdir()
    (path / where).write_text("kept")
    volume.commit("with it")
    os.utime(path / where)
    with immutable(path / where):
        clock.sleep_s(0.05)
        volume.commit("as it is now")
        if by == "killed":
            killed("copy-leaving", UNMOUNT)
            with pytest.raises(ConflictError, match="is not empty"):
                Volume.open("data").mount(path, mode="copy")
        else:
            (volume.unmount if by == "unmount" else volume.discard)()
        left = [each for each in path.rglob("*") if not each.is_dir()]
        assert [each.read_text() for each in left] == ["kept"]
        assert by == "killed" or registry.list_mounts() == []
        assert f"{left[0]} stays" in caplog.text
        assert "a removal failed: Operation not permitted" in caplog.text
        with pytest.raises(ConflictError, match="is not empty"):
            Volume.open("data").mount(path, mode="copy")
        again = Volume.open("data")
        root = again.mount(place / "elsewhere", mode="copy")
        wanted = sorted(["dir/large", "file", "linked", where])
        assert sorted(str(each.relative_to(root)) for each in root.rglob("*") if each.is_file()) == wanted
        again.unmount(force=True)
        assert left[0].read_text() == "kept"


# -- killed


@pytest.mark.parametrize(
    "point",
    [
        "copy-begun",
        "download-piece-written",
        "download-piece-written:2",
        "copy-arriving",
        "copy-arriving:2",
        "copy-arriving:3",
        "copy-arrived",
    ],
)
@pytest.mark.parametrize("meanwhile", ["nothing", "new", "edited"])
def test_killed_on_the_way_in(volume: RWVolume, place: Path, point: str, meanwhile: str) -> None:
    """Half a copy is never taken for one: it is finished or dropped by the next mount. What was
    written into the folder in between stays."""
    path = volume.path
    volume.unmount()
    killed(point, MOUNT)
    edited = path / "file"
    if meanwhile == "edited" and not edited.exists():
        return
    if meanwhile != "nothing":
        (path / "mine" if meanwhile == "new" else edited).write_text("mine")
    again = Volume.open("data")
    try:
        again.mount(path, mode="copy")
    except ConflictError as error:
        assert meanwhile != "nothing"
        assert "is not empty" in error.message
        assert [each.read_text() for each in path.iterdir()] == ["mine"]
        assert registry.list_mounts() == []
        again.mount(place / "elsewhere", mode="copy")
        again.unmount()
        return
    names = ["dir", "file", "linked"] + ["mine"] * (meanwhile == "new")
    assert sorted(os.listdir(path)) == names
    assert stat.S_IMODE((path / "dir").stat().st_mode) == 0o555
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    version = again.commit()
    assert version.is_new == (meanwhile != "nothing")
    if meanwhile != "nothing":
        assert version.files.read("mine" if meanwhile == "new" else "file") == b"mine"
    again.unmount()
    assert not path.exists()


@pytest.mark.parametrize("point", [*(f"copy-leaving:{number}" for number in range(1, 5)), "copy-left"])
@pytest.mark.parametrize("meanwhile", ["nothing", "new", "edited"])
@pytest.mark.parametrize("by", ["unmount", "discard"])
def test_killed_on_the_way_out(volume: RWVolume, point: str, meanwhile: str, by: str) -> None:
    """The next call removes the rest, but what somebody has written since."""
    path = volume.path
    killed(point, f"Volume.open('data').{by}(force=True)")
    edited = next((each for each in path.rglob("*") if each.is_file()), None) if path.exists() else None
    if meanwhile == "edited" and edited is None:
        return
    if meanwhile != "nothing":
        path.mkdir(exist_ok=True)
        (path / "mine" if meanwhile == "new" or edited is None else edited).write_text("mine")
    for shown in overview.status().mounts:
        assert (shown.is_gone, shown.has_uncommitted, shown.problem) == (False, False, None)
    try:
        Volume.open("data").mount(mode="copy")
    except CowfsError:
        assert meanwhile != "nothing"
    left = {each.stat().st_ino for each in path.rglob("*") if each.is_file() and each.read_bytes() == b"mine"}
    assert len(left) == (meanwhile != "nothing")
    assert Volume.version("data").files.read("file") == b"one"


def test_a_killed_removal_of_a_read_only_copy_is_finished(volume: RWVolume, place: Path) -> None:
    locator = volume.finalize().locator
    path = place / "mnt" / "v"
    killed("copy-leaving:2", f"v = Volume.from_locator({locator!r}); v.mount({str(path)!r}, mode='copy'); v.unmount()")
    assert path.exists()
    version = Volume.from_locator(locator)
    version.mount(path, mode="copy")
    assert (path / "dir" / "large").read_bytes() == b"large" * 30_000
    version.unmount()
    assert not path.exists()
