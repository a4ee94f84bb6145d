"""cowfs through fsspec: URLs, transactions, races, pickles."""

from __future__ import annotations

import errno
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import fsspec
import pytest
from upath import UPath

from cowfs.api import sources
from cowfs.api.versions import head_changes, waiting, writer_turn
from cowfs.base import config
from cowfs.base.ids import StoreId
from cowfs.blocking import Store, Volume
from cowfs.errors import (
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    LeaseHeldError,
    ReadOnlyError,
    UnavailableError,
)
from cowfs.integrations.fsspec import CowfsFileSystem
from cowfs.integrations.fsspec_files import WrittenFile
from cowfs.integrations.fsspec_transactions import CowfsTransaction
from cowfs.machine.known_stores import PLAIN, KnownStore
from cowfs.machine.lock import LockHolder
from cowfs.machine.working_copy import list_working_copies, working_root
from cowfs.session.scratch import Scratch

pytestmark = pytest.mark.usefixtures("place")


@pytest.fixture
def fs(place: Path) -> CowfsFileSystem:
    made = CowfsFileSystem(skip_instance_cache=True)
    made.mkdir("cowfs://data")
    return made


def versions(name: str = "data") -> int:
    return len(Volume.open(name).resolve().history())


def test_urls(fs: CowfsFileSystem, place: Path) -> None:
    fs.pipe("data/dir/a b%20", b"content")
    version = Volume.version("data")
    assert fs.ls("", detail=False) == ["data"]
    for url in (
        "cowfs://data/dir/a b%20",
        f"cowfs://data@{version.id[:8]}/dir/a b%20",
        f"{version.locator}/dir/a%20b%2520",
    ):
        with fsspec.open(url) as file:
            assert file.read() == b"content", url
    found, path = fsspec.core.url_to_fs(f"{version.locator}/dir/a%20b%2520")
    assert found.info(path)["size"] == 7
    assert found.unstrip_protocol(path) == f"{version.locator}/dir/a%20b%2520"
    assert [each["name"] for each in found.ls(found._parent(path))] == [path]
    with pytest.raises(ReadOnlyError):
        found.pipe(path, b"")
    elsewhere = f"cowfs+{(place / 'store').as_uri()}/-/data/other"
    with fsspec.open(elsewhere, "wb") as file:
        file.write(b"by the store's URL")
    assert fs.cat("data/other") == b"by the store's URL"
    with pytest.raises(FileNotFoundError, match="mkdir"):
        fs.open("cowfs://none/x", "wb")
    assert not fs.exists("cowfs://none/x")


def test_each_closed_file_is_a_version(fs: CowfsFileSystem) -> None:
    with fs.open("data/a/b", "wb") as file:
        file.write(b"one")
        assert versions() == 0
    assert (versions(), fs.cat("data/a/b")) == (1, b"one")
    with fs.open("data/a/b", "ab") as file:
        file.write(b", two")
    with fs.open("data/text", "w") as file:
        file.write("text")
    assert (versions(), fs.cat("data/a/b"), fs.cat("data/text")) == (3, b"one, two", b"text")
    with suppress(KeyError), fs.open("data/a/b", "wb") as file:
        file.write(b"half")
        raise KeyError
    assert (versions(), fs.cat("data/a/b")) == (3, b"one, two")


def opened(fs: CowfsFileSystem, is_by_url: bool, path: str, mode: str, compression: str | None) -> Any:
    if is_by_url:
        return fsspec.open(f"cowfs://{path}", mode, compression=compression)
    return fs.open(path, mode, compression=compression)


@pytest.mark.parametrize("is_in_transaction", [False, True])
@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("mode", ["wb", "w"])
@pytest.mark.parametrize("is_by_url", [False, True])
def test_a_file_whose_block_raises_is_not_published(
    place: Path, is_by_url: bool, mode: str, compression: str | None, is_in_transaction: bool
) -> None:
    fs: CowfsFileSystem = fsspec.filesystem("cowfs")  # that of the URLs
    fs.mkdir("data")
    whole: Any = b"whole" if "b" in mode else "whole"
    with fs.transaction if is_in_transaction else nullcontext():
        with opened(fs, is_by_url, "data/file", mode, compression) as file:
            file.write(whole)
        with suppress(KeyError), opened(fs, is_by_url, "data/file", mode, compression) as file:
            file.write(whole[:2])
            raise KeyError
        try:
            raise KeyError
        except KeyError:  # which has nothing to do with the file
            with opened(fs, is_by_url, "data/other", mode, compression) as file:
                file.write(whole)
        written = opened(fs, False, "data/third", mode, compression)
        try:
            raise KeyError
        except KeyError as error:
            written.write(whole)
            with suppress(KeyError), opened(fs, is_by_url, "data/half", mode, compression) as file:
                written.close()  # by a block of another file that raises
                raise error
    assert fs.find("data") == ["data/file", "data/other", "data/third"]
    for path in fs.find("data"):
        with fs.open(path, compression=compression) as file:
            assert file.read() == b"whole"


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("mode", ["wb", "w"])
def test_a_file_that_nobody_closes_is_not_published_and_told(
    fs: CowfsFileSystem, mode: str, compression: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    fs.open("data/file", mode, compression=compression).write(b"half" if mode == "wb" else "half")
    gc.collect()
    assert fs.find("data") == []
    assert [record.getMessage() for record in caplog.records] == ["data/file was never closed, and is not published"]


@pytest.mark.parametrize("mode", ["wb", "w"])
def test_a_file_that_its_transaction_does_not_close_is_not_published(
    fs: CowfsFileSystem, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    with fs.transaction:
        fs.pipe("data/other", b"content")
        file = fs.open("data/file", mode)
        file.write(b"half" if mode == "wb" else "half")
    assert fs.find("data") == ["data/other"]
    assert [record.getMessage() for record in caplog.records] == ["data/file was never closed, and is not published"]


def test_a_commit_that_has_failed_is_not_done_the_next_time(
    fs: CowfsFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = fs.open("data/file", "wb", autocommit=False)
    file.write(b"content")
    file.close()
    with monkeypatch.context() as patch:
        patch.setattr(head_changes, "publish", lambda *_: (_ for _ in ()).throw(ConflictError("no", hint="no")))
        with pytest.raises(ConflictError):
            file.commit()
    with pytest.raises(ValueError, match="not published"):
        file.commit()
    assert fs.find("data") == []


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_text_whose_end_cannot_be_kept_is_not_published(
    fs: CowfsFileSystem, compression: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = fs.open("data/file", "w", compression=compression)
    file.write("whole")

    def write(self: WrittenFile, data: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(WrittenFile, "write", write)
    with pytest.raises(OSError, match="no space"):
        file.close()
    assert file.closed
    assert fs.find("data") == []


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("mode", ["wb", "w"])
def test_who_opens_without_autocommit_publishes_by_a_call(
    fs: CowfsFileSystem, mode: str, compression: str | None
) -> None:
    for path, end in (("data/committed", "commit"), ("data/discarded", "discard")):
        with fs.open(path, mode, compression=compression, autocommit=False) as file:
            file.write(b"content" if mode == "wb" else "content")
        assert not fs.exists(path)
        getattr(file, end)()
    with fs.open("data/committed", mode.replace("w", "r"), compression=compression) as file:
        assert file.read() == (b"content" if mode == "wb" else "content")
    assert fs.find("data") == ["data/committed"]


def test_a_file_that_is_written_has_any_length(fs: CowfsFileSystem) -> None:
    with fs.open("data/cut", "wb") as file:
        file.write(b"abcdef")
        assert (file.truncate(3), file.tell()) == (3, 6)
        file.seek(1)
        assert file.truncate() == 1
        assert file.truncate(4) == 4
    assert fs.cat("data/cut") == b"a\0\0\0"


def test_a_transaction_is_one_version_or_none(fs: CowfsFileSystem) -> None:
    fs.pipe({"data/old": b"old", "data/moved": b"moved"})
    assert versions() == 1
    with fs.transaction:
        fs.pipe("data/part-0", b"0")
        with fs.open("data/dir/part-1", "wb") as file:
            file.write(b"1")
        fs.rm("data/old")
        fs.mv("data/moved", "data/dir/there")
        assert fs.find("data") == ["data/moved", "data/old"]
    assert (versions(), fs.find("data")) == (2, ["data/dir/part-1", "data/dir/there", "data/part-0"])
    with suppress(KeyError), fs.transaction:
        fs.pipe("data/no", b"")
        fs.rm("data/dir", recursive=True)
        raise KeyError
    assert (versions(), len(fs.find("data"))) == (2, 3)
    fs.pipe("data/after", b"x")
    assert versions() == 3


def test_a_write_makes_no_transaction(fs: CowfsFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could take the place of one that another thread has just begun, whose changes would then
    be published one by one."""
    made = list[CowfsTransaction]()

    class Noted(CowfsTransaction):
        def __init__(self, fs: CowfsFileSystem) -> None:
            super().__init__(fs)
            made.append(self)

    monkeypatch.setattr(CowfsFileSystem, "transaction_type", Noted)
    fs.pipe("data/a", b"1")
    fs.rm("data/a")
    assert made == []
    with fs.transaction:
        fs.pipe("data/b", b"1")
    assert (len(made), versions()) == (1, 3)


def test_what_other_threads_lose_with_a_transaction_is_told(
    fs: CowfsFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    def write() -> None:
        with fs.open("data/theirs", "wb") as file:
            file.write(b"x")

    with suppress(KeyError), fs.transaction:
        other = threading.Thread(target=write)
        other.start()
        other.join()
        raise KeyError
    assert not fs.exists("data/theirs")
    assert "not published (1 changes)" in caplog.text
    caplog.clear()
    with suppress(KeyError), fs.transaction:
        write()
        raise KeyError
    assert caplog.text == ""


FORKING = """
import multiprocessing, os, sys
from cowfs.errors import InvalidStateError
from cowfs.integrations.fsspec import CowfsFileSystem

fs = CowfsFileSystem()
before = None

def child(how):
    try:
        if how == "end":
            fs.transaction.complete()
        elif how == "close":
            before.close()
        elif how == "mkdir":
            fs.mkdir("data/made")
        elif how == "pipe":
            fs.pipe("data/piped", b"x")
        else:
            with fs.open("data/opened", "wb") as file:
                file.write(b"x")
    except InvalidStateError as error:
        return f"{how}: {error.message}"
    return f"{how}: nothing"

def reads(_):
    return fs.ls("data", detail=False)

def publishes(_):
    with CowfsFileSystem(skip_instance_cache=True).open("data/alone", "wb") as file:
        file.write(b"x")

forks = multiprocessing.get_context("fork")
with fs.transaction:
    fs.pipe("data/index", b"1")
    before = fs.open("data/before", "wb")
    for how in ("end", "close", "mkdir", "pipe", "open"):
        with forks.Pool(1) as pool:
            print(*pool.map(child, [how]))
    with forks.Pool(1) as pool:
        print(*pool.map(reads, [0]))
        pool.map(publishes, [0])
    before.close()
"""


def test_a_forked_child_adds_nothing_to_a_transaction_and_is_told(fs: CowfsFileSystem) -> None:
    """The process that publishes would not hear of it."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *refused, listed = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in refused] == ["end", "close", "mkdir", "pipe", "open"]
    assert all("belongs to a transaction of process" in line for line in refused)
    assert listed == "[]"
    assert sorted(fs.ls("data", detail=False)) == ["data/alone", "data/before", "data/index"]


def test_a_transaction_sees_the_directories_that_it_makes(fs: CowfsFileSystem) -> None:
    """As duckdb does, which looks for the directory of a partition after it has made it."""
    with fs.transaction:
        for _ in range(2):
            fs.makedirs("data/a/b", exist_ok=True)
        with pytest.raises(FileExistsError):
            fs.mkdir("data/a")
        assert fs.isdir("data/a")
        assert (fs.isdir("data/a/b"), fs.ls("data/a/b"), fs.isdir("data/a/c")) == (True, [], False)
        fs.pipe("data/a/b/file", b"1")
        assert fs.ls("data/a/b") == []
    assert (versions(), fs.find("data")) == (1, ["data/a/b/file"])
    with suppress(KeyError), fs.transaction:
        fs.mkdir("data/c")
        raise KeyError
    assert not fs.exists("data/c")


def test_what_removes_a_kind_of_thing_removes_no_other(fs: CowfsFileSystem) -> None:
    """As local file systems: programs try one, and go on when it fails."""
    volume = Volume.open("data")
    volume.files.mkdir("empty")
    volume.files.mkdir("full")
    volume.files.write("full/file", b"0")
    volume.files.write("file", b"0")
    volume.files.symlink("link", "empty")
    volume.finalize()
    before = sorted(fs.find("data", withdirs=True))
    wrong: list[tuple[type[OSError], Callable[[], object]]] = [
        (NotADirectoryError, lambda: fs.rmdir("data/file")),
        (NotADirectoryError, lambda: fs.rmdir("data/link")),
        (OSError, lambda: fs.rmdir("data/full")),
        (FileNotFoundError, lambda: fs.rmdir("data/none")),
        (IsADirectoryError, lambda: fs.rm_file("data/empty")),
        (IsADirectoryError, lambda: fs.rm("data/empty")),
        (IsADirectoryError, lambda: fs.rm("data/full")),
        (FileNotFoundError, lambda: fs.rm_file("data/none")),
        (FileExistsError, lambda: fs.makedirs("data/file", exist_ok=True)),
    ]
    for error, call in wrong:
        with pytest.raises(error):
            call()
    transaction = fs.transaction
    transaction.start()
    fs.pipe("data/other", b"1")
    fs.rmdir("data/file")
    with pytest.raises(NotADirectoryError):
        transaction.complete()
    assert sorted(fs.find("data", withdirs=True)) == before
    fs.rmdir("data/empty")
    fs.rm_file("data/link")
    fs.rm("data/full", recursive=True, maxdepth=2)
    fs.rm("data/file")
    assert fs.ls("data") == []


def test_what_is_moved_is_never_what_is_removed(fs: CowfsFileSystem) -> None:
    volume = Volume.open("data")
    volume.files.mkdir("d/e", parents=True)
    for path in ("a", "d/one", "d/two", "d/e/three"):
        volume.files.write(path, path.encode())
    volume.files.symlink("link", "d")
    volume.finalize()
    before = fs.find("data")
    same: list[tuple[Any, Any]] = [
        ("data/a", "data/a"),
        ("cowfs://data/a", "data//a"),
        ("data/link/one", "data/d/one"),
        ("data/a", "data/"),
        (["data/a"], "data"),
        ("data/link/o*", "data/d"),
    ]
    for paths in same:
        fs.mv(*paths)
        assert fs.find("data") == before
    wrong: list[tuple[Any, Any, type[Exception]]] = [
        ("data", "data/new", OSError),
        ("data/d", "data/d/e", OSError),
        ("data/d", "data/d", OSError),
        ("data/d/", "data/d/e/f", OSError),
        (["data/a", "data/d/one"], ["data/d/one", "data//a"], InvalidInputError),
        (["data/a", "data/d/one"], ["data/b", "data/b"], InvalidInputError),
        ("data/d/*", "data/d", InvalidInputError),
        ("data/d/*", "data/d/e", OSError),
    ]
    for source, target, error in wrong:
        with pytest.raises(error):
            fs.mv(source, target, recursive=True)
        assert fs.find("data") == before
    with pytest.raises(InvalidInputError, match="all that lies below"):
        fs.mv("data/d", "data/new", recursive=True, maxdepth=1)
    fs.mv("data/d", "data/new/deeper")
    fs.mv("data/a", "data/new/")
    fs.mv(["data/new/a"], ["data/b"])
    moved = ["data/b", "data/link", "data/new/deeper/e/three", "data/new/deeper/one", "data/new/deeper/two"]
    assert fs.find("data") == moved
    assert fs.cat("data/b") == b"a"


@pytest.mark.parametrize(
    ("paths", "options", "left"),
    [
        ("d/**", {"recursive": True}, []),
        ("d/*", {"recursive": True, "maxdepth": 3}, ["d"]),
        ("**/keep", {}, ["d", "d/a", "d/deep", "d/deep/b", "d/link"]),
        ("d/link/*", {}, ["d", "d/a", "d/deep", "d/deep/b", "d/link"]),
        ("d", {"recursive": True, "maxdepth": 5}, []),
        (["d", "d/a"], {"recursive": True, "maxdepth": 3}, []),
        ("d/link", {"recursive": True, "maxdepth": 5}, ["d", "d/a", "d/deep", "d/deep/b"]),
        ("d/link", {"recursive": True}, ["d", "d/a", "d/deep", "d/deep/b"]),
        ("d", {"recursive": True}, []),
    ],
)
def test_what_links_lead_to_is_removed_only_by_its_own_name(
    fs: CowfsFileSystem, paths: str | list[str], options: dict[str, Any], left: list[str]
) -> None:
    volume = Volume.open("data")
    volume.files.mkdir("d/deep", parents=True)
    volume.files.mkdir("other")
    for path in ("d/a", "d/deep/b", "other/keep", "other/more"):
        volume.files.write(path, b"0")
    volume.files.symlink("d/link", "../other")
    volume.finalize()
    given = [f"data/{path}" for path in paths] if isinstance(paths, list) else f"data/{paths}"
    is_named = paths in ("**/keep", "d/link/*")
    fs.rm(given, **options)
    found = [each.path[1:] for each in Volume.version("data").files.ls(recursive=True)]
    kept = (
        ["other", "other/more"]
        if paths == "**/keep"
        else ["other"]
        if is_named
        else ["other", "other/keep", "other/more"]
    )
    assert found == [*left, *kept]


def test_who_comes_second_keeps_what_lies_apart_and_is_told_of_the_rest(fs: CowfsFileSystem) -> None:
    fs.pipe({"data/same": b"0", "data/dir/x": b"0"})
    mine = fs.open("data/mine", "wb")
    same = fs.open("data/same", "wb")
    other = CowfsFileSystem(skip_instance_cache=True)
    other.pipe({"data/theirs": b"theirs", "data/same": b"theirs"})
    mine.write(b"mine")
    mine.close()
    assert (fs.cat("data/mine"), fs.cat("data/theirs")) == (b"mine", b"theirs")
    same.write(b"mine")
    with pytest.raises(ConflictError, match="'same'"):
        same.close()
    assert fs.cat("data/same") == b"theirs"
    transaction = fs.transaction
    transaction.start()
    fs.rm("data/dir", recursive=True)
    other.pipe("data/dir/y", b"new")
    with pytest.raises(ConflictError, match="'dir'"):
        transaction.complete()
    assert fs.find("data/dir") == ["data/dir/x", "data/dir/y"]


@pytest.mark.parametrize("path", ["link", "there/real"])
def test_what_somebody_wrote_where_a_link_leads_is_not_replaced(fs: CowfsFileSystem, path: str) -> None:
    volume = Volume.open("data")
    volume.files.mkdir("dir")
    volume.files.write("dir/real", b"0")
    volume.files.symlink("link", "dir/real")
    volume.files.symlink("there", "dir")
    volume.finalize()
    mine = fs.open(f"data/{path}", "wb")
    mine.write(b"mine")
    CowfsFileSystem(skip_instance_cache=True).pipe("data/dir/real", b"theirs")
    with pytest.raises(ConflictError, match=path):
        mine.close()
    assert fs.cat(f"data/{path}") == b"theirs"
    fs.pipe(f"data/{path}", b"mine")
    assert fs.cat("data/dir/real") == b"mine"


WORKER = """
import sys
import fsspec
from cowfs.errors import ConflictError
from cowfs.integrations.fsspec import CowfsFileSystem
number = sys.argv[1]
fs = CowfsFileSystem()
part, same = fs.open(f"data/part-{number}", "wb"), fs.open("data/same", "wb")
for file in (part, same):
    file.write(number.encode() * 100_000)
print("open", flush=True)
sys.stdin.readline()
part.close()
try:
    same.close()
    print("won")
except ConflictError:
    print("lost")
"""


@pytest.mark.slow
def test_of_eight_processes_all_win_apart_and_one_wins_on_one_path(fs: CowfsFileSystem) -> None:
    """All have opened their files before the first one closes one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(number)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "open\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    outcomes = [worker.communicate(timeout=300)[0].strip() for worker in workers]
    assert [fs.cat(f"data/part-{number}") for number in range(8)] == [b"%d" % number * 100_000 for number in range(8)]
    assert sorted(outcomes) == ["lost"] * 7 + ["won"]
    assert fs.cat("data/same") == b"%d" % outcomes.index("won") * 100_000
    assert versions() == 9


def test_kill_9_publishes_nothing_and_is_in_nobodys_way(fs: CowfsFileSystem) -> None:
    fs.pipe("data/before", b"x")
    program = (
        "import os, fsspec\n"
        "from cowfs.integrations.fsspec import CowfsFileSystem\n"
        "from cowfs.session.session import Session\n"
        "def killed(*_): os.kill(os.getpid(), 9)\n"
        "Session.commit = killed\n"  # everything is written, and the volume adopted
        "CowfsFileSystem().pipe({'data/before': b'y', 'data/new': b'z'})\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (versions(), fs.find("data")) == (1, ["data/before"])
    fs.pipe("data/after", b"x")
    assert not Volume.open("data").has_changes()


def test_who_reads_the_volume_in_this_process_is_in_nobodys_way(fs: CowfsFileSystem) -> None:
    fs.mkdir("new")
    for name in ("data", "new"):
        reader = Volume.open(name)
        assert not reader.files.exists("x")
        for content in (b"one", b"two"):
            fs.pipe(f"{name}/x", content)
            assert reader.files.read("x") == content


def test_work_of_this_machine_is_not_left_behind(fs: CowfsFileSystem) -> None:
    fs.pipe("data/x", b"x")
    vol = Volume.open("data")
    vol.files.write("y", b"uncommitted")
    with pytest.raises(LeaseHeldError, match="without a mount"):
        fs.pipe("data/z", b"z")
    vol.unmount()
    with pytest.raises(InvalidStateError, match="uncommitted"):
        fs.pipe("data/z", b"z")
    vol.finalize()
    mounted = Volume.open("data")
    path = mounted.mount()
    with pytest.raises(LeaseHeldError) as caught:
        fs.pipe("data/z", b"z")
    assert f"write to {path}" in caught.value.hint
    mounted.unmount()
    fs.pipe("data/z", b"z")
    assert len(fs.ls("data")) == 3


HOLDER = """
import sys
from cowfs.blocking import Volume
vol = Volume.open("data")
vol.files.write("work", b"acknowledged")
print("open", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("is_killed", [False, True])
def test_work_of_a_program_that_ends_while_it_is_waited_for_is_not_left_behind(
    fs: CowfsFileSystem, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    fs.pipe("data/x", b"x")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"

    asked = waiting.ends_soon

    def ends_soon(*given: Any) -> bool:
        """What the write asks when it has found it there."""
        if holder.poll() is None:
            if is_killed:
                holder.kill()
            holder.communicate("\n", timeout=60)
        return asked(*given)

    monkeypatch.setattr(waiting, "ends_soon", ends_soon)
    with pytest.raises(InvalidStateError, match="uncommitted"):
        fs.pipe("data/z", b"z")
    assert Volume.open("data").finalize().files.read("work") == b"acknowledged"


def test_nobody_of_this_machine_opens_a_volume_that_is_written_to(
    fs: CowfsFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.pipe("data/x", b"x")
    refused, adopt = list[str](), Scratch.adopt

    def adopt_meanwhile(scratch: Scratch, volume: str) -> None:
        working_copy = Volume.open("data")._handle.to_upload().working_copy
        with pytest.raises(LeaseHeldError, match="without a mount"), working_copy.lock(LockHolder.this_process("")):
            pass
        refused.append(volume)
        adopt(scratch, volume)

    monkeypatch.setattr(Scratch, "adopt", adopt_meanwhile)
    fs.pipe("data/z", b"z")
    assert refused == ["data"]
    assert list_working_copies() == []
    assert config.list_directory(working_root()) == []


@pytest.mark.parametrize("module", [head_changes, writer_turn])
def test_who_waits_for_another_writer_says_so_once(
    fs: CowfsFileSystem, module: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fs.pipe("data/x", b"x")
    first = Volume.version("data")
    fs.pipe("data/y", b"y")
    working_copy = Volume.open("data")._handle.to_upload().working_copy
    held, asked = ExitStack(), list[object]()

    def ends_soon(*given: object) -> bool:
        """Twice it does not."""
        asked.append(given)
        if len(asked) == 3:
            held.close()
        return True

    monkeypatch.setattr(waiting, "ends_soon", ends_soon)
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.0)
    held.enter_context(working_copy.lock(LockHolder.this_process("another process")))
    if module is head_changes:
        fs.pipe("data/z", b"z")
    else:
        Store().rollback("data", first)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "another process" in said
    assert "waiting until that ends, at most 150 s" in said


def test_threads_of_a_process_write_at_once(fs: CowfsFileSystem) -> None:
    """As pyarrow and zarr do."""
    fs.pipe("data/first", b"")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: fs.pipe(f"data/d/{number}", b"%d" % number), range(24)))
    assert {path: fs.cat(path) for path in fs.find("data/d")} == {f"data/d/{n}": b"%d" % n for n in range(24)}
    assert versions() == 1 + 24
    held = Volume.open("data")
    held.files.write("mine", b"x")
    with ThreadPoolExecutor(2) as threads, pytest.raises(LeaseHeldError, match="without a mount"):
        list(threads.map(lambda number: fs.pipe(f"data/d/{number}", b"again"), range(2)))
    held.discard()


def test_only_a_few_versions_stay_open(fs: CowfsFileSystem) -> None:
    for number in range(10):
        fs.pipe("data/x", b"%d" % number)
    found = [f"data@{version.id}/x" for version in reversed(Volume.open("data").resolve().history())]
    first = fs.open(found[0])
    assert [fs.cat(path) for path in found] == [b"%d" % number for number in range(10)]
    assert len(fs._versions) == 8
    assert first.read() == b"0"


def test_pickles_and_tokens_have_no_credentials(fs: CowfsFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    fs.pipe("data/x", b"x")
    copied = pickle.loads(pickle.dumps(fs))
    assert copied.cat("data/x") == b"x"
    for said in (pickle.dumps(copied), copied.to_json().encode(), copied._fs_token.encode(), repr(copied).encode()):
        assert b"very-secret" not in said
    assert "located" in json.loads(copied.to_json())
    with fsspec.open("cowfs://data/x") as file:
        assert file.read() == b"x"
    assert fsspec.filesystem("cowfs") is fsspec.filesystem("cowfs")


def test_an_open_file_pickles_to_its_place_in_its_version(fs: CowfsFileSystem) -> None:
    """As xarray and dask send them to their workers."""
    fs.pipe({"cowfs://data/x%41 #?": b"0123456789", "cowfs://data/xA #?": b"another one"})
    with fs.open("cowfs://data/x%41 #?") as file:
        file.seek(4)
        sent = pickle.dumps(file)
    fs.pipe_file("cowfs://data/x%41 #?", b"another one")
    with pickle.loads(sent) as file:
        assert file.read() == b"456789"


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # fsspec leaves them so
@pytest.mark.parametrize("cache", ["blockcache", "filecache", "simplecache"])
def test_files_are_read_by_way_of_a_cache_of_fsspec(fs: CowfsFileSystem, place: Path, cache: str) -> None:
    content = os.urandom(3 << 20)
    fs.pipe({"data/file": content, "data/empty": b""})
    options = {cache: {"cache_storage": str(place / "cached")}}
    for _ in range(2):
        with fsspec.open(f"{cache}::cowfs://data/file", **options) as file:
            file.seek(1 << 20)
            assert file.read(10) == content[1 << 20 :][:10]
            file.seek(0)
            assert file.read() == content
        with fsspec.open(f"{cache}::cowfs://data/empty", **options) as file:
            assert file.read() == b""
        assert file.closed


def test_versions_by_tag_number_and_time(fs: CowfsFileSystem) -> None:
    for text in (b"one", b"two", b"three"):
        fs.pipe("data/dir/file", text)
    two = Volume.version("data@{1}")
    tag = two.tag("20261130").name  # looks like an id
    then = (two.created + timedelta(microseconds=1)).isoformat()
    for name in (f"data@{tag}", "data@{1}", f"data@{{{then}}}"):
        assert fs.cat(f"cowfs://{name}/dir/file") == b"two"
        assert fs.find(f"cowfs://{name}") == [f"{name}/dir/file"]
        assert fs.cat(fs.unstrip_protocol(f"{name}/dir/file")) == b"two"
        assert fs.glob(f"{name}/*/f*") == [f"{name}/dir/file"]
    Volume.version("data").tag(tag, move=True)
    assert fs.cat(f"data@{tag}/dir/file") == b"three", "a tag may move"
    fs.pipe("data/dir/file", b"four")
    assert fs.cat("data@{1}/dir/file") == b"three", "and so does what is counted from the last one"
    with pytest.raises(FileNotFoundError, match="no version 9"):
        fs.cat("data@{9}/dir/file")


@pytest.fixture
def linked(fs: CowfsFileSystem) -> CowfsFileSystem:
    """Two packages that link each other, and links that lead to a file, nowhere, to themselves and
    out of the volume."""
    volume = Volume.open("data")
    for name, other in (("a", "b"), ("b", "a")):
        volume.files.mkdir(f"ws/{name}/modules", parents=True)
        volume.files.write(f"ws/{name}/code", name.encode())
        volume.files.symlink(f"ws/{name}/modules/{other}", f"../../{other}")
    for name, target in (("file", "a/code"), ("lost", "nothing"), ("loop", "loop"), ("out", "/usr/bin/python3")):
        volume.files.symlink(f"ws/{name}", target)
    volume.finalize()
    return fs


def local(fs: CowfsFileSystem, place: Path) -> None:
    """The same directory below `place`."""
    version = fs._version("data")
    assert version is not None
    version.files.download("/", place / "data")


def test_listings_do_not_go_into_linked_directories(linked: CowfsFileSystem, tmp_path: Path) -> None:
    local(linked, tmp_path)
    beside = fsspec.filesystem("file")

    def found(fs: Any, above: str) -> list[Any]:
        def short(paths: Any) -> list[str]:
            return sorted(path.removeprefix(above) for path in paths)

        walked = [
            (root.removeprefix(above), sorted(names), sorted(files)) for root, names, files in fs.walk(f"{above}ws")
        ]
        calls: list[Any] = [short(fs.find(f"{above}ws")), short(fs.find(f"{above}ws", withdirs=True)), sorted(walked)]
        calls += [short(fs.glob(f"{above}{each}")) for each in ("ws/**", "ws/*/", "**/code", "ws/*/modules/*/code")]
        calls += [short(fs.ls(f"{above}ws/a/modules/b", detail=False)), short(fs.glob(f"{above}ws/a/modules/b/*"))]
        return [*calls, fs.isdir(f"{above}ws/a/modules/b"), fs.info(f"{above}ws/a/modules/b")["type"]]

    assert found(linked, "data/") == found(beside, f"{tmp_path}/data/")
    assert linked.du("data/ws") == 3
    rows = {each["name"]: each for each in linked.ls("data/ws/a/modules")}
    assert (rows["data/ws/a/modules/b"]["type"], rows["data/ws/a/modules/b"]["islink"]) == ("other", True)
    assert {each["type"] for each in linked.ls("data/ws") if each["name"] == "data/ws/file"} == {"file"}


def test_a_tree_with_links_is_got(linked: CowfsFileSystem, tmp_path: Path) -> None:
    linked.get("data/ws", f"{tmp_path}/ws", recursive=True)
    got = sorted(str(path.relative_to(tmp_path / "ws")) for path in (tmp_path / "ws").rglob("*"))
    assert got == ["a", "a/code", "a/modules", "a/modules/b", "b", "b/code", "b/modules", "b/modules/a", "file"]
    assert (tmp_path / "ws" / "file").read_bytes() == b"a"
    with pytest.raises(OSError, match=r"data/ws/lost"):
        linked.get("data/ws/lost", f"{tmp_path}/lost")
    assert not (tmp_path / "lost").exists()


def test_a_directory_is_moved_as_a_local_one(fs: CowfsFileSystem) -> None:
    fs.pipe({"data/d/one": b"1", "data/d/e/two": b"2"})
    fs.mv("data/d", "data/moved")
    assert fs.find("data") == ["data/moved/e/two", "data/moved/one"]
    assert UPath("cowfs://data/moved").rename("cowfs://data/named").name == "named"
    assert fs.find("data") == ["data/named/e/two", "data/named/one"]
    fs.mkdir("other")
    fs.mv("data/named", "other/d")
    assert fs.find("other") == ["other/d/e/two", "other/d/one"]
    assert fs.find("data") == []


def test_a_path_does_not_search_linked_directories(linked: CowfsFileSystem) -> None:
    found = sorted(str(path.path) for path in UPath("cowfs://data/ws").rglob("*"))
    assert [path for path in found if path.count("/") > 4] == []
    assert [path.name for path in UPath("cowfs://data/ws").rglob("code")] == ["code", "code"]


# -- what cannot be found out


def _unmounted(place: Path, fs: CowfsFileSystem, *, is_known: bool) -> CowfsFileSystem:
    fs.pipe("data/dir/a", b"a")
    store = config.default_store().removeprefix("file://")
    Path(store).rename(f"{store}.away")
    if is_known:
        return fs
    KnownStore((place / "another").as_uri()).remember(StoreId(bytes(16)), PLAIN)
    return CowfsFileSystem(f"{place}/another", skip_instance_cache=True)


QUESTIONS: dict[str, Callable[[CowfsFileSystem, str], object]] = {
    "exists": lambda fs, path: fs.exists(path),
    "lexists": lambda fs, path: fs.lexists(path),
    "isfile": lambda fs, path: fs.isfile(path),
    "isdir": lambda fs, path: fs.isdir(path),
    "find": lambda fs, path: fs.find(path),
    "glob": lambda fs, path: fs.glob(f"{path}/*"),
    "walk": lambda fs, path: list(fs.walk(path)),
    "ls": lambda fs, path: fs.ls(path),
    "du": lambda fs, path: fs.du(path),
    "mapper": lambda fs, path: "a" in fs.get_mapper(path),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("is_known", [False, True])
def test_a_store_that_is_not_there_is_not_an_empty_one(
    fs: CowfsFileSystem, place: Path, question: str, is_known: bool
) -> None:
    asked = _unmounted(place, fs, is_known=is_known)
    with pytest.raises(CowfsError, match=r"not there|no store|not the store any more"):
        QUESTIONS[question](asked, "data/dir")


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("error", [UnavailableError("no answer"), CorruptError("damaged"), PermissionError(13, "no")])
def test_an_error_is_not_an_answer(
    fs: CowfsFileSystem, question: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.pipe("data/dir/a", b"a")

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(sources, "find", fail)
    with pytest.raises(type(error)):
        QUESTIONS[question](fs, "data/dir")


def test_where_no_store_ever_was_nothing_is(place: Path) -> None:
    """Programs ask before they make a directory."""
    fs = CowfsFileSystem(f"{place}/another", skip_instance_cache=True)
    assert not fs.exists("data/dir")
    assert not fs.isdir("data")
    assert not fs.isfile("data/dir/a")
    fs.mkdir("data")
    assert fs.isdir("data")


def test_what_is_not_there_is_said_to_be_absent(fs: CowfsFileSystem) -> None:
    fs.pipe("data/dir/a", b"a")
    for path in ("data/x", "data/dir/a/b", "other/x", "other", f"data/{'n' * 300}", f"data@{'f' * 64}/x"):
        assert not fs.exists(path)
        assert not fs.lexists(path)
        assert not fs.isfile(path)
        assert not fs.isdir(path)
        assert "@" in path or fs.find(path) == []
    assert fs.isfile("data/dir/a")
    assert fs.isdir("data/dir")
