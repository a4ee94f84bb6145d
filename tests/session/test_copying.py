"""Copies to a directory of this machine: what is kept, what is refused, what is left when they
fail."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
import traceback
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from cowfs.base import clock
from cowfs.errors import ConflictError, InvalidInputError
from cowfs.index import Index
from cowfs.store import initialize, open_store
from cowfs.store.packs import PackReader
from cowfs.transfer import copying, local_files, names_alike
from cowfs.transfer.copying import Copied
from cowfs.transfer.local_files import LocalFiles
from cowfs.transfer.version_tree import VersionTree
from cowfs.version.commit import Progress
from tests.session.folding import fold
from tests.version.working_volume import WorkingVolume

LARGE = os.urandom(3_500_000)


class Directory(LocalFiles):
    """What is copied from. A version's files are read by others' tests."""

    def __init__(self, path: Path) -> None:
        super().__init__(os.fsencode(path))

    def pieces(self, path: bytes) -> Generator[tuple[int, bytes]]:
        with closing(self.open_file(path)) as file:
            size = file.stamp().size
            for extent in file.extents(size):
                yield extent.offset, file.read(extent, 0, extent.length)
        yield size, b""


@pytest.fixture
def out(tmp_path: Path) -> Iterator[LocalFiles]:
    (tmp_path / "out").mkdir()
    with LocalFiles(os.fsencode(tmp_path / "out")) as opened:
        yield opened


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[WorkingVolume]:
    store = open_store((tmp_path / "store").as_uri(), create=True)
    initialize(store)
    with WorkingVolume(store, "v", tmp_path / "home") as volume:
        yield volume
    store.close()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """One of everything that is kept."""
    root = tmp_path / "tree"
    (root / "sub" / "empty").mkdir(parents=True)
    (root / "large").write_bytes(LARGE)
    (root / "sub" / "small").write_text("small")
    os.symlink("../large", root / "sub" / "link")
    os.symlink("nowhere", root / "dangling")
    os.link(root / "large", root / "sub" / "same")
    with open(root / "sparse", "wb") as sparse:
        sparse.write(b"begin")
        sparse.truncate(64 << 20)
        sparse.seek(32 << 20)
        sparse.write(b"middle")
    (root / os.fsdecode(b"\xff\xfe")).touch()
    os.chmod(root / "sub" / "small", 0o4751)
    os.chmod(root / "sub" / "empty", 0o2700)
    for number, path in enumerate(sorted(root.rglob("*"), reverse=True)):
        os.utime(path, ns=(0, 1_000_000_000_000_000_000 + number), follow_symlinks=False)
    os.chmod(root, 0o711)
    os.utime(root, ns=(0, 999_999_999_999_999_999))
    return root


def described(root: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in [root, *root.rglob("*")]:
        at = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        mode = stat.S_IFMT(at.st_mode) | (at.st_mode & 0o1777)
        found[str(path.relative_to(root))] = (0 if path.is_symlink() else mode, at.st_mtime_ns, content)
    return found


def test_a_copy_is_what_its_source_is(out: LocalFiles, tree: Path, tmp_path: Path) -> None:
    expected = Copied(files=5, directories=3, symlinks=2, bytes=2 * len(LARGE) + 5 + (64 << 20))
    there, wanted = tmp_path / "out" / "tree", described(tree)
    with Directory(tree) as source:
        assert copying.copy(source, b"", out, b"tree") == expected
        assert described(there) == wanted
        subprocess.run(["diff", "-r", "--no-dereference", tree, there], check=True)
        os.chmod(there, 0o700)
        with LocalFiles(os.fsencode(there)) as again:
            assert copying.copy(source, b"", again, b"") == expected
    copied = described(there)
    assert copied.pop(".")[0] == stat.S_IFDIR | 0o700, "what is there already stays as it is"
    assert copied == {path: each for path, each in wanted.items() if path != "."}
    assert (there / "large").stat().st_ino == (there / "sub" / "same").stat().st_ino
    assert (there / "sparse").stat().st_blocks * 512 < 4 << 20, "holes stay holes"
    assert sorted(os.listdir(tmp_path / "out")) == ["tree"], "no temporary file is left"


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_directories_that_may_not_be_written_to_are_copied_again(out: LocalFiles, tmp_path: Path) -> None:
    """By their owner, who is no superuser."""
    (tmp_path / "tree" / "closed" / "below").mkdir(parents=True)
    (tmp_path / "tree" / "closed" / "file").write_text("x")
    os.chmod(tmp_path / "tree" / "closed" / "below", 0o500)
    os.chmod(tmp_path / "tree" / "closed", 0o500)
    subprocess.run(["chown", "-R", "65534:65534", tmp_path], check=True)
    with Directory(tmp_path / "tree") as source:
        child = os.fork()
        if child == 0:
            os.setresuid(65534, 65534, 65534)
            try:
                for _ in range(2):
                    copying.copy(source, b"", out, b"")
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert described(tmp_path / "out")["closed"] == described(tmp_path / "tree")["closed"]


def test_what_is_special_is_counted_and_left_out(out: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    os.mkfifo(tmp_path / "tree" / "fifo")
    (tmp_path / "tree" / "file").touch()
    with Directory(tmp_path / "tree") as source:
        assert copying.copy(source, b"", out, b"") == Copied(files=1, directories=1, skipped=1, skipped_paths=("fifo",))
    assert os.listdir(tmp_path / "out") == ["file"]


def test_files_and_links_are_replaced_and_directories_and_special_files_are_not(
    out: LocalFiles, tmp_path: Path
) -> None:
    source, there = tmp_path / "source", tmp_path / "out"
    (source / "dir").mkdir(parents=True)
    (source / "dir" / "x").write_text("new")
    (source / "file").write_text("new")
    os.symlink("new", source / "link")
    (there / "file").write_text("old, and longer")
    os.symlink("old", there / "link")
    with Directory(source) as local:
        copying.copy(local, b"", out, b"")
        assert ((there / "file").read_text(), os.readlink(there / "link")) == ("new", "new")
        (there / "other").mkdir()
        os.mkfifo(there / "fifo")
        with pytest.raises(IsADirectoryError):
            copying.copy(local, b"file", out, b"other")
        with pytest.raises(FileExistsError):
            copying.copy(local, b"dir", out, b"file")
        with pytest.raises(InvalidInputError, match="does not replace"):
            copying.copy(local, b"file", out, b"fifo")
    assert (there / "file").read_text() == "new"
    assert stat.S_ISFIFO((there / "fifo").stat().st_mode)


def test_nothing_is_written_outside_of_the_target(tmp_path: Path) -> None:
    outside, inside, source = tmp_path / "outside", tmp_path / "inside", tmp_path / "source"
    for path in (outside, inside, source / "dir"):
        path.mkdir(parents=True)
    (outside / "file").write_text("mine")
    (source / "dir" / "file").write_text("theirs")
    (source / "file").write_text("theirs")
    os.symlink(outside, inside / "dir")
    os.symlink(outside / "file", inside / "file")
    with LocalFiles(os.fsencode(inside)) as local, Directory(source) as theirs:
        with pytest.raises(FileExistsError):
            copying.copy(theirs, b"dir", local, b"dir")
        with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
            local.put(b"dir/file", iter([(0, b"theirs"), (6, b"")]), mode=0o644, mtime_ns=0)
        copying.copy(theirs, b"file", local, b"file")
    assert (inside / "file").read_text() == "theirs", "the link was replaced, not followed"
    assert [(each.name, each.read_text()) for each in outside.iterdir()] == [("file", "mine")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("README", "readme"),
        ("Dir/", "dir/"),
        ("d/e/É", "d/e/e\u0301"),
        ("a", "a. "),
        ("ﬁx", "FIX"),
        ("co-op", "co\xad-op"),
        ("x\u1fb3", "x\u03b1\u03b9"),
    ],
)
def test_names_that_are_one_at_the_target_end_it_before_anything_is_written(
    one: str, other: str, out: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, there = tmp_path / "source", tmp_path / "out"
    files = [f"{each}{number}" if each.endswith("/") else each for number, each in enumerate((one, other, "0"))]
    for path in files:
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(path)
    (there / "0").write_text("mine")
    with Directory(source) as local:
        with monkeypatch.context() as patch:
            fold(patch)
            with pytest.raises(ConflictError) as caught:
                copying.copy(local, b"", out, b"")
        assert all(repr(each.rstrip("/")) in str(caught.value) for each in (one, other))
        assert (os.listdir(there), (there / "0").read_text()) == (["0"], "mine")
        copying.copy(local, b"", out, b"")
    assert [(there / path).read_text() for path in files] == files


def deep(volume: WorkingVolume, name: bytes, depth: int) -> VersionTree:
    """A version with a directory in a directory, and so on, each with a file."""
    path = b""
    for _ in range(depth):
        path = path + b"/" + name if path else name
        volume.mkdir(path)
        volume.write(path + b"/file", b"%d" % len(path))
    volume.commit()
    return VersionTree(volume.publisher.index, PackReader(volume.store))


def test_look_ups_of_a_copy_grow_with_the_depth_and_no_faster(
    volume: WorkingVolume, out: LocalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []
    really_look_up = Index.entry

    def counted(self: Index, parent: int, name: bytes) -> int | None:
        asked.append(name)
        return really_look_up(self, parent, name)

    with closing(deep(volume, b"n", 60)) as tree:
        monkeypatch.setattr(Index, "entry", counted)
        assert copying.copy(tree, b"", out, b"", expect=tree.expect, resumes=tree).files == 60
    assert 60 <= len(asked) <= 10 * 60


def test_directories_too_deep_for_a_path_end_it_before_anything_is_written(
    volume: WorkingVolume, out: LocalFiles, tmp_path: Path
) -> None:
    with closing(deep(volume, b"n" * 250, 17)) as tree, pytest.raises(OSError, match="too long"):
        copying.copy(tree, b"", out, b"")
    assert os.listdir(tmp_path / "out") == []


def test_where_case_is_told_apart_is_tried_once(
    out: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (tmp_path / "source" / f"{number}").mkdir(parents=True)
        for name in ("Makefile", "makefile"):
            (tmp_path / "source" / f"{number}" / name).touch()
    tried: list[int] = []
    really_try = local_files._try_names

    def counted(names: Sequence[bytes], directory: int) -> tuple[int, tuple[bytes, bytes] | None]:
        tried.append(1)
        return really_try(names, directory)

    monkeypatch.setattr(local_files, "_try_names", counted)
    with Directory(tmp_path / "source") as local:
        assert copying.copy(local, b"", out, b"").files == 40
    assert tried == [1]
    assert len(os.listdir(tmp_path / "out")) == 20, "nothing is left of it"


def test_a_name_that_no_file_can_have_there_tells_nothing_of_others(
    out: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a:B", "A:B", "README", "readme"):
        (tmp_path / name).write_text(name)
    fold(monkeypatch, refuses=b":")
    with Directory(tmp_path) as local, pytest.raises(ConflictError, match=r"README.*readme|readme.*README"):
        copying.copy(local, b"", out, b"")


def test_names_that_are_there_already_are_not_tried(out: LocalFiles, tmp_path: Path) -> None:
    """A trial would change the directory's time: what changes nothing is not to look like work."""
    (tmp_path / "source").mkdir()
    for name in ("README", "readme"):
        (tmp_path / "source" / name).write_text(name)
    with Directory(tmp_path / "source") as local:
        copying.copy(local, b"", out, b"")
        before = (tmp_path / "out").stat().st_mtime_ns
        with LocalFiles(os.fsencode(tmp_path / "out")) as anew:
            copying.copy(local, b"", anew, b"", keeps=lambda *_: True)
    assert (tmp_path / "out").stat().st_mtime_ns == before


def test_a_trial_that_was_killed_is_removed_by_the_next_copy(out: LocalFiles, tmp_path: Path) -> None:
    there = tmp_path / "out"
    left, used, others = (there / f".cowfs-names-{each * 16}" for each in "123")
    for each in (left, used, others):
        each.mkdir()
        (each / "README").touch()
    (others / "README").write_text("somebody's")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").touch()
    fd = os.open(used, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with Directory(tmp_path / "source") as local:
        copying.copy(local, b"", out, b"")
        assert {each.name for each in there.iterdir()} == {"file", used.name, others.name}
    os.close(fd)


@pytest.mark.parametrize(("one", "other"), [("cafe", "caf\xe9"), ("\u304b", "\u304c"), ("a", "b"), ("a.b", "ab")])
def test_names_that_no_file_system_takes_for_one_are_not_alike(one: str, other: str) -> None:
    assert names_alike.groups([one.encode(), other.encode()]) == []


@pytest.mark.parametrize("filler", ["\u115f", "\u3164", "\uffa0", "\u200d", "\ufe0f", "\U000e0001"])
def test_names_that_differ_in_what_nobody_sees_are_alike(filler: str) -> None:
    assert len(names_alike.groups([b"name", f"na{filler}me".encode()])) == 1


def test_the_first_error_ends_the_copy_and_leaves_no_torn_file(out: LocalFiles, tmp_path: Path) -> None:
    class Failing(Directory):
        def pieces(self, path: bytes) -> Generator[tuple[int, bytes]]:
            for piece in super().pieces(path):
                yield piece
                if path == b"17":
                    raise OSError(5, "Input/output error")

    (tmp_path / "source").mkdir()
    for number in range(40):
        (tmp_path / "source" / f"{number}").write_bytes(LARGE[:100_000])
    with Failing(tmp_path / "source") as failing, pytest.raises(OSError, match="Input/output") as caught:
        copying.copy(failing, b"", out, b"")
    assert caught.value.filename == "17"
    assert {path.stat().st_size for path in (tmp_path / "out").iterdir()} <= {100_000}
    assert not (tmp_path / "out" / "17").exists()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("cowfs-copy")]


def test_ctrl_c_ends_the_copy_and_leaves_no_torn_file(out: LocalFiles, tmp_path: Path) -> None:
    """All helpers are at work, and all are waited for."""
    at_work = threading.Semaphore(0)

    class Endless(Directory):
        def pieces(self, path: bytes) -> Generator[tuple[int, bytes]]:
            at_work.release()
            while True:
                clock.sleep_s(0.01)
                yield 0, b"more"

    def interrupt() -> None:
        for _ in range(copying.THREADS):
            at_work.acquire()
        os.kill(os.getpid(), signal.SIGINT)

    (tmp_path / "source").mkdir()
    for number in range(3 * copying.THREADS):
        (tmp_path / "source" / f"{number}").write_text("x")
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with Endless(tmp_path / "source") as source, pytest.raises(KeyboardInterrupt):
        copying.copy(source, b"", out, b"")
    interrupting.join()
    assert os.listdir(tmp_path / "out") == []


def test_progress_has_totals_and_ends_at_them(out: LocalFiles, tree: Path) -> None:
    heard: list[Progress] = []
    with Directory(tree) as source:
        copying.copy(source, b"", out, b"", heard.append)
    assert {each.stage for each in heard} == {"copy"}
    assert (heard[-1].done, heard[-1].total) == (5, 5)
    assert heard[-1].total_bytes == 2 * len(LARGE) + 5 + (64 << 20)


def test_links_are_followed_inside_of_the_volume_only(volume: WorkingVolume) -> None:
    volume.mkdir(b"a")
    volume.write(b"a/file", b"x")
    files = volume.files
    for name, target in ((b"l", b"a/file"), (b"a/up", b"../a/./file"), (b"d", b"a"), (b"loop", b"loop")):
        files.new_symlink(name, target)
    files.new_symlink(b"out", b"../etc/passwd")
    files.new_symlink(b"absolute", b"/etc/passwd")
    for path in (b"l", b"a/up", b"d/file", b"d/up", b"/a//file/"):
        assert files.follow(path) == b"a/file", path
    assert files.follow(b"") == b""
    for path in (b"out", b"absolute", b"../x", b"missing", b"a/missing"):
        with pytest.raises(FileNotFoundError):
            files.follow(path)
    with pytest.raises(OSError, match="symbolic links"):
        files.follow(b"loop")


ENDED = """
import random, signal, sys, time
from dataclasses import dataclass
from cowfs.transfer.copying import copy

@dataclass
class Attr:
    ino: int = 1
    mode: int = 0o100644
    nlink: int = 1
    size: int = 1
    mtime_ns: int = 0

class Source:
    def stat(self, path):
        return Attr(mode=0o040755)
    def list(self, path):
        return [(b"%d" % n, Attr()) for n in range(10)]
    def pieces(self, path):
        while True:
            time.sleep(0.001)
            yield 0, b"x"

class Target:
    def require_possible(self, path):
        pass
    def make_directory(self, path):
        return False
    def tidy(self, path, names):
        return []
    def put(self, path, pieces, **_):
        for _ in pieces:
            pass

class Ended(BaseException):
    pass

def end(*_):
    raise Ended

signal.signal(signal.SIGALRM, end)
chance = random.Random(int(sys.argv[1]))
for _ in range(150):
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(2e-4, 6e-3))
        copy(Source(), b"", Target(), b"")
    except Ended:
        continue
"""


def test_a_signal_ends_it_at_any_moment() -> None:
    print("seed 5")
    done = subprocess.run([sys.executable, "-c", ENDED, "5"], check=False, timeout=100, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
