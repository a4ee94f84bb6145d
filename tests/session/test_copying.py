"""Copies between directories and volumes: what is kept, what is refused, what is left when they
fail."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import threading
import traceback
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from cowfs import clock
from cowfs.errors import InvalidInputError
from cowfs.session import copying
from cowfs.session.copying import Copied
from cowfs.session.files import Files, this_process
from cowfs.session.local_files import LocalFiles
from cowfs.store import initialize, open_store
from cowfs.version.commit import Progress
from tests.version.working_volume import ReadingVolume, WorkingVolume

LARGE = os.urandom(3_500_000)


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


def files_of(volume: WorkingVolume | ReadingVolume) -> Files:
    return volume.files


def test_what_goes_in_comes_out(volume: WorkingVolume, tree: Path, tmp_path: Path) -> None:
    expected = Copied(files=5, directories=3, symlinks=2, bytes=2 * len(LARGE) + 5 + (64 << 20))
    with LocalFiles(os.fsencode(tree)) as local:
        assert copying.copy(local, b"", volume.files, b"in") == expected
    base = volume.commit()
    assert base.version_id is not None
    (tmp_path / "out").mkdir()
    out, wanted = tmp_path / "out" / "tree", described(tree)
    with ReadingVolume(volume.store, base.version_id, tmp_path / "reader") as reader:
        with LocalFiles(os.fsencode(tmp_path / "out")) as local:
            assert copying.copy(reader.files, b"in", local, b"tree") == expected
        assert described(out) == wanted
        os.chmod(out, 0o700)
        with LocalFiles(os.fsencode(out)) as local:
            assert copying.copy(reader.files, b"in", local, b"") == expected
        again = described(out)
        assert again.pop(".")[0] == stat.S_IFDIR | 0o700, "what is there already stays as it is"
        assert again == {path: each for path, each in wanted.items() if path != "."}
    assert (out / "large").stat().st_ino == (out / "sub" / "same").stat().st_ino
    assert (out / "sparse").stat().st_blocks * 512 < 4 << 20, "holes stay holes"
    assert sorted(os.listdir(tmp_path / "out")) == ["tree"], "no temporary file is left"


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_directories_that_may_not_be_written_to_are_copied_again(tmp_path: Path) -> None:
    """By their owner, who is no superuser."""
    for name in ("tree/closed/below", "out"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tree" / "closed" / "file").write_text("x")
    os.chmod(tmp_path / "tree" / "closed" / "below", 0o500)
    os.chmod(tmp_path / "tree" / "closed", 0o500)
    subprocess.run(["chown", "-R", "65534:65534", tmp_path], check=True)
    with LocalFiles(os.fsencode(tmp_path / "tree")) as source, LocalFiles(os.fsencode(tmp_path / "out")) as target:
        child = os.fork()
        if child == 0:
            os.setresuid(65534, 65534, 65534)
            try:
                for _ in range(2):
                    copying.copy(source, b"", target, b"")
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert described(tmp_path / "out")["closed"] == described(tmp_path / "tree")["closed"]


def test_what_is_special_is_counted_and_left_out(volume: WorkingVolume, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    os.mkfifo(tmp_path / "tree" / "fifo")
    (tmp_path / "tree" / "file").touch()
    with LocalFiles(os.fsencode(tmp_path / "tree")) as local:
        assert copying.copy(local, b"", volume.files, b"") == Copied(files=1, directories=1, skipped=1)
    assert volume.names() == [b"file"]


def test_files_and_links_are_replaced_and_directories_are_not(volume: WorkingVolume, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "dir").mkdir(parents=True)
    (source / "dir" / "x").write_text("new")
    (source / "file").write_text("new")
    os.symlink("new", source / "link")
    volume.write(b"file", b"old, and longer")
    volume.files.symlink(b"link", b"old", mtime_ns=0)
    with LocalFiles(os.fsencode(source)) as local:
        copying.copy(local, b"", volume.files, b"")
        assert (volume.read(b"file"), volume.files.readlink(b"link")) == (b"new", b"new")
        volume.mkdir(b"other")
        with pytest.raises(IsADirectoryError):
            copying.copy(local, b"file", volume.files, b"other")
        with pytest.raises(FileExistsError):
            copying.copy(local, b"dir", volume.files, b"file")
    assert volume.read(b"file") == b"new"


def test_special_files_of_a_volume_are_not_replaced(volume: WorkingVolume, tmp_path: Path) -> None:
    volume.mkdir(b"dir")
    volume.engine.mknod(volume.find(b"dir"), b"fifo", stat.S_IFIFO | 0o644, 0, this_process())
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "fifo").write_text("x")
    with LocalFiles(os.fsencode(tmp_path / "source")) as local, pytest.raises(InvalidInputError, match="not replaced"):
        copying.copy(local, b"", volume.files, b"dir")
    assert stat.S_ISFIFO(volume.files.stat(b"dir/fifo").mode)


def test_nothing_is_written_outside_of_the_target(volume: WorkingVolume, tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "file").write_text("mine")
    volume.mkdir(b"dir")
    volume.write(b"dir/file", b"theirs")
    volume.write(b"file", b"theirs")
    os.symlink(outside, inside / "dir")
    os.symlink(outside / "file", inside / "file")
    with LocalFiles(os.fsencode(inside)) as local:
        with pytest.raises(FileExistsError):
            copying.copy(volume.files, b"dir", local, b"dir")
        with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
            local.put(b"dir/file", iter([(0, b"theirs"), (6, b"")]), mode=0o644, mtime_ns=0)
        copying.copy(volume.files, b"file", local, b"file")
    assert (inside / "file").read_text() == "theirs", "the link was replaced, not followed"
    assert [(each.name, each.read_text()) for each in outside.iterdir()] == [("file", "mine")]


def test_the_first_error_ends_the_copy_and_leaves_no_torn_file(volume: WorkingVolume, tmp_path: Path) -> None:
    class Failing(Files):
        def pieces(self, path: str | bytes) -> Generator[tuple[int, bytes]]:
            for piece in super().pieces(path):
                yield piece
                if path == b"17":
                    raise OSError(5, "Input/output error")

    for number in range(40):
        volume.write(b"%d" % number, LARGE[:100_000])
    (tmp_path / "out").mkdir()
    failing = Failing(volume.engine, volume.residency)
    with LocalFiles(os.fsencode(tmp_path / "out")) as local, pytest.raises(OSError, match="Input/output") as caught:
        copying.copy(failing, b"", local, b"")
    assert caught.value.filename == "17"
    assert {path.stat().st_size for path in (tmp_path / "out").iterdir()} <= {100_000}
    assert not (tmp_path / "out" / "17").exists()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("cowfs-copy")]


def test_ctrl_c_ends_the_copy_and_leaves_no_torn_file(volume: WorkingVolume, tmp_path: Path) -> None:
    """All helpers are at work, and all are waited for."""
    at_work = threading.Semaphore(0)

    class Endless(Files):
        def pieces(self, path: str | bytes) -> Generator[tuple[int, bytes]]:
            at_work.release()
            while True:
                clock.sleep_s(0.01)
                yield 0, b"more"

    def interrupt() -> None:
        for _ in range(copying.THREADS):
            at_work.acquire()
        os.kill(os.getpid(), signal.SIGINT)

    for number in range(3 * copying.THREADS):
        volume.write(b"%d" % number, b"x")
    (tmp_path / "out").mkdir()
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with LocalFiles(os.fsencode(tmp_path / "out")) as local, pytest.raises(KeyboardInterrupt):
        copying.copy(Endless(volume.engine, volume.residency), b"", local, b"")
    interrupting.join()
    assert os.listdir(tmp_path / "out") == []


def test_progress_has_totals_and_ends_at_them(volume: WorkingVolume, tree: Path) -> None:
    heard: list[Progress] = []
    with LocalFiles(os.fsencode(tree)) as local:
        copying.copy(local, b"", volume.files, b"", heard.append)
    assert {each.stage for each in heard} == {"copy"}
    assert (heard[-1].done, heard[-1].total) == (5, 5)
    assert heard[-1].total_bytes == 2 * len(LARGE) + 5 + (64 << 20)


def test_links_are_followed_inside_of_the_volume_only(volume: WorkingVolume) -> None:
    volume.mkdir(b"a")
    volume.write(b"a/file", b"x")
    files = volume.files
    for name, target in ((b"l", b"a/file"), (b"a/up", b"../a/./file"), (b"d", b"a"), (b"loop", b"loop")):
        files.symlink(name, target, mtime_ns=0)
    files.symlink(b"out", b"../etc/passwd", mtime_ns=0)
    files.symlink(b"absolute", b"/etc/passwd", mtime_ns=0)
    for path in (b"l", b"a/up", b"d/file", b"d/up", b"/a//file/"):
        assert files.follow(path) == b"a/file", path
    assert files.follow(b"") == b""
    for path in (b"out", b"absolute", b"../x", b"missing", b"a/missing"):
        with pytest.raises(FileNotFoundError):
            files.follow(path)
    with pytest.raises(OSError, match="symbolic links"):
        files.follow(b"loop")


def test_a_local_directory_copies_as_cp_does(tree: Path, tmp_path: Path) -> None:
    """Two local trees: the parts that know volumes are not in the way."""
    (tmp_path / "out").mkdir()
    with LocalFiles(os.fsencode(tree)) as source, LocalFiles(os.fsencode(tmp_path / "out")) as target:
        copying.copy(source, b"", target, b"tree")
    subprocess.run(["diff", "-r", "--no-dereference", tree, tmp_path / "out" / "tree"], check=True)
