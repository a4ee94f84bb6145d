"""Mounts that are copies: what is in the folder is what the next version has, whatever was done to
it; nothing that was written to it is lost, and nobody has to stay alive for that."""

from __future__ import annotations

import errno
import json
import logging
import mmap
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import fsspec
import pytest
from blake3 import blake3
from hypothesis import example, given, settings
from hypothesis import strategies as st

import cowfs
from cowfs.api.doctor import machine as machine_checks
from cowfs.api.mounts import launch, new_folders, overview, summaries, targets, used_mount
from cowfs.base import clock, config
from cowfs.blocking import MountSummary, RWVolume, Volume, WorkingCopySummary
from cowfs.errors import (
    ConflictError,
    InvalidInputError,
    InvalidStateError,
    LeaseHeldError,
    NeedsFuseError,
    NoSpaceError,
    UnavailableError,
)
from cowfs.folders import filling, lost_folders, mounted_folders
from cowfs.machine import makers, mount_table, processes, registry, sharing
from cowfs.machine.folders import stamps
from cowfs.machine.processes import ProcessIdentity
from cowfs.transfer import copying, local_files
from cowfs.transfer.source_files import SourceFile
from tests.api.conftest import half_written, killed, place
from tests.api.test_uploading import (
    CONTENTS,
    NAMES,
    OLD_NS,
    OPERATIONS,
    PATHS,
    Changing,
    Seen,
    in_source,
    in_version,
    machine,
    stored_read_first,
)
from tests.session.folding import fold

__all__ = ["place"]

EDITS = st.one_of(
    OPERATIONS,
    st.tuples(st.just("sneak"), PATHS),
    st.tuples(st.just("replace"), PATHS, CONTENTS),
    st.tuples(st.just("swap"), PATHS, PATHS, NAMES),
    st.tuples(st.just("store"), PATHS),
)


class Editing(Changing):
    """Also in ways that a look at sizes and times would not find."""

    def apply(self, name: str, path: str, *more: object) -> None:
        at = self.root / path
        if name not in ("sneak", "replace", "swap", "store"):
            super().apply(name, path, *more)
        elif not at.is_file() or at.is_symlink():
            return
        elif name == "store":  # through a mapping, after it was read
            if at.stat().st_size:
                stored_read_first(at, bytes(byte ^ 1 for byte in at.read_bytes()))
        elif name == "sneak":  # other bytes, the same size and time
            found = at.stat()
            at.write_bytes(bytes(byte ^ 1 for byte in at.read_bytes()))
            os.utime(at, ns=(0, found.st_mtime_ns))
        elif name == "replace":  # by a file that was renamed over it
            beside = self.root / "beside"
            beside.write_bytes(more[0])  # type: ignore[arg-type]
            os.utime(beside, ns=(0, at.stat().st_mtime_ns))
            beside.rename(at)
        elif (other := self.root / str(more[0])).is_file() and other != at:
            at.rename(self.root / "aside")
            other.rename(at)
            (self.root / "aside").rename(other)


def is_whole(volume: RWVolume) -> bool:
    return not volume.has_changes()


@settings(max_examples=15)
@given(
    steps=st.lists(st.tuples(st.lists(EDITS, max_size=8), st.sampled_from(["stay", "unmount", "forget"])), max_size=4),
)
@example([([("write", "a", b"x")], "stay"), ([("sneak", "a")], "unmount"), ([("sneak", "a")], "forget")])
@example([([("write", "a", b"x"), ("link", "a", "b")], "stay"), ([("remove", "a"), ("sneak", "b")], "stay")])
@example([([("symlink", "b", "a"), ("link", "b", "a")], "unmount")])
@example([([("write", "b", b"x"), ("mkdir", "c"), ("link", "b", "c/b")], "unmount"), ([], "unmount")])
@example([([("write", "a", b"x")], "unmount"), ([("store", "a")], "stay"), ([("store", "a")], "forget")])
def test_any_edits_are_what_the_next_version_has(steps: list[tuple[list[tuple[Any, ...]], str]]) -> None:
    with machine(), TemporaryDirectory() as directory:
        volume: RWVolume = Volume.new("data")
        at = Path(directory) / "mnt"
        root = volume.mount(at, mode="copy")
        for edits, then in steps:
            before = in_source(root)
            editing = Editing(root)
            for edit in edits:
                editing.apply(*edit)
            wanted = in_source(root)
            assert volume.has_changes() or wanted == before
            if then == "forget":  # as a process that ends does
                volume.unmount()
                volume = Volume.open("data")
                volume.mount(at, mode="copy")
            told = list(volume.diff(times=True))
            version = volume.commit()
            assert in_version(version) == in_source(root) == wanted
            for earlier in version.history()[1:2]:
                assert told == (list(earlier.diff(version, times=True)) if version.is_new else [])
            assert list(volume.diff(times=True)) == []
            assert is_whole(volume)
            assert not volume.commit().is_new
            if then == "unmount":
                volume.unmount()
                assert not root.exists()
                volume.mount(at, mode="copy")
                assert in_source(root) == wanted
                assert is_whole(volume)


def contents(found: dict[str, Seen]) -> Counter[tuple[int, bytes | None]]:
    return Counter((stat.S_IFMT(each.mode), each.content) for each in found.values() if not stat.S_ISDIR(each.mode))


@pytest.fixture
def volume(place: Path) -> RWVolume:
    """Mounted as a copy; its version has two files."""
    volume: RWVolume = Volume.new("data")
    root = volume.mount(mode="copy")
    (root / "file").write_text("one")
    (root / "dir").mkdir()
    (root / "dir" / "large").write_bytes(b"large" * 30_000)
    volume.commit("first")
    return volume


def test_what_was_not_written_to_is_not_read(volume: RWVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[bytes] = []
    open_file = local_files.LocalFiles.open_file

    def noted(self: local_files.LocalFiles, path: bytes) -> SourceFile:
        opened.append(path)
        return open_file(self, path)

    monkeypatch.setattr(local_files.LocalFiles, "open_file", noted)
    assert not volume.commit().is_new
    assert opened == []
    (volume / "dir" / "large").touch()
    assert volume.commit().is_new
    assert opened == [b"dir/large"]


def test_a_time_that_no_version_can_keep_is_no_change(volume: RWVolume) -> None:
    for name in ("file", "dir"):
        os.utime(volume / name, (0, 10_413_792_000))  # 2300
    if (volume / "file").stat().st_mtime != 10_413_792_000:
        pytest.skip("the file system here keeps no such time")
    version = volume.commit()
    assert version.files.stat("file").mtime_ns == version.files.stat("dir").mtime_ns == (1 << 63) - 1
    assert is_whole(volume)
    assert not volume.commit().is_new


def test_stores_through_a_mapping_that_outlives_a_commit_are_found(volume: RWVolume) -> None:
    """The kernel changes no time for a store to a page that is dirty already."""
    path = volume / "dir" / "large"
    with path.open("r+b") as file, closing(mmap.mmap(file.fileno(), 0)) as mapped:
        mapped[0:5] = b"first"
        volume.commit()
        mapped[0:5] = b"later"
    assert volume.has_changes()
    assert volume.finalize().files.read("dir/large", 0, 5) == b"later"


def test_stores_through_a_mapping_that_is_gone_are_found(place: Path) -> None:
    volume = Volume.new("data")
    path = volume.mount(place / "mnt" / "copy", mode="copy")
    (path / "dir").mkdir()
    for name in ("small", "dir/large", "same"):
        (path / name).write_bytes(b"zeroth" * (1 if name == "small" else 30_000))
    os.link(path / "dir" / "large", path / "link")
    volume.commit()
    assert is_whole(volume)
    for data in (b"first-", b"second"):
        for name in ("small", "dir/large"):
            stored_read_first(path / name, data)
        assert volume.has_changes()
        version = volume.commit()
        assert [version.files.read(name, 0, 6) for name in ("small", "dir/large", "link")] == [data] * 3
        assert version.files.read("same", 0, 6) == b"zeroth"
        assert is_whole(volume)
        assert not volume.commit().is_new
    stored_read_first(path / "small", b"third-")
    volume.unmount()
    assert (path / "small").read_bytes() == b"third-", "it is work, and stays"
    assert Volume.open("data").commit().files.read("small") == b"third-"
    assert not path.exists()


def test_a_folder_in_memory_is_refused_for_a_volume(place: Path) -> None:
    """A tmpfs notes no store to a page that was read before, so changes would be missed. A version
    may lie there."""
    volume = Volume.new("data")
    volume.files.write("file", b"x")
    version = volume.finalize()
    with TemporaryDirectory(dir="/dev/shm") as memory:
        with pytest.raises(InvalidInputError, match="in memory") as caught:
            Volume.open("data").mount(Path(memory) / "copy", mode="copy")
        assert "read-only" in caught.value.hint
        assert os.listdir(memory) == []
        assert (version.mount(Path(memory) / "copy", mode="copy") / "file").read_text() == "x"
        version.unmount()
        assert os.listdir(memory) == []


def test_stores_after_a_version_was_copied_are_found(place: Path) -> None:
    volume = Volume.new("data")
    volume.files.write("file", b"zeroth")
    volume.finalize()
    volume = Volume.open("data")
    path = volume.mount(place / "mnt" / "copy", mode="copy")
    assert is_whole(volume)
    stored_read_first(path / "file", b"first-")
    assert volume.commit().files.read("file") == b"first-"
    volume.unmount()
    assert not path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs")
def test_stores_on_a_tmpfs_inside_a_copy_are_found(volume: RWVolume) -> None:
    inside = volume / "ram"
    inside.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", inside], check=True)
    try:
        (inside / "file").write_bytes(b"zeroth")
        volume.commit()
        stored_read_first(inside / "file", b"first-")
        assert volume.commit().files.read("ram/file") == b"first-"
        assert not volume.commit().is_new
    finally:
        subprocess.run(["umount", inside], check=True)
    volume.discard()


OTHER_STORES = """
import mmap, os, sys, time
with open(sys.argv[1], "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0)
number = 0
while not os.path.exists(sys.argv[2]):
    number += 1
    mapped[:8] = number.to_bytes(8, "big")
    if number == 100:
        print("stores", flush=True)
    time.sleep(0.0005)
"""


def test_stores_of_processes_that_cannot_be_seen_are_found(volume: RWVolume, place: Path, monkeypatch: Any) -> None:
    """Of other users, or in other containers: nothing shows what they have mapped."""
    monkeypatch.setattr("cowfs.machine.used_paths._pids", list)
    path = volume / "dir" / "large"
    for turn in range(3):
        stop = place / f"stop{turn}"
        with subprocess.Popen(
            [sys.executable, "-c", OTHER_STORES, path, stop], stdout=subprocess.PIPE, text=True
        ) as storing:
            assert storing.stdout is not None
            assert storing.stdout.readline() == "stores\n"
            volume.commit()
            stop.touch()
        assert volume.commit().files.read("dir/large", 0, 8) == path.read_bytes()[:8]
    assert is_whole(volume)


UNDER_WAY = """
import ctypes, fcntl, mmap, os, struct, sys, threading, time
USERFAULTFD, API, REGISTER, COPY = 323, 0xC018AA3F, 0xC020AA00, 0xC028AA03
libc = ctypes.CDLL(None, use_errno=True)
faults = libc.syscall(USERFAULTFD, os.O_CLOEXEC)
assert faults >= 0, os.strerror(ctypes.get_errno())
fcntl.ioctl(faults, API, struct.pack("QQQ", 0xAA, 0, 0))
data, filled = mmap.mmap(-1, mmap.PAGESIZE), mmap.mmap(-1, mmap.PAGESIZE)
filled[:] = b"later" * (mmap.PAGESIZE // 5) + b"!"
at = lambda memory: ctypes.addressof(ctypes.c_char.from_buffer(memory))
fcntl.ioctl(faults, REGISTER, struct.pack("QQQQ", at(data), mmap.PAGESIZE, 1, 0))
fd = os.open(sys.argv[1], os.O_WRONLY)
writing = threading.Thread(target=os.pwrite, args=(fd, data, 0))
writing.start()
os.read(faults, 32)
print("under way", flush=True)
sys.stdin.readline()
fcntl.ioctl(faults, COPY, struct.pack("QQQQQ", at(data), at(filled), mmap.PAGESIZE, 0, 0))
writing.join()
"""


@pytest.mark.skipif(os.geteuid() != 0 or os.uname().machine != "x86_64", reason="userfaultfd of the kernel's faults")
@pytest.mark.parametrize("size", [4096, 100_000])
def test_a_write_that_is_under_way_is_waited_for(volume: RWVolume, size: int) -> None:
    """It has set the file's times before it copies, so they do not tell of its end."""
    path = volume / "file"
    path.write_bytes(b"x" * size)
    volume.commit()
    with subprocess.Popen(
        [sys.executable, "-c", UNDER_WAY, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writing:
        assert writing.stdin is not None
        assert writing.stdout is not None
        assert writing.stdout.readline() == "under way\n"
        ending = threading.Timer(1.0, writing.communicate, ["\n"])
        ending.start()
        volume.commit()
        ending.join()
    assert volume.commit().files.read("file", 0, 5) == b"later"


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user is root without its capabilities here")
def test_a_directory_that_its_owner_may_not_read_is_told_of(place: Path) -> None:
    vol = Volume.new("closed")
    vol.files.mkdir("z")
    vol.files.chmod("z", 0o300)
    locator = vol.finalize().locator
    program = f"""
from cowfs.blocking import Volume
from cowfs.errors import AccessDeniedError
try:
    Volume.from_locator({locator!r}).mount({str(place / "closed")!r}, mode="copy")
except AccessDeniedError as error:
    print(error.message, error.hint)
"""
    ordinary = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(
        [*ordinary, sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert "'/z' of closed is a directory that its owner may not read" in said
    assert "--mode fuse" in said
    assert not (place / "closed").exists()


def test_a_copy_is_no_left_work_in_another_container(volume: RWVolume) -> None:
    """One that sees the same folder: what commits there must not tidy it away."""
    targets.keep_mounted(Path(volume.path))
    with (Path(volume.path) / "log").open("wb", buffering=0) as log:
        log.write(b"one")
        command = [sys.executable, "-m", "cowfs.cli", "commit", "data"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
        there = ["unshare", "--pid", "--fork", "--mount-proc"]
        subprocess.run([*there, *command], check=True, env=environment, timeout=120)
        assert Volume.version("data").files.read("log") == b"one"
        log.write(b"two")
    assert volume.commit().files.read("log") == b"onetwo"


def test_a_mount_that_cannot_be_noted_as_kept_is_said_to_be_there(
    volume: RWVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "touch", full)
        with pytest.raises(NoSpaceError, match=f"{volume.path} is mounted, but not noted as kept"):
            targets.keep_mounted(Path(volume.path))
    (entry,) = registry.list_mounts()
    assert not registry.is_lasting(entry)
    targets.keep_mounted(Path(volume.path))
    assert registry.is_lasting(entry)


def test_a_copy_whose_entry_the_state_directory_has_lost_is_mounted_at_once(
    volume: RWVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a crash; the one in the runtime directory is there."""
    (entry,) = registry.list_mounts()
    path = Path(volume.path)
    (path / "new").write_bytes(b"kept")
    registry.sharing_file(entry).unlink()
    monkeypatch.setattr(used_mount, "ENDING_S", 0.5)
    joined, join = list[bool](), sharing.join

    def tried(*of: Any) -> bool:
        joined.append(join(*of))
        return joined[-1]

    monkeypatch.setattr(sharing, "join", tried)
    again: RWVolume = Volume.open("data")
    assert again.mount(path, mode="copy") == path
    assert joined == [True], "nobody ends it, so nobody is waited for"
    assert [each.mount_path for each in overview.status().mounts] == [str(path)]
    assert (path / "new").read_bytes() == b"kept"
    again.unmount()
    assert registry.list_mounts() == []


def test_stores_while_a_commit_reads_are_found(volume: RWVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a mapping that comes after the commit has begun, and goes before it ends."""
    path = volume / "dir" / "large"
    open_file = local_files.LocalFiles.open_file

    class Storing(SourceFile):
        def __init__(self, fd: int) -> None:
            super().__init__(os.dup(fd))
            with path.open("r+b") as file:
                self._mapped = mmap.mmap(file.fileno(), 0)
            self._mapped[0:3] = b"AAA"

        def close(self) -> None:
            self._mapped[0:3] = b"BBB"
            self._mapped.close()
            super().close()

    def storing(self: local_files.LocalFiles, path: bytes) -> SourceFile:
        with closing(open_file(self, path)) as opened:
            return Storing(opened.fd)

    path.touch()
    with monkeypatch.context() as patch:
        patch.setattr(local_files.LocalFiles, "open_file", storing)
        version = volume.commit()
    assert version.files.read("dir/large", 0, 3) == b"AAA"
    assert volume.has_changes()
    assert volume.finalize().files.read("dir/large", 0, 3) == b"BBB"


def test_an_unmount_removes_what_has_no_work_and_keeps_what_has(volume: RWVolume, place: Path) -> None:
    path = volume.path
    with (path / "file").open() as file:
        with pytest.raises(ConflictError, match="in use") as caught:
            volume.unmount()
        assert str(os.getpid()) in str(caught.value)
        assert file.read() == "one"
    (path / "file").write_text("two")
    volume.unmount()
    assert (path / "file").read_text() == "two"
    kept = volume.status()
    assert isinstance(kept, WorkingCopySummary)
    assert (kept.has_uncommitted, kept.folder) == (True, str(path))
    with pytest.raises(InvalidStateError, match="the copy at"):
        volume.mount(place / "elsewhere")
    with pytest.raises(InvalidStateError, match="copy"):
        volume.mount(mode="fuse")
    with pytest.raises(InvalidStateError, match="copy"):
        volume.files.read("file")
    assert volume.mount() == path, "its work goes on where it is, though this machine can mount"
    summary = volume.status()
    assert isinstance(summary, MountSummary)
    assert (summary.kind, summary.has_uncommitted, summary.transport) == ("folder", True, "copy")
    version = volume.commit()
    volume.unmount()
    assert not path.exists()
    assert volume.status() is None
    assert version.files.read("file") == b"two"


def test_work_that_was_left_is_committed_without_a_mount(volume: RWVolume) -> None:
    path = volume.path
    (path / "file").write_text("left")
    volume.unmount()
    assert Volume.open("data").commit().files.read("file") == b"left"
    assert not path.exists()


def test_a_deep_tree_is_committed_and_removed(volume: RWVolume) -> None:
    """Deeper than Python's stack."""
    path = volume.mount(mode="copy")
    directory = Path(path)
    for _ in range(1100):
        directory /= "d"
        directory.mkdir()
    (directory / "file").write_text("deep")
    volume.commit()
    volume.unmount()
    assert not Path(path).exists()
    assert volume.mount(mode="copy") == path
    assert (directory / "file").read_text() == "deep"
    (directory / "more").write_text("work")
    volume.discard()
    assert (directory / "more").read_text() == "work"
    subprocess.run(["rm", "-r", path], check=True)


def test_a_copy_in_use_outlives_its_volume_object(volume: RWVolume) -> None:
    """What a program still writes is the volume's next work."""
    path = volume.path
    with (path / "file").open("a") as file:
        version = volume.finalize()
        file.write(" more")
    assert version.files.read("file") == b"one"
    with Volume.open("data") as again:
        assert again.path == path
    assert Volume.version("data").files.read("file") == b"one more"


def test_a_block_that_fails_publishes_nothing(place: Path) -> None:
    async def body() -> None:
        async def fail() -> None:
            async with cowfs.Volume.new("data") as volume:
                await volume.unmount()
                path = await volume.mount(mode="copy")
                (path / "file").write_text("x")
                raise RuntimeError

        with pytest.raises(RuntimeError) as caught:
            await fail()
        assert any("kept on this machine" in note for note in caught.value.__notes__)
        async with cowfs.Volume.open("data") as again:
            assert (again / "file").read_text() == "x"
        assert (await (await cowfs.Volume.version("data")).files.read("file")) == b"x"

    anyio.run(body)


def test_a_killed_process_loses_nothing(place: Path) -> None:
    program = """
import os, sys
from cowfs.blocking import Volume
path = Volume.new("data").mount(mode="copy")
(path / "file").write_text("written")
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert Volume.open("data").commit().files.read("file") == b"written", "while it counts as mounted"
    with Volume.open("data") as again:
        assert (again / "file").read_text() == "written"


def test_a_copy_is_moved_only_when_nobody_has_it_mounted(place: Path) -> None:
    """That of a process that has ended is only left behind."""
    program = """
import os, sys
from cowfs.blocking import Volume
volume = Volume.new("data")
(volume.mount(sys.argv[1], mode="copy") / "file").write_text("written")
volume.commit()
os.kill(os.getpid(), 9)
"""
    first, second, third = (place / "mnt" / name for name in ("first", "second", "third"))
    subprocess.run([sys.executable, "-c", program, str(first)], check=False, timeout=120)
    assert (first / "file").exists()
    volume = Volume.open("data")
    volume.mount(second, mode="copy")
    assert not first.exists()
    with pytest.raises(LeaseHeldError, match=f"as a copy at {second}"):
        Volume.open("data").mount(third, mode="copy")
    assert [entry.mount_path for entry in registry.list_mounts()] == [str(second)]
    volume.unmount()


MOUNT, UNMOUNT = "Volume.open('data').mount(mode='copy')", "Volume.open('data').unmount(force=True)"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a directory elsewhere")
@pytest.mark.parametrize("by", ["discard", "unmount", "unmount, nothing in it", "settle"])
def test_what_is_mounted_inside_is_not_deleted(volume: RWVolume, place: Path, by: str) -> None:
    precious, inside = place / "precious", volume.path / "dir" / "inside"
    precious.mkdir()
    inside.mkdir()
    if by == "unmount, nothing in it":
        volume.commit("a place for it")
    else:
        (precious / "gold").write_text("gold")
    if by == "settle":
        killed("copy-leaving", "Volume.open('data').discard(force=True)")
    subprocess.run(["mount", "--bind", precious, inside], check=True)
    try:
        if by.startswith("unmount"):
            volume.unmount()
            assert os.path.samefile(inside, precious), "it is where it was"
        else:
            with pytest.raises(ConflictError, match=f"{inside} is mounted in it"):
                volume.discard(force=True)
    finally:
        subprocess.run(["umount", inside], check=True)
    assert os.listdir(precious) == ([] if by == "unmount, nothing in it" else ["gold"])
    Volume.open("data").discard(force=True)
    left = [] if by == "unmount, nothing in it" else [inside]
    assert list((Path.home() / "cowfs").rglob("inside")) == left, "it is not the version's"


@contextmanager
def immutable(path: Path) -> Iterator[None]:
    """Not even root changes or removes it meanwhile."""
    if subprocess.run(["chattr", "+i", path], check=False, capture_output=True).returncode:
        pytest.skip("no immutable files here")
    try:
        yield
    finally:  # wherever an unmount has moved it
        subprocess.run(["chattr", "-R", "-f", "-i", Path.home()], check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files immutable")
def test_what_cannot_be_moved_and_has_work_stays_with_the_copy(volume: RWVolume) -> None:
    path = volume.path
    (path / "kept").write_text("later")
    with immutable(path / "kept"):
        volume.unmount()
    assert sorted(os.listdir(path)) == ["dir", "file", "kept"]
    again = Volume.open("data")
    assert (again.mount(mode="copy") / "kept").read_text() == "later"
    assert again.commit().files.read("kept") == b"later"


def test_files_do_not_go_into_a_folder_that_is_leaving(volume: RWVolume) -> None:
    path = volume.path
    killed("copy-leaving", UNMOUNT)
    again = Volume.open("data")
    again.files.write("beside", b"it")
    assert not path.exists()
    assert again.commit().files.read("beside") == b"it"


def test_a_directory_that_is_called_like_cowfs_own_stays_where_it_is(volume: RWVolume, place: Path) -> None:
    path = volume.path / ".cowfs-filling-0123456789abcdef"
    path.mkdir()
    (path / "a").write_text("a")
    (volume / "file").write_text("changed")
    volume.unmount()
    volume.mount(mode="copy")
    assert sorted(os.listdir(volume.path)) == [path.name, "dir", "file"]
    version = volume.commit()
    assert version.files.read(f"{path.name}/a") == b"a"
    volume.unmount()
    assert not path.parent.exists()
    volume.mount(mode="copy")
    assert (path / "a").read_text() == "a"


def test_files_that_are_called_as_half_written_ones_stay_in_the_volume(volume: RWVolume) -> None:
    for name in [*half_written("file"), *half_written("large")]:
        for path in (volume.path / name, volume.path / "dir" / name):
            path.write_text("theirs")
    (volume.path / "large").write_bytes(os.urandom(9 << 20))
    version = volume.commit()
    wanted = in_source(volume.path)
    volume.unmount()
    root = volume.mount(mode="copy")
    assert in_source(root) == in_version(version) == wanted
    (root / "file").write_text("two")
    assert in_version(volume.commit()).keys() == wanted.keys()


@pytest.mark.parametrize("by", ["version", "program"])
def test_paths_that_are_too_long_are_in_nobodys_way(volume: RWVolume, place: Path, by: str) -> None:
    """One of more than 4,095 bytes can be made, but not named from the root."""
    names = [f"{number:02}" + "x" * 248 for number in range(18)]
    if by == "version":
        volume.unmount()
        volume.files.mkdir("/".join(names), parents=True)
        volume.commit()
        with pytest.raises(InvalidInputError, match="too long"):
            Volume.open("data").mount(mode="copy")
    else:
        fd = os.open(volume.path, os.O_RDONLY)
        for name in names:
            os.mkdir(name, dir_fd=fd)
            inner = os.open(name, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = inner
        os.close(fd)
        with pytest.raises(InvalidInputError, match="too long"):
            volume.commit()
        path = volume.path
        volume.discard()
        subprocess.run(["rm", "-r", path], check=True)
    assert not (Path.home() / "cowfs" / "data").exists()
    again = Volume.open("data")
    assert again.files.read("file") == b"one"
    assert again.commit().files.read("file") == b"one"


@pytest.mark.parametrize("by", ["mount", "sweep", "conflict"])
def test_what_comes_into_a_folder_that_is_being_filled_stays(volume: RWVolume, place: Path, by: str) -> None:
    version = volume.finalize()
    path = place / "mnt" / "v"
    mount = f"Volume.from_locator({version.locator!r}).mount({str(path)!r}, mode='copy')"
    if by == "conflict":
        fill = filling.fill

        def filled(*arguments: Any, **named: Any) -> Any:
            (path / "mine").write_text("mine")
            return fill(*arguments, **named)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(filling, "fill", filled)
            with pytest.raises(ConflictError, match="'mine'"):
                version.mount(path, mode="copy")
    else:
        killed("download-piece-written", mount)
        (path / "mine").write_text("mine")
    if by == "mount":
        with pytest.raises(ConflictError, match="not empty"):
            version.mount(path, mode="copy")
    elif by == "sweep":
        mounted_folders.sweep()
    assert os.listdir(path) == ["mine"]
    assert (path / "mine").read_text() == "mine"
    version.mount(path.with_name("w"), mode="copy")


def test_what_a_container_that_is_gone_was_filling_is_in_nobodys_way(volume: RWVolume, place: Path) -> None:
    """Of its processes nothing can be told here, but that none holds the lock."""
    path = volume.path
    volume.unmount()
    killed("download-piece-written", MOUNT)
    record = volume._handle.working_copy().path / "copy.json"
    of_another = json.loads(record.read_bytes())
    of_another["process"]["host"] = "another pid:[4026531836]"
    record.write_text(json.dumps(of_another))
    again = Volume.open("data")
    assert again.mount(mode="copy") == path
    assert sorted(os.listdir(path)) == ["dir", "file"]


def test_a_version_over_the_limit_is_not_copied(volume: RWVolume, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = volume.finalize()
    with pytest.raises(NeedsFuseError, match="146") as caught:
        Volume.open("data").mount(mode="copy", copy_limit="100KiB")
    for way in ("copy_limit", "vol.files", "/dev/fuse", "FOLDER", "download"):
        assert way in caught.value.hint
    with pytest.raises(NeedsFuseError):
        version.mount(mode="copy", copy_limit=1)
    assert list((Path.home() / "cowfs").iterdir()) == [], "nothing was begun"
    (place / "source").mkdir()
    (place / "source" / "small").write_text("small")
    volume = Volume.open("data")
    volume.files.upload(place / "source", "/part")
    part = Volume.version("data:part")
    with pytest.raises(NeedsFuseError):
        Volume.version("data:dir").mount(mode="copy", copy_limit=1000)
    assert (part.mount(mode="copy", copy_limit=1000) / "small").read_text() == "small"
    assert sorted(os.listdir(part.path)) == ["small"]
    part.unmount()
    for wrong in ({"scratch": True}, {"foreground": True}):
        with pytest.raises(InvalidInputError):
            part.mount(mode="copy", **wrong)  # type: ignore[arg-type]


def test_a_head_that_moved_is_no_loss(volume: RWVolume, place: Path) -> None:
    path = volume.path
    (path / "file").write_text("ours")
    elsewhere_version(place, "theirs")
    with pytest.raises(ConflictError, match="another writer has made version") as caught:
        volume.commit()
    assert "fork" in caught.value.hint
    assert (path / "file").read_text() == "ours"
    fork = volume.fork("ours")
    assert fork.has_changes()
    assert fork.mount() == path
    version = fork.finalize("saved")
    assert version.files.read("file") == b"ours"
    assert Volume.version("data").files.read("file") == b"theirs"
    assert not path.exists()


def elsewhere_version(place: Path, text: str) -> None:
    """A version that another machine makes."""
    (place / "other").mkdir(mode=0o700, exist_ok=True)
    own = dict.fromkeys(("COWFS_STATE_DIR", "COWFS_CACHE_DIR", "XDG_RUNTIME_DIR"), str(place / "other"))
    environ = {**os.environ, **own}
    program = (
        f"from cowfs.blocking import Volume; v = Volume.open('data'); v.files.write('file', b'{text}'); v.commit()"
    )
    subprocess.run([sys.executable, "-c", program], env=environ, check=True, timeout=120)


def test_a_copy_is_shared_when_the_runtime_directory_has_gone(volume: RWVolume, place: Path) -> None:
    path = volume.path
    shutil.rmtree(place / "run")
    (place / "run").mkdir(mode=0o700)
    other = Volume.open(volume.name)
    assert other.mount(mode="copy") == path
    (path / "file").write_text("theirs")
    other.finalize()
    assert path.exists(), "another object shares it"
    volume.unmount()
    assert Volume.version(volume.name).files.read("file") == b"theirs"


def test_a_copy_that_was_unmounted_in_another_session_is_not_taken_for_lost(
    volume: RWVolume, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a runtime directory of its own, so the entry in ours stays."""
    version = Volume.version("data")
    paths = [str(volume.path), str(version.mount(mode="copy"))]
    (place / "other").mkdir(mode=0o700)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_RUNTIME_DIR", str(place / "other"))
        for path in paths:
            command = [sys.executable, "-m", "cowfs.cli", "unmount", path]
            assert subprocess.run(command, timeout=120, check=False).returncode == ConflictError.exit_code, (
                "we share it"
            )
            subprocess.run([*command, "--force"], check=True, timeout=120)
    assert overview.status().mounts == []
    moved = Volume.open("data").mount(place / "moved", mode="copy")
    assert [each.mount_path for each in overview.status().mounts] == [str(moved)]


def test_another_writer_is_told_of_at_the_mount(place: Path) -> None:
    program = """
from cowfs.blocking import Volume
volume = Volume.open("data")
volume.files.write("file", b"x")
print("writing", flush=True)
input()
"""
    Volume.new("data").resolve()
    environ = {**os.environ, "COWFS_STATE_DIR": str(place / "other")}
    writer = subprocess.Popen(
        [sys.executable, "-c", program], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "writing\n"
    try:
        with pytest.raises(LeaseHeldError, match="writ"):
            Volume.open("data").mount(mode="copy")
    finally:
        writer.communicate("\n", timeout=120)


def test_a_folder_that_is_gone_is_not_published_as_empty(volume: RWVolume, place: Path) -> None:
    path = volume.path
    path.rename(place / "moved")
    path.mkdir()
    for other in (volume, Volume.open("data")):
        assert other.has_changes()
        with pytest.raises(InvalidStateError) as caught:
            other.commit()
        assert caught.value.hint
    path.rmdir()
    again = Volume.open("data")
    copy = again.mount(mode="copy")
    assert (copy / "file").read_text() == "one"
    assert not again.commit().is_new
    again.unmount()
    assert not copy.exists()
    assert (place / "moved" / "file").read_text() == "one"


def hide_at(path: Path, *, boot_id: str | None = None, host: str | None = None) -> Path:
    """The folder goes out of sight, and everything says that another container has made it. Where
    it is now."""
    path.rename(away := path.with_name("in the container"))
    state = config.state_dir()
    copied = [*state.glob("working/*/copy.json"), *state.glob("copies/*/copy.json")]
    for record in copied:
        known = json.loads(record.read_bytes())
        known["process"].update(made_by(boot_id, host))
        record.write_text(json.dumps(known))
    for entry in registry.list_mounts():
        registry.enter(
            replace(entry, process=ProcessIdentity.from_record({**entry.process.to_record(), **made_by(boot_id, host)}))
        )
    return away


def made_by(boot_id: str | None, host: str | None) -> dict[str, str]:
    machine_id = processes.machine_id().rpartition(" ")[0]
    return {"host": f"{host or machine_id} pid:[4026531999]", "boot_id": boot_id or processes.boot_id()}


@pytest.mark.parametrize("is_unmounted", [False, True])
@pytest.mark.parametrize("mode", ["copy", "fuse", "auto"])
def test_a_copy_of_another_container_is_not_taken_for_gone(
    volume: RWVolume, mode: Any, is_unmounted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Whose state directory is this one's, and whose folder is not seen here: the container may be
    at work there."""
    path = volume.path
    (path / "file").write_text("work")
    if is_unmounted:
        volume.unmount()
    away = hide_at(path)
    here = Volume.open("data")
    for target in (path, path.with_name("m")):
        with pytest.raises(LeaseHeldError) as caught:
            here.mount(target, mode=mode)
        assert caught.value.details["where"] == str(path)
        assert "another container or pid namespace" in caught.value.details["who"]
        assert ("--take-over" in caught.value.hint, "pid" in caught.value.details) == (True, False)
    with pytest.raises((LeaseHeldError, InvalidStateError), match="another container"):
        here.commit()
    with pytest.raises(LeaseHeldError):
        here.files.write("file", b"here")
    with pytest.raises(ConflictError, match="another container"):
        here.discard()
    if not is_unmounted:
        with pytest.raises(ConflictError, match="another container"):
            here.unmount()
    shown = here.status()
    assert isinstance(shown, MountSummary | WorkingCopySummary)
    assert (shown.is_elsewhere, shown.is_gone, shown.has_uncommitted) == (True, False, None)
    assert "gone" not in caplog.text
    away.rename(path)
    if not is_unmounted:
        assert [entry.mount_path for entry in registry.list_mounts()] == [str(path)]
    assert Volume.open("data").commit().files.read("file") == b"work"


@pytest.mark.parametrize("mode", ["copy", "auto"])
def test_a_copy_that_another_container_makes_meanwhile_is_not_taken_for_gone(
    volume: RWVolume, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    """After it was looked for."""
    path = volume.path
    (path / "file").write_text("work")
    away = hide_at(path)
    monkeypatch.setattr(lost_folders, "require_not_elsewhere", lambda working_copy: None)
    with pytest.raises(LeaseHeldError):
        Volume.open("data").mount(path.with_name("m"), mode=mode)
    away.rename(path)
    assert Volume.open("data").commit().files.read("file") == b"work"


def test_a_copy_of_another_container_is_taken_over_when_that_is_said(
    volume: RWVolume, caplog: pytest.LogCaptureFixture
) -> None:
    path = volume.path
    (path / "file").write_text("work")
    away = hide_at(path)
    here = Volume.open("data")
    assert (here.mount(path, mode="copy", take_over=True) / "file").read_text() == "one"
    assert "another container" in caplog.text
    assert "The mount begins with what was committed" in caplog.text
    (path / "file").write_text("here")
    assert here.finalize().files.read("file") == b"here"
    assert (away / "file").read_text() == "work"


def test_a_copy_of_another_container_is_dropped_by_force(volume: RWVolume) -> None:
    path = volume.path
    away = hide_at(path)
    Volume.open("data").discard(force=True)
    assert (away / "file").read_text() == "one"
    assert not registry.list_mounts()
    assert (Volume.open("data").mount(path, mode="copy") / "file").read_text() == "one"


@pytest.mark.parametrize(
    ("host", "is_local", "is_old", "is_past"),
    [
        (None, True, True, True),
        (None, False, True, False),
        (None, True, False, False),
        ("another machine", True, True, False),
    ],
)
def test_a_copy_from_before_a_reboot_is_gone_if_that_is_certain(
    volume: RWVolume, monkeypatch: pytest.MonkeyPatch, host: str | None, is_local: bool, is_old: bool, is_past: bool
) -> None:
    """Some containers have boot ids of their own, and other machines of one image the same id."""
    path = volume.path
    volume.unmount()
    Volume.open("data").mount(path, mode="copy")
    monkeypatch.setattr(mount_table, "is_local", lambda fd: is_local)
    hide_at(path, boot_id="another", host=host)
    if is_old:
        monkeypatch.setattr(makers, "_boot_time_ns", lambda: 1 << 62)
    here = Volume.open("data")
    if is_past:
        assert (here.mount(path, mode="copy") / "file").read_text() == "one"
    else:
        with pytest.raises(LeaseHeldError):
            here.mount(path, mode="copy")


def test_a_read_only_copy_of_another_container_is_forgotten_by_force(
    volume: RWVolume, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    version = volume.finalize()
    path = version.mount(place / "mnt" / "v", mode="copy")
    away = hide_at(path)
    with pytest.raises(ConflictError, match="another container"):
        version.unmount()
    check = machine_checks.copies()
    assert (check.state, str(path) in check.message) == ("warn", True)
    assert f"`cowfs unmount {path} --force`" in check.hint
    (another := Volume.open("data")).mount(path, mode="copy")
    assert "--force" not in machine_checks.copies().hint  # by its path that one would be unmounted
    another.unmount()
    version.unmount(force=True)
    assert not registry.list_mounts()
    assert not list((config.state_dir() / "copies").iterdir())
    assert machine_checks.copies().state == "ok"
    assert (away / "file").read_text() == "one"
    assert "written to" not in caplog.text


def test_a_read_only_copy_whose_folder_is_gone_is_not_said_to_be_written_to(
    volume: RWVolume, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    version = volume.finalize()
    path = version.mount(place / "mnt" / "v", mode="copy")
    path.rename(path.with_name("away"))
    check = machine_checks.copies()
    assert (check.state, f"`cowfs unmount {path}`" in check.hint) == ("warn", True)
    version.unmount()
    assert "written to" not in caplog.text
    assert machine_checks.copies().state == "ok"


@pytest.mark.parametrize("stamps_are", ["missing", "of another format"])
def test_a_read_only_copy_that_nothing_is_known_of_is_not_said_to_be_written_to(
    volume: RWVolume, place: Path, caplog: pytest.LogCaptureFixture, stamps_are: str
) -> None:
    version = volume.finalize()
    path = version.mount(place / "mnt" / "v", mode="copy")
    [record] = (config.state_dir() / "copies").glob("*/copy.stamps")
    if stamps_are == "missing":
        record.unlink()
    else:
        known = record.read_bytes()[:-32].replace(b"cowfs-stamps 3", b"cowfs-stamps 2", 1)
        record.write_bytes(known + blake3(known).digest())
    version.unmount()
    assert ("was written to;" in caplog.text, "cannot tell whether" in caplog.text) == (False, True)
    assert (path / "file").read_text() == "one"
    assert not version.is_mounted


def test_a_read_only_copy_with_a_mount_inside_is_not_said_to_be_written_to(
    volume: RWVolume, place: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = volume.finalize()
    path = version.mount(place / "mnt" / "v", mode="copy")

    def is_mounted_inside(path: str) -> None:
        raise ConflictError("something is mounted inside", hint="Unmount it.")

    with monkeypatch.context() as patched:
        patched.setattr(mount_table, "require_nothing_inside", is_mounted_inside)
        version.unmount()
    assert ("was written to" in caplog.text, "something is mounted inside" in caplog.text) == (False, True)
    assert (path / "file").read_text() == "one"


def made_anew(volume: RWVolume, *, names: tuple[str, ...]) -> Path:
    """The folder, deleted and made again; the copy's record says that its inode has the number it
    had, as ext4 mostly has it."""
    path, record = volume.path, volume._handle.working_copy().path / "copy.json"
    shutil.rmtree(path)
    clock.sleep_s(0.02)
    path.mkdir()
    for name in names:
        (path / name).write_text("precious")
    found = path.lstat()
    of_old = json.loads(record.read_bytes())
    record.write_text(json.dumps({**of_old, "root_ino": found.st_ino, "root_device": found.st_dev}))
    return path


@pytest.mark.parametrize("mode", ["copy", "fuse"])
@pytest.mark.parametrize("by", ["path", "failure"])
def test_a_mount_that_fails_forgets_no_folder_that_may_come_back(
    volume: RWVolume, mode: Any, by: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = volume.path
    (path / "file").write_text("work")
    path.rename(away := path.with_name("away"))
    if by == "path":
        path.mkdir()
        (path / "another's").write_text("precious")

    def fails(*_: Any, **__: Any) -> None:
        raise UnavailableError("the store does not answer", hint="Try again.")

    with monkeypatch.context() as patch:
        if by == "failure":
            patch.setattr(filling, "fill", fails)
            patch.setattr(launch, "start", fails)
        with pytest.raises(UnavailableError if by == "failure" else ConflictError):
            Volume.open("data").mount(path, mode=mode)
    assert "begins with what was committed" not in caplog.text
    if by == "path":
        (path / "another's").unlink()
        path.rmdir()
    assert not path.exists()
    away.rename(path)
    again = Volume.open("data")
    assert (again.mount(path, mode="copy") / "file").read_text() == "work"
    assert again.commit().files.read("file") == b"work"


@pytest.mark.parametrize("names", [(), ("mine",)])
def test_a_folder_that_was_made_anew_is_not_the_copy(
    place: Path, names: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    volume: RWVolume = Volume.new("data")
    (volume.mount(mode="copy") / "file").write_text("one")
    version = volume.commit("first")
    path = made_anew(volume, names=names)
    assert machine_checks.copies().state == "warn"
    assert [each.problem for each in overview.status().mounts] == [summaries.GONE]
    for other in (volume, Volume.open("data")):
        with pytest.raises(InvalidStateError) as caught:
            other.commit()
        assert caught.value.hint
        with pytest.raises(InvalidStateError):
            other.fork("fork")
    if names:
        volume.unmount(force=True)
        Volume.open("data").discard(force=True)
        assert "is gone (another one is in its place)" in caplog.text
        assert [(each.name, each.read_text()) for each in path.iterdir()] == [("mine", "precious")]
    else:
        again = Volume.open("data")
        assert (again.mount(mode="copy") / "file").read_text() == "one"
        assert "The mount begins with what was committed" in caplog.text
        assert not again.commit().is_new
    assert Volume.version("data") == version


def test_a_read_only_copy_is_not_a_folder_that_was_made_anew(volume: RWVolume, place: Path) -> None:
    version = volume.finalize()
    path = version.mount(place / "mnt" / "v", mode="copy")
    [record] = (place / "c" / "state" / "copies").glob("*/copy.json")
    of_old = json.loads(record.read_bytes())
    shutil.rmtree(path)
    clock.sleep_s(0.02)
    path.mkdir()
    (path / "mine").write_text("precious")
    record.write_text(json.dumps({**of_old, "root_ino": path.lstat().st_ino}))
    version.unmount(force=True)
    assert os.listdir(path) == ["mine"]


def test_a_folder_in_which_everything_was_replaced_is_the_copy_whatever_number_its_device_has_got(
    volume: RWVolume, place: Path
) -> None:
    record, path = volume._handle.working_copy().path / "copy.json", volume.path
    of_old = json.loads(record.read_bytes())
    (path / "file").unlink()
    shutil.rmtree(path / "dir")
    (path / "other").write_text("two")
    record.write_text(json.dumps({**of_old, "root_device": of_old["root_device"] + 1}))
    assert volume.commit().files.read("other") == b"two"


@pytest.mark.mount
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems")
def test_another_volume_of_a_container_is_not_published_as_empty(place: Path) -> None:
    """The roots of all file systems of a kind have the same inode."""
    with disk_at(place / "mnt" / "data") as path:
        volume: RWVolume = Volume.new("data")
        volume.mount(path, mode="copy")
        (path / "file").write_text("one")
        volume.commit("first")
        with disk_at(path), pytest.raises(InvalidStateError):
            Volume.open("data").commit()
        again = Volume.open("data")
        assert not again.commit().is_new
        again.unmount()


def test_a_version_is_copied_read_only(volume: RWVolume, place: Path, caplog: pytest.LogCaptureFixture) -> None:
    version = volume.finalize()
    path = version.mount(mode="copy")
    modes = {each: stat.S_IMODE((path / each).stat().st_mode) for each in ("", "file", "dir", "dir/large")}
    assert not any(mode & 0o222 for mode in modes.values()), modes
    assert version.mount() == path
    version.unmount()
    assert not path.exists()
    path = version.mount(place / "mnt" / "v", mode="copy")
    (path / "file").chmod(0o644)
    (path / "file").write_text("changed")
    with caplog.at_level(logging.WARNING):
        version.unmount()
    assert "was written to" in caplog.text
    assert (path / "file").read_text() == "changed"
    assert not version.is_mounted
    assert Volume.version("data") == version


def test_what_a_killed_reader_leaves_is_swept(volume: RWVolume, place: Path) -> None:
    version = volume.finalize()
    path = place / "mnt" / "v"
    program = f"""
import os
from cowfs.blocking import Volume
from cowfs.machine.folders import stamps
stamps.store = lambda *_: os.kill(os.getpid(), 9)
Volume.from_locator({version.locator!r}).mount({str(path)!r}, mode="copy")
"""
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=120).returncode == -signal.SIGKILL
    assert path.exists()
    version.mount(path, mode="copy")
    version.unmount()
    assert not path.exists()


def test_special_files_that_a_commit_of_a_copy_leaves_out_are_named(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    volume: RWVolume = Volume.new("data")
    path = volume.mount(mode="copy")
    os.mkfifo(path / "a pipe")
    (path / "f").write_text("x")
    volume.commit()
    volume.unmount()
    assert "'a pipe'" in caplog.text


@pytest.mark.mount
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts by FUSE, and makes a device")
def test_what_a_copy_cannot_hold_stays_in_the_volume(place: Path) -> None:
    with Volume.new("data") as volume:
        path = volume.path
        os.mkfifo(path / "pipe")
        (path / "shared").mkdir()
        (path / "shared").chmod(0o2775)
        (path / "program").write_text("#!/bin/sh")
        os.setxattr(path / "program", "user.note", b"kept")
        os.chown(path / "program", 1000, 1000)
        (path / "program").chmod(0o4755)
        (path / "other").write_text("x")
    before = Volume.version("data").id
    with Volume.open("data") as volume:
        volume.unmount()
        path = volume.mount(mode="copy")
        assert sorted(os.listdir(path)) == ["other", "program", "shared"]
        assert volume.commit().id == before
        (path / "other").write_text("changed")
        volume.commit()
        (volume._handle.working_copy().path / "copy.stamps").unlink()
        assert not volume.commit().is_new, "without stamps all is read, and nothing found"
    with Volume.version("data") as version:
        found = version.path
        assert stat.S_ISFIFO((found / "pipe").stat().st_mode)
        assert stat.S_IMODE((found / "shared").stat().st_mode) == 0o2775
        program = (found / "program").stat()
        assert (stat.S_IMODE(program.st_mode), program.st_uid) == (0o4755, 1000)
        assert os.getxattr(found / "program", "user.note") == b"kept"
        assert (found / "other").read_text() == "changed"


@pytest.mark.mount
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts by FUSE, and changes owners")
def test_what_was_renamed_keeps_what_a_copy_cannot_hold(place: Path) -> None:
    names = ["alone", "below/far", "far", "linked", "linked2", "one", "two", "over", "was", "closed", "lone", "link"]
    with Volume.new("data") as volume:
        path = volume.path
        (path / "below").mkdir()
        for number, name in enumerate(names):
            if name == "linked2":
                os.link(path / "linked", path / name)
            elif name == "link":
                os.symlink("target", path / name)
            else:
                (path / name).write_text(name)
                os.setxattr(path / name, "user.note", name.encode())
            os.chown(path / name, 1000 + number, 1000, follow_symlinks=False)
            if name != "link":
                (path / name).chmod(0o4755)
    with Volume.open("data") as volume:
        volume.unmount()
        path = volume.mount(mode="copy")
        for old, new in [
            ("alone", "alone2"),
            ("below", "above"),
            ("far", "below"),  # what was a directory
            ("linked", "linked1"),
            ("one", "aside"),
            ("two", "one"),
            ("aside", "two"),
            ("over", "was"),
            ("closed", "closed2"),
            ("link", "link2"),
        ]:
            (path / old).rename(path / new)
        (path / "closed2").chmod(0o600)
        os.link(path / "lone", path / "also")
        version = volume.commit()
        assert contents(in_version(version)) == contents(in_source(path))
        assert is_whole(volume)
        assert not volume.commit().is_new
    with Volume.version("data") as version:
        found = version.path
        for new, old, mode in [
            ("alone2", "alone", 0o4755),
            ("above/far", "below/far", 0o4755),
            ("below", "far", 0o4755),
            ("linked1", "linked2", 0o4755),
            ("linked2", "linked2", 0o4755),
            ("one", "two", 0o4755),
            ("two", "one", 0o4755),
            ("was", "over", 0o4755),
            ("closed2", "closed", 0o600),
            ("lone", "lone", 0o4755),
            ("also", "lone", 0o4755),
        ]:
            at = (found / new).stat()
            assert (stat.S_IMODE(at.st_mode), at.st_uid) == (mode, 1000 + names.index(old)), new
            assert os.getxattr(found / new, "user.note").decode() == old.replace("linked2", "linked")
        assert (found / "link2").lstat().st_uid == 1000 + names.index("link")
        for one, other in (("linked1", "linked2"), ("also", "lone")):
            assert (found / one).stat().st_ino == (found / other).stat().st_ino


@pytest.mark.mount
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts by FUSE, and changes owners")
def test_a_renamed_file_inherits_from_no_other(place: Path) -> None:
    """One that was written to and given its old time; a new one that is as a renamed file was, and
    has its name."""
    with Volume.new("data") as volume:
        path = volume.path
        for name in ("sneaked", "same"):
            (path / name).write_text(name)
            os.chown(path / name, 1000, 1000)
    with Volume.open("data") as volume:
        volume.unmount()
        path = volume.mount(mode="copy")
        before = {name: (path / name).stat() for name in ("sneaked", "same")}
        (path / "sneaked").rename(path / "renamed")
        (path / "renamed").write_text("SNEAKED")
        (path / "same").rename(path / "also")
        (path / "same").write_text("same")
        for name, old in (("renamed", "sneaked"), ("same", "same")):
            os.utime(path / name, ns=(0, before[old].st_mtime_ns))
    with Volume.version("data") as version:
        found = version.path
        assert (found / "renamed").read_text() == "SNEAKED"
        owners = {name: (found / name).stat().st_uid for name in ("renamed", "same", "also")}
        assert owners == {"renamed": 0, "same": 0, "also": 1000}


@pytest.mark.mount
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts by FUSE, and changes owners")
def test_what_is_renamed_while_a_commit_looks_is_the_same_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found at both places."""
    with Volume.new("data") as volume:
        for name in ("first", "second"):
            (volume.path / name).mkdir()
        (volume.path / "first" / "file").write_text("x")
        os.chown(volume.path / "first" / "file", 1000, 1000)
    listed = local_files.LocalFiles.list
    with Volume.open("data") as volume:
        volume.unmount()
        path = volume.mount(mode="copy")

        def renaming(self: local_files.LocalFiles, at: bytes) -> list[tuple[bytes, local_files.LocalAttr]]:
            if at == b"second":
                (path / "first" / "file").rename(path / "second" / "file")
            return listed(self, at)

        with monkeypatch.context() as patch:
            patch.setattr(local_files.LocalFiles, "list", renaming)
            meanwhile = in_version(volume.commit())
        assert meanwhile["second/file"].first == "first/file"
        assert in_version(volume.commit()) == in_source(path)
    with Volume.version("data") as version:
        found = (version.path / "second" / "file").stat()
        assert (found.st_nlink, found.st_uid) == (1, 1000)


def test_that_everything_was_removed_is_work(volume: RWVolume) -> None:
    path = volume.path
    for name in ("file", "dir/large"):
        (path / name).unlink()
    (path / "dir").rmdir()
    volume.unmount()
    assert path.is_dir()
    again = Volume.open("data")
    assert again.has_changes()
    assert again.mount() == path
    assert again.finalize().stats.files == 0
    assert not path.exists()


def test_a_copy_without_work_follows_the_volume(
    volume: RWVolume, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (volume / "file").open():
        volume.finalize()
    elsewhere_version(place, "theirs")
    again = Volume.open("data")
    path = again.mount(mode="copy")
    assert (path / "file").read_text() == "theirs"
    (path / "file").write_text("ours")
    again.unmount()
    elsewhere_version(place, "theirs again")
    assert "another writer has made version" not in caplog.text
    again.mount(mode="copy")
    assert "another writer has made version" in caplog.text
    assert (path / "file").read_text() == "ours"
    again.discard()


def test_a_folder_has_one_volume(volume: RWVolume, place: Path) -> None:
    """Also an empty one, which anything else could be mounted on."""
    empty = Volume.new("empty").mount(place / "mnt" / "empty", mode="copy")
    for mode in ("copy", "fuse"):
        with pytest.raises(ConflictError, match="folder of a copy"):
            Volume.new("other").mount(empty, mode=mode)
    with (
        pytest.raises(LeaseHeldError, match="as a copy"),
        fsspec.filesystem("cowfs").open("cowfs://data/x", "wb") as file,
    ):
        file.write(b"x")
    assert volume.finalize().stats.files == 2
    Volume.open("empty").unmount(force=True)


@pytest.mark.mount
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_copy_may_lie_on_a_mount(place: Path) -> None:
    """As a container's volume does."""
    with disk_at(place / "mnt" / "volume") as path:
        with Volume.new("data") as volume:
            volume.unmount()
            volume.mount(path, mode="copy")
            (path / "file").write_text("x")
        assert list(path.iterdir()) == []
    assert Volume.version("data").files.read("file") == b"x"


def test_what_somebody_uses_is_not_tidied_away(volume: RWVolume) -> None:
    path = volume.path
    with (path / "file").open("a") as file:
        volume.finalize()
        assert Volume.open("data").mount() == path, "its folder is used still, so it is gone on with"
        file.write("!")
    assert Volume.open("data").commit().files.read("file") == b"one!"
    Volume.open("data").unmount()


@pytest.mark.parametrize("is_foreseen", [True, False])
@pytest.mark.parametrize("names", [("readme", "README"), ("dir/x", "Dir/y")])
def test_a_version_that_a_file_system_cannot_show_whole_is_not_mounted(
    place: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str], is_foreseen: bool
) -> None:
    """is_foreseen: how it takes names for one is known to copies."""
    volume: RWVolume = Volume.new("data")
    for name in names:
        (place / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "source" / name).write_text(name)
    volume.files.upload(place / "source")
    [version] = volume.history()
    with monkeypatch.context() as patch:
        fold(patch)
        if not is_foreseen:
            patch.setattr(copying, "groups", lambda names: [])
        for mounted, path in ((volume, place / "mnt" / "w"), (version, place / "mnt" / "r")):
            with pytest.raises(ConflictError, match="name"):
                mounted.mount(path, mode="copy")
            assert not path.exists()
    assert (registry.list_mounts(), volume.history()) == ([], [version])
    root = volume.mount(place / "mnt" / "w", mode="copy")
    assert [(root / name).read_text() for name in names] == [*names]
    volume.unmount()


def test_a_mode_that_is_changed_before_a_file_replaces_another_is_the_new_one(place: Path) -> None:
    volume: RWVolume = Volume.new("data")
    root = volume.mount(mode="copy")
    for name, mode in (("before", 0o600), ("after", 0o644)):
        (root / name).write_text(name)
        (root / name).chmod(mode)
    volume.commit()
    (root / "before").chmod(0o644)
    (root / "before").replace(root / "after")
    version = volume.commit()
    assert (version.files.read("after"), stat.S_IMODE(version.files.stat("after").mode)) == (b"before", 0o644)
    volume.unmount()


def test_modes_that_a_file_system_does_not_keep_stay_in_the_volume(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume: RWVolume = Volume.new("data")
    modes = {"private": 0o600, "program": 0o755, "hidden": 0o700}
    (place / "source" / "hidden").mkdir(parents=True)
    for name, mode in modes.items():
        if name != "hidden":
            (place / "source" / name).write_text(name)
        (place / "source" / name).chmod(mode)
    volume.files.upload(place / "source")
    root, change = place / "mnt" / "copy", os.fchmod

    def show_to_all(fd: int, mode: int) -> None:
        change(fd, 0o777 if os.readlink(f"/proc/self/fd/{fd}").startswith(f"{root}/") else mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fchmod", show_to_all)
        volume.mount(root, mode="copy")
    assert {stat.S_IMODE((root / name).stat().st_mode) for name in modes} == {0o777}
    for text in ("one", "another"):
        (root / "private").write_text(text)
        (root / "program").touch()
        (root / "hidden" / text).write_text("new")
        version = volume.commit()
        assert {name: stat.S_IMODE(version.files.stat(name).mode) for name in modes} == modes
        assert version.files.read("private") == text.encode()
    (root / "program").chmod(0o711)
    assert stat.S_IMODE(volume.commit().files.stat("program").mode) == 0o711
    volume.unmount()


@contextmanager
def disk_at(path: Path) -> Iterator[Path]:
    """A file system that keeps whole seconds."""
    image = path.with_name(f"{path.name}-{clock.random_bytes(4).hex()}")
    path.mkdir(exist_ok=True, parents=True)
    with image.open("wb") as file:
        file.truncate(8 << 20)
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-I", "128", image], check=True, capture_output=True)
    subprocess.run(["mount", "-o", "loop", image, path], check=True)
    subprocess.run(["rmdir", path / "lost+found"], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


@pytest.fixture
def coarse(place: Path) -> Iterator[Path]:
    with disk_at(place / "mnt" / "coarse") as path:
        yield path


@pytest.mark.mount
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_changes_within_one_second_are_found_where_times_are_whole_seconds(coarse: Path) -> None:
    volume: RWVolume = Volume.new("data")
    root = volume.mount(coarse / "copy", mode="copy")
    for text in ("one", "two", "six"):
        (root / "file").write_text(text)
        assert volume.commit().files.read("file") == text.encode()
        assert is_whole(volume)
    volume.unmount()
    assert not root.exists()
    (coarse / "small").write_text("one")
    with (
        closing(SourceFile(os.open(coarse / "small", os.O_RDONLY))) as opened,
        local_files.LocalFiles(os.fsencode(coarse)) as files,
    ):
        small = files.read_small(b"", [b"small"], 100, None, True)[0]
        (coarse / "small").write_text("two")
        assert small is None or opened.stamp() != small[0]
        before = opened.settle()
        (coarse / "small").write_text("six")
        assert opened.stamp() != before


@pytest.mark.parametrize("size", [3, 100_000])
def test_what_is_removed_while_a_commit_reads_is_not_in_the_version(
    volume: RWVolume, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    gone = volume / "gone"
    gone.write_bytes(b"1" * size)
    volume.commit()
    gone.write_bytes(b"2" * size)
    opened, read_small = local_files.LocalFiles.open_file, local_files.LocalFiles.read_small

    def open_file(self: local_files.LocalFiles, path: bytes) -> SourceFile:
        gone.unlink(missing_ok=True)
        return opened(self, path)

    def read(self: local_files.LocalFiles, *arguments: Any) -> Any:
        gone.unlink(missing_ok=True)
        return read_small(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(local_files.LocalFiles, "open_file", open_file)
        patch.setattr(local_files.LocalFiles, "read_small", read)
        version = volume.commit()
    assert not version.files.exists("gone")
    assert is_whole(volume)
    assert not volume.commit().is_new


def _replace(path: Path, by: str) -> None:
    if by == "nothing":
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    elif by == "file" and not path.is_file():
        _replace(path, "nothing")
        path.write_bytes(b"now a file")
    elif by == "link" and not path.is_symlink():
        _replace(path, "nothing")
        path.symlink_to("elsewhere")


@pytest.mark.parametrize("by", ["nothing", "file", "link"])
@pytest.mark.parametrize("what", ["a link", "a file", "below/a directory"])
def test_names_that_change_while_a_commit_lists_are_there_or_not(
    volume: RWVolume, monkeypatch: pytest.MonkeyPatch, what: str, by: str
) -> None:
    """The version has what there was at some moment, or a message says to do it again."""
    (volume / "below" / "a directory").mkdir(parents=True)
    (volume / "below" / "a directory" / "in it").write_text("1")
    (volume / "a link").symlink_to("somewhere")
    (volume / "a file").write_bytes(b"1" * 100_000)
    before = volume.commit()
    (volume / "a file").write_bytes(b"2" * 100_000)
    listed = local_files.LocalFiles.list

    def listing(self: local_files.LocalFiles, path: bytes) -> Any:
        found = listed(self, path)
        if os.fsencode(Path(what).name) in [name for name, _ in found]:
            _replace(volume / what, by)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(local_files.LocalFiles, "list", listing)
        try:
            volume.commit()
        except ConflictError as error:
            assert by != "nothing"
            assert "was replaced while it was read" in error.message or "was written to" in error.message
            assert Volume.version(volume.name).id == before.id
    volume.commit()
    assert is_whole(volume)
    assert not volume.commit().is_new


def test_files_are_those_of_the_copy(volume: RWVolume) -> None:
    path = volume.path
    volume.files.write("new", b"by files")
    assert (path / "new").read_text() == "by files"
    (path / "other").write_text("by path")
    assert volume.files.read("other") == b"by path"
    assert Volume.open("data").mount() == path, "another object shares it"
    assert volume.finalize().stats.files == 4


def test_the_notice_comes_once_and_only_unasked(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cowfs.machine.mounting.DEVICE", place / "no-device")
    monkeypatch.setattr(new_folders, "_warned", set())
    with caplog.at_level(logging.WARNING):
        with Volume.new("asked") as volume:
            volume.unmount()
            caplog.clear()
            new_folders._warned.clear()
            volume.mount(mode="copy")
        assert "copy" not in caplog.text
        for name in ("one", "two"):
            with Volume.new(name) as volume:
                (volume / "file").write_text("x")
    assert caplog.text.count("cannot mount") == 1


def test_stamps_that_are_damaged_count_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "stamps"
    known = {b"a": stamps.FileStamp(0o100644, 1, 2, OLD_NS, -1), b"a/\xff": stamps.FileStamp(0o40755, 0, 0, 3, 0)}
    stamps.store(path, None, known)
    assert stamps.load(path, None) == known
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:40] + b"x" + whole[41:], b""):
        path.write_bytes(damaged)
        assert stamps.load(path, None) is None
