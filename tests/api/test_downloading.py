"""Downloads: what is on this machine afterwards is what the version has; what is there already is
not fetched; what was killed goes on."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from cowfs import storage
from cowfs.blocking import RWVolume, Store, Volume
from cowfs.errors import (
    ConflictError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    NoSpaceError,
    NotFoundError,
    UnavailableError,
)
from cowfs.machine import syncing
from cowfs.store.credentials import unlocking
from cowfs.store.packs import PackReader
from cowfs.transfer import copying, local_files, whole_files
from cowfs.transfer.local_files import LocalAttr, LocalFiles
from tests.api.conftest import half_written, place
from tests.api.test_uploading import expected, in_source, tree, upload

__all__ = ["place", "tree"]


@pytest.fixture
def volume(tree: Path) -> RWVolume:
    volume: RWVolume = Volume.new("data")
    upload(volume, tree)
    return volume


def modes(root: Path) -> dict[str, int]:
    return {name: seen.mode for name, seen in in_source(root).items()}


def test_what_went_in_comes_out(place: Path, tree: Path, volume: RWVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    done = volume.files.download()
    assert (done.files, done.symlinks, done.unchanged, done.is_new) == (6, 2, 0, False)
    assert in_source(place / "volumes" / "data") == expected(tree)
    assert (place / "volumes" / "data" / "sparse").stat().st_blocks * 512 < 4 << 20, "holes stay holes"
    assert not list((place / "c").glob("??")), "no chunk is kept in the cache"
    version = volume.history()[0]
    assert version.files.download("sub/link", place / "out/").files == 1, "a link that is named is followed"
    assert version.files.download("sub", place / "sub").files == 2
    assert in_source(place / "sub") == in_source(tree / "sub")
    for path in ("missing", "sub/missing", "big/x"):
        with pytest.raises((NotFoundError, InvalidInputError)):
            version.files.download(path, place / "x")


def test_what_is_there_is_not_fetched(
    place: Path, tree: Path, volume: RWVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = place / "out"
    volume.files.download("/", out)
    fetched: list[int] = []
    really_read = PackReader.read_each

    def counted(self: PackReader, *of: object) -> object:
        fetched.append(1)
        return really_read(self, *of)  # type: ignore[arg-type]

    monkeypatch.setattr(PackReader, "read_each", counted)
    assert (volume.files.download("/", out).unchanged, fetched) == (6, [])
    (out / "sub" / "small").unlink()
    assert (volume.files.download("/", out).unchanged, fetched) == (5, [1])
    assert in_source(out) == expected(tree)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, place: Path, request: pytest.FixtureRequest) -> int:
    """The file system at `out` keeps times as exactly as this, in nanoseconds."""
    each_ns: int = request.param
    really_stat = LocalFiles.stat

    def coarse(self: LocalFiles, path: bytes) -> LocalAttr:
        found = really_stat(self, path)
        if not self._path.startswith(os.fsencode(place / "out")):
            return found
        mtime_ns, ctime_ns = (time_ns - time_ns % each_ns for time_ns in (found.mtime_ns, found.ctime_ns))
        return replace(found, mtime_ns=mtime_ns, ctime_ns=ctime_ns)

    monkeypatch.setattr(LocalFiles, "stat", coarse)
    return each_ns


def changed(path: Path, offset: int) -> None:
    """Within the time that it has."""
    found = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        [byte] = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(found.st_mtime_ns, found.st_mtime_ns))


@pytest.mark.parametrize("kept", [2_000_000_000, 1_000_000_000, 100], indirect=True)
def test_what_is_there_is_known_where_times_are_not_kept_whole(
    place: Path, tree: Path, volume: RWVolume, asked: list[int], kept: int
) -> None:
    for number, path in enumerate((tree / "big", tree / "sub" / "small", tree / "sparse")):
        os.utime(path, ns=(LARGE_NS + number, LARGE_NS + number))
    upload(volume, tree)
    out = place / "out"
    volume.files.download("/", out)
    overwrite: Literal["error", "newer"]
    for overwrite in ("error", "newer"):
        asked.clear()
        assert volume.files.download("/", out, overwrite=overwrite).unchanged == 6
        assert asked == []
    for name, offset in (("sub/same", 1 << 20), ("sub/small", 1), ("sparse", (tree / "sparse").stat().st_size - 1)):
        changed(out / name, offset)
        with pytest.raises(ConflictError, match=name):
            volume.files.download("/", out)
        volume.files.download("/", out, overwrite="newer")
        assert (out / name).read_bytes() == (tree / name).read_bytes()


@pytest.mark.parametrize("kept", [1_000_000_000], indirect=True)
@pytest.mark.parametrize("is_mounted", [False, True])
def test_parts_of_chunks_are_compared_too(place: Path, large: RWVolume, kept: int, is_mounted: bool) -> None:
    """And what a mount has, which has no chunks."""
    with large.files.open("file", "r+b") as file:
        file.truncate(30_000_001)
    large.commit()
    large.unmount()
    if is_mounted:
        large.mount(place / "mnt" / "copy", mode="copy")
    out = place / "out"
    for unchanged in (0, 1):
        assert large.files.download("/", out).unchanged == unchanged
    for offset in (30_000_000, 15 << 20, 1):
        changed(out / "file", offset)
        with pytest.raises(ConflictError):
            large.files.download("/", out)
        changed(out / "file", offset)
    assert large.files.download("/", out).unchanged == 1
    if is_mounted:
        large.unmount()


def test_a_time_that_is_nearly_the_same_is_another_one_where_it_is_kept_whole(
    place: Path, tree: Path, volume: RWVolume
) -> None:
    os.utime(tree / "big", ns=(LARGE_NS, LARGE_NS))
    upload(volume, tree)
    out = place / "out"
    for other_ns in (LARGE_NS - 1, LARGE_NS + 1, LARGE_NS + 1_000_000_000):
        volume.files.download("/", out, overwrite="always")
        os.utime(out / "big", ns=(other_ns, other_ns))
        with pytest.raises(ConflictError, match="sub/same"):
            volume.files.download("/", out)


def test_other_names_of_a_file_that_is_there_are_there(place: Path, tree: Path) -> None:
    os.link(tree / "sub" / "small", tree / "hard")
    volume = Volume.new("data")
    upload(volume, tree)
    for unchanged in (0, 7, 7):
        done = volume.files.download("/", place / "out")
        assert (done.files, done.unchanged) == (7, unchanged)


def test_what_differs_is_replaced_as_told(place: Path, tree: Path, volume: RWVolume) -> None:
    out = place / "out"
    volume.files.download("/", out)
    (out / "big").unlink()
    (out / "sub" / "small").write_text("mine and newer")
    with pytest.raises(ConflictError, match="sub/small"):
        volume.files.download("/", out)
    assert not (out / "big").exists(), "nothing is written before"
    volume.files.download("/", out, overwrite="newer")
    assert ((out / "sub" / "small").read_text(), (out / "big").exists()) == ("mine and newer", True)
    os.utime(out / "sub" / "small", ns=(0, 1))
    volume.files.download("/", out, overwrite="newer")
    assert in_source(out)["sub/small"] == expected(tree)["sub/small"]
    (out / "sub" / "small").write_text("mine")
    volume.files.download("/", out, overwrite="always")
    assert {name: seen.content for name, seen in in_source(out).items()} == {
        name: seen.content for name, seen in expected(tree).items()
    }
    with pytest.raises(InvalidInputError):
        volume.files.download("/", out, overwrite="never")  # type: ignore[arg-type]


def test_always_writes_what_looks_the_same(place: Path, tree: Path, volume: RWVolume) -> None:
    out = place / "out"
    volume.files.download("/", out)
    changed(out / "sub" / "small", 1)
    assert volume.files.download("/", out).unchanged == 6
    assert volume.files.download("/", out, overwrite="always").unchanged == 0
    assert in_source(out) == expected(tree)


class Power:
    """What a power loss leaves of the files that are written: those that were not synced are empty,
    whatever names they have."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.unsynced = set[int]()
        self.named = 0
        self.without_bytes: list[str] = []
        self.syncs: list[int] = []  # files that each sync of a file system was for
        self.fails: dict[str, int] = {}
        self.fails_once = False
        fill, rename, fsync = local_files._fill, os.rename, os.fsync

        def filled(fd: int, *of: Any) -> None:
            self.unsynced.add(os.fstat(fd).st_ino)
            fill(fd, *of)

        def renamed(old: Any, new: Any, **at: Any) -> None:
            found = os.stat(old, dir_fd=at.get("src_dir_fd"), follow_symlinks=False)
            if at and stat.S_ISREG(found.st_mode):
                self.named += 1
                self.without_bytes += [os.fsdecode(new)] if found.st_ino in self.unsynced else []
            rename(old, new, **at)

        def synced(fd: int) -> None:
            self._fail("fsync")
            self.unsynced.discard(os.fstat(fd).st_ino)
            fsync(fd)

        def synced_all(fd: int, path: str) -> None:
            self._fail("syncfs")
            if self.fails_once and not self.syncs:  # the error is told once, whosever bytes were lost
                self.syncs.append(len(self.unsynced))
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self.syncs.append(len(self.unsynced))
            self.unsynced.clear()

        patch.setattr(local_files, "_fill", filled)
        patch.setattr(os, "rename", renamed)
        patch.setattr(os, "fsync", synced)
        patch.setattr(syncing, "sync_file_system", synced_all)

    def _fail(self, call: str) -> None:
        if call in self.fails:
            raise OSError(self.fails[call], os.strerror(self.fails[call]))


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch, volume: RWVolume) -> Power:
    monkeypatch.setattr(whole_files, "FEW_FILES", 0)
    monkeypatch.setattr(whole_files, "BATCH_FILES", 3)
    return Power(monkeypatch)


@pytest.mark.parametrize("is_mounted", [False, True])
@pytest.mark.parametrize("does_for_all", [False, True])
def test_a_power_loss_leaves_no_name_without_its_bytes(
    place: Path,
    tree: Path,
    volume: RWVolume,
    power: Power,
    monkeypatch: pytest.MonkeyPatch,
    does_for_all: bool,
    is_mounted: bool,
) -> None:
    monkeypatch.setattr(syncing, "does_for_all", lambda fd: does_for_all)
    if is_mounted:
        volume.mount(place / "mnt" / "copy", mode="copy")
    power.named, power.without_bytes[:], power.syncs[:] = 0, [], []
    volume.files.download("/", place / "out")
    assert (power.named, power.without_bytes) == (6, [])
    assert bool(power.syncs) == does_for_all
    assert all(waiting <= 2 * 3 + copying.THREADS for waiting in power.syncs)
    assert in_source(place / "out") == expected(tree)
    if is_mounted:
        volume.unmount()
    else:
        Store().copy("data:", str(place / "cp"))
        assert (power.named, power.without_bytes) == (12, [])


@pytest.mark.parametrize(
    ("number", "error"), [(errno.EIO, UnavailableError), (errno.ENOSPC, NoSpaceError), (errno.EDQUOT, NoSpaceError)]
)
@pytest.mark.parametrize("does_for_all", [False, True])
def test_what_cannot_be_synced_gets_no_name(
    place: Path,
    volume: RWVolume,
    power: Power,
    monkeypatch: pytest.MonkeyPatch,
    does_for_all: bool,
    number: int,
    error: type[CowfsError],
) -> None:
    monkeypatch.setattr(syncing, "does_for_all", lambda fd: does_for_all)
    power.fails = {"fsync": number, "syncfs": number}
    with pytest.raises(error, match=os.strerror(number)) as caught:
        volume.files.download("/", place / "out")
    assert str(place / "out") in str(caught.value)
    left = [each.name for each in (place / "out").rglob("*") if each.is_file() and not each.is_symlink()]
    assert [name for name in left if not name.startswith(".cowfs-part-")] == []


def test_another_programs_file_fails_no_download(
    place: Path, tree: Path, volume: RWVolume, power: Power, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a sync of a whole file system may."""
    monkeypatch.setattr(syncing, "does_for_all", lambda fd: True)
    power.fails = {"syncfs": errno.EIO}
    volume.files.download("/", place / "out")
    assert (power.named, power.without_bytes) == (6, [])
    assert in_source(place / "out") == expected(tree)


def test_a_sync_that_has_failed_is_not_believed_again(
    tmp_path: Path, power: Power, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells of lost bytes once, of those of the next batch, too."""
    monkeypatch.setattr(syncing, "does_for_all", lambda fd: True)
    power.fails_once = True
    power.named = 0
    with closing(whole_files.WholeFiles(os.fsencode(tmp_path))) as target:
        for number in range(6):
            target.put(b"%d" % number, [(0, b"x")], mode=0o600, mtime_ns=1)
        target.settle()
    assert (power.named, power.without_bytes, len(power.syncs)) == (6, [], 1)


def test_what_is_in_the_way_of_one_file_keeps_no_other_from_its_name(tmp_path: Path) -> None:
    with closing(whole_files.WholeFiles(os.fsencode(tmp_path))) as target:
        for name in (b"a", b"b", b"c"):
            target.put(name, [(0, name)], mode=0o200, mtime_ns=1)
        waiting = list(tmp_path.iterdir())
        assert {each.stat().st_mode & 0o777 for each in waiting} == {0o600}, "what is left can be opened, and removed"
        (tmp_path / "b").mkdir()
        with pytest.raises(OSError, match="directory"):
            target.settle()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "b", "c"]
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o200


def test_copies_that_run_at_once_leave_descriptors_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (64, 64))
    before = len(os.listdir("/proc/self/fd"))
    with ExitStack() as stack:
        copies = []
        for number in range(8):
            (root := tmp_path / str(number)).mkdir()
            copies.append(stack.enter_context(closing(whole_files.WholeFiles(os.fsencode(root)))))
            for name in range(20):
                copies[-1].put(b"%d" % name, [(0, b"x")], mode=0o600, mtime_ns=1)
        assert len(os.listdir("/proc/self/fd")) - before <= 64 // 8 + 3 * len(copies)
        for each in copies:
            each.settle()
    assert len(list(tmp_path.glob("*/[0-9]*"))) == 8 * 20


def test_work_that_is_not_committed_is_told_of(place: Path, volume: RWVolume) -> None:
    volume.files.write("new", b"x")
    with pytest.raises(InvalidStateError, match="uncommitted"):
        volume.files.download("/", place / "out")
    volume.commit()
    assert volume.files.download("/", place / "out").files == 7
    volume.unmount()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.EILSEQ, errno.EINVAL])
def test_a_target_whose_file_system_lacks_something_is_told_of(
    place: Path, volume: RWVolume, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "symlink", refused)
    with pytest.raises(InvalidInputError, match=os.strerror(number)) as caught:
        volume.files.download(dst=place / "out")
    assert str(place / "out") in str(caught.value)
    assert "file system there lacks" in caught.value.hint


def test_nothing_is_written_outside(place: Path, volume: RWVolume) -> None:
    out = place / "out"
    (out / "elsewhere").mkdir(parents=True)
    os.symlink(out / "elsewhere", out / "sub")
    with pytest.raises(InvalidInputError):
        volume.files.download("/", out, overwrite="always")
    assert os.listdir(out / "elsewhere") == []
    with pytest.raises(InvalidInputError, match="for cowfs alone"):
        volume.files.download("/", place / "store" / "x")


KILLED = """
import os, signal, sys
from cowfs.blocking import Volume
from cowfs.transfer.whole_files import WholeFiles
really_put = WholeFiles.put

def put(self, path, pieces, **attributes):
    def dying():
        for piece in pieces:
            yield piece
            if path == b"sub/small":
                os.kill(os.getpid(), signal.SIGKILL)
    really_put(self, path, dying(), **attributes)

WholeFiles.put = put
Volume.version("data").files.download("/", sys.argv[1])
"""


def test_killed_it_goes_on(place: Path, tree: Path, volume: RWVolume) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(place / "out")], env=environment, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = [path.name for path in (place / "out").rglob(".cowfs-*")]
    assert len(left) >= 1, "half of a file"
    with LocalFiles(os.fsencode(place / "out")) as local:

        def watched() -> object:
            yield 0, b"x"
            volume.files.download("/", place / "out")
            [mine] = [name for name in os.listdir(place / "out") if name.startswith(".cowfs-")]
            assert mine not in left, "what somebody writes at this moment stays"

        local.put(b"beside", watched(), mode=0o644, mtime_ns=1)  # type: ignore[arg-type]
    (place / "out" / "beside").unlink()
    assert in_source(place / "out") == expected(tree)
    assert stat.S_ISREG((place / "out" / "big").stat().st_mode)


def test_only_what_a_copy_writes_itself_is_left_over(place: Path, tree: Path, volume: RWVolume) -> None:
    out = place / "out"
    (out / "sub").mkdir(parents=True)
    ours, older = half_written("small")[::2], half_written("small")[1::2]
    mine = {each for name in [*half_written("another"), *older] for each in (name, f"sub/{name}")}
    for each in mine:
        (out / each).write_text("mine")
    for name in half_written("big")[::2]:
        (out / name).mkdir()
    for name in ours:
        (out / "sub" / name).write_text("half")
    for _ in range(2):
        volume.files.download("/", out)
        found = in_source(out)
        assert found.keys() == expected(tree).keys() | mine | set(half_written("big")[::2])
        assert {found[each].content for each in mine} == {b"mine"}


WRITTEN = 20
LARGE_NS = 1_700_000_000_123_456_789
DYING = """
import sys
from cowfs.blocking import Volume
Volume.version("large").files.download(sys.argv[1], sys.argv[2])
"""


@pytest.fixture(params=["plain", "encrypted"])
def large(request: pytest.FixtureRequest, place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RWVolume]:
    """A volume with a large file, which has a hole; its bytes differ with each call of
    `content`."""
    volume: RWVolume
    if request.param == "encrypted":
        (place / "key").write_bytes(bytes(range(40)))
        monkeypatch.setenv("COWFS_ENCRYPTION_KEY_FILE", str(place / "key"))
        volume = Volume.new(
            "large", store=storage.Local(place / "store", encryption_key=storage.KeyFile(place / "key"))
        )
    else:
        volume = Volume.new("large")
    publish(volume, place, 1)
    yield volume
    unlocking.remember(None)


def content(seed: int) -> bytes:
    return random.Random(seed).randbytes(12 << 20) + bytes(8 << 20) + random.Random(seed + 1).randbytes(12 << 20)


def publish(volume: RWVolume, place: Path, seed: int) -> None:
    source = place / "source"
    source.mkdir(exist_ok=True)
    (source / "file").write_bytes(content(seed))
    os.utime(source / "file", ns=(LARGE_NS + seed, LARGE_NS + seed))
    volume.files.upload(source)


def die(src: str, out: Path) -> Path:
    """Downloads and is killed within the file; what is left of it."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        "COWFS_FAILPOINT": f"download-piece-written:{WRITTEN}",
    }
    command = [sys.executable, "-c", DYING, src, str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    [part] = [each for each in out.iterdir() if each.name.startswith(".cowfs-part-")]
    return part


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Stored bytes of the chunks that are asked for."""
    found: list[int] = []
    really_read = PackReader.read_each

    def counted(self: PackReader, pack: Any, requests: Any) -> Any:
        found.extend(each.stored_length for each in requests)
        return really_read(self, pack, requests)

    monkeypatch.setattr(PackReader, "read_each", counted)
    return found


def downloaded(volume: RWVolume, out: Path, asked: list[int], src: str = "/") -> int:
    """Stored bytes that this took."""
    asked.clear()
    volume.files.download(src, out)
    assert [each.name for each in out.iterdir()] == ["file"]
    return sum(asked)


@pytest.mark.parametrize("src", ["/", "file"])
def test_killed_within_a_large_file_it_asks_for_what_is_missing(
    src: str, place: Path, large: RWVolume, asked: list[int]
) -> None:
    downloaded(large, place / "whole", asked)
    chunks = len(asked)
    out = place / "out"
    out.mkdir()
    part = die(src, out)
    assert 1 << 20 < part.stat().st_size < 32 << 20
    heard: list[int] = []
    asked.clear()
    large.files.download(src, out, progress=lambda seen: heard.append(seen.done_bytes))
    assert len(asked) == chunks - WRITTEN, "what the part has is not fetched"
    assert heard[-1] >= 24 << 20, "what was there counts"
    assert (out / "file").read_bytes() == content(1)
    assert (out / "file").stat().st_mtime_ns == LARGE_NS + 1
    assert (out / "file").stat().st_blocks * 512 < 26 << 20, "the hole stays one"
    assert [each.name for each in out.iterdir()] == ["file"]


def test_what_a_version_has_is_not_left_over(place: Path, large: RWVolume) -> None:
    """It has what a killed download left, besides the file that this was for."""
    source, out = place / "source", place / "out"
    part = die("/", out)
    (source / "sub").mkdir()
    for name in [*half_written("file"), part.name]:
        (source / name).write_text("theirs")
        (source / "sub" / name).write_text("theirs")
    (source / "sub" / "file").write_bytes(content(1))
    large.files.upload(source)
    again = place / "again"
    for _ in range(3):
        large.files.download("/", again)
        assert in_source(again) == in_source(source)
        (again / "file").unlink()
    large.files.download("file", again)
    assert in_source(again) == in_source(source)
    with pytest.raises(ConflictError, match=part.name):
        large.files.download("/", out)


def test_what_is_wrong_in_a_part_is_fetched_again(place: Path, large: RWVolume, asked: list[int]) -> None:
    whole = downloaded(large, place / "whole", asked)
    out = place / "out"
    part = die("/", out)
    with open(part, "r+b") as file:
        file.write(b"damaged, or never synced")
    assert 0 < downloaded(large, out, asked) < whole
    assert (out / "file").read_bytes() == content(1)


def test_a_part_of_another_content_is_not_gone_on_with(place: Path, large: RWVolume, asked: list[int]) -> None:
    out = place / "out"
    die("/", out)
    publish(large, place, 3)
    downloaded(large, out, asked)
    assert (out / "file").read_bytes() == content(3)


def test_a_part_that_others_may_write_to_is_left_alone(place: Path, large: RWVolume, asked: list[int]) -> None:
    whole = downloaded(large, place / "whole", asked)
    out = place / "out"
    part = die("/", out)
    part.chmod(0o622)
    assert downloaded(large, out, asked) == whole
    (out / "file").unlink()
    part = die("/", out)
    os.link(part, place / "mine")
    assert downloaded(large, out, asked) == whole
    assert (out / "file").read_bytes() == content(1)


@pytest.mark.parametrize("shown", [{"st_mode": 0o100777}, {"st_uid": 12345}, {"st_nlink": 2}])
def test_where_all_files_are_shown_alike_nothing_is_left(
    place: Path, large: RWVolume, asked: list[int], monkeypatch: pytest.MonkeyPatch, shown: dict[str, int]
) -> None:
    """As by file systems that keep neither owners nor modes."""

    class Shown:
        def __init__(self, fd: int) -> None:
            self._found = fstat(fd)

        def __getattr__(self, name: str) -> Any:
            return shown.get(name, getattr(self._found, name))

    class Calls:
        """The module `os`."""

        fstat = staticmethod(Shown)

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

    fstat = os.fstat
    monkeypatch.setattr(local_files, "os", Calls())
    whole = downloaded(large, place / "whole", asked)
    assert (place / "whole" / "file").read_bytes() == content(1)
    part = die("/", place / "out")
    assert downloaded(large, place / "out", asked) == whole, "anybody may have written to what is there"
    assert not part.exists()


def test_two_at_a_time_write_to_files_of_their_own(place: Path, large: RWVolume, asked: list[int]) -> None:
    out = place / "out"
    part = die("/", out)
    with open(part, "rb") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        large.files.download("/", out)
        assert part.exists(), "somebody writes it"
    assert (out / "file").read_bytes() == content(1)
    assert downloaded(large, out, asked) == 0


def test_no_room_leaves_nothing(place: Path, large: RWVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, offset: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(local_files, "_write", full)
    with pytest.raises(NoSpaceError):
        large.files.download("/", place / "out")
    assert list((place / "out").iterdir()) == []
