"""`files` of volumes and versions: what each call does, and whose session does it."""

from __future__ import annotations

import gc
import inspect
import io
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import cowfs
from cowfs.api.access import file_session
from cowfs.api.access.volume_handle import VolumeHandle
from cowfs.api.twins.twin import as_async
from cowfs.blocking import RWVolume, Store, Volume
from cowfs.errors import ConflictError, InvalidInputError, InvalidStateError, LeaseHeldError, LeaseLostError
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import list_working_copies
from cowfs.session.files import Files
from tests.api.conftest import place
from tests.interrupt import Interrupt

__all__ = ["place"]

pytestmark = pytest.mark.usefixtures("place")

LARGE = os.urandom(3_000_000)
WAIT_S = 60


@pytest.fixture
def vol() -> RWVolume:
    return Volume.new("data")


def sessions() -> int:
    """Open in this process, of the test's own store."""
    gc.collect()
    opened = list(file_session._sessions.values())
    return sum(each.session.spec.store_url == os.environ["COWFS_STORE"] for each in opened)


def wait_for_sessions(count: int) -> None:
    """A thread ends what nobody holds any more."""
    for _ in range(600):
        if sessions() == count:
            return
        threading.Event().wait(0.05)
    raise AssertionError(f"{sessions()} sessions are open")


def run(program: str, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, **options)  # type: ignore[call-overload,no-any-return]


def test_what_is_written_is_read_listed_and_published(vol: RWVolume) -> None:
    files = vol.files
    files.mkdir("a/b", parents=True)
    files.write("/a/b/file", LARGE)
    files.append("a/b/file", b"tail")
    files.append(b"new", b"made")
    files.symlink("link", "a/b")
    files.write(os.fsencode("n\udcff"), b"")
    assert files.read("a//b/./file", 2_999_998) == LARGE[-2:] + b"tail"
    assert (files.read("new", 1, 2), files.read("new", 9), files.read("link/file", 0, 3)) == (b"ad", b"", LARGE[:3])
    for offset, length in ((-1, None), (0, -1), (0.5, None), (0, "1")):
        with pytest.raises(InvalidInputError, match=r"offset|length"):
            files.read("new", offset, length)  # type: ignore[arg-type]
    with pytest.raises(IsADirectoryError):
        files.write("no/", b"")
    assert [each.path for each in files.ls()] == ["/a", "/link", "/new", "/n\udcff"]
    assert [each.path for each in files.ls("link", recursive=True)] == ["/link/file"]
    assert [each.path for each in files.ls("a", recursive=True)] == ["/a/b", "/a/b/file"]
    assert [each.name for each in files.ls("new")] == ["new"]
    found = files.stat("link")
    assert (found.type, found.path, found.target, files.exists(found)) == ("directory", "/link", None, True)
    found = files.stat("link", follow=False)
    assert (found.type, found.target, found.size) == ("symlink", "a/b", 3)
    assert vol.has_changes()
    version = vol.commit("first")
    assert (version.is_new, version.message, vol.has_changes(), vol.commit().is_new) == (True, "first", False, False)
    files.write("new", b"uncommitted")
    assert (version.files.read("new"), files.read("new")) == (b"made", b"uncommitted")
    with pytest.raises(OSError, match="Read-only"):
        version.files.open("new", "wb")
    assert vol.finalize().files.read("new") == b"uncommitted"
    with pytest.raises(InvalidStateError):
        files.read("new")
    assert list_working_copies() == []


def test_a_file_object_is_one_of_python(vol: RWVolume) -> None:
    files = vol.files
    with files.open("file", "wb") as file:
        assert file.write(LARGE) == len(LARGE)
    with files.open("file") as file:
        buffer = bytearray(2_000_000)
        assert (file.seek(-2_000_000, io.SEEK_END), file.readinto(buffer)) == (1_000_000, 2_000_000)  # type: ignore[attr-defined]
        assert bytes(buffer) == LARGE[1_000_000:]
        assert (file.read(1), file.seek(5), file.read(3), file.tell(), file.seekable()) == (b"", 5, LARGE[5:8], 8, True)
        assert file.read() == LARGE[8:]
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
    with files.open("file", "r+b") as file:
        file.seek(10)
        file.write(b"patch")
        assert (file.seek(8), file.read(9)) == (8, LARGE[8:10] + b"patch" + LARGE[15:17])
        file.truncate(20)
    assert files.stat("file").size == 20
    with files.open("file", "ab") as one, files.open("file", "ab") as other:
        one.write(b"1")
        one.flush()
        other.write(b"2")
        other.flush()
        one.write(b"3")
    assert files.read("file", 20) == b"123"
    files.write("file", b"short")
    assert files.read("file") == b"short"
    with pytest.raises(FileExistsError):
        files.open("file", "xb")
    with io.TextIOWrapper(files.open("text", "xb")) as text:
        text.write("one\ntwo\n")
    with io.TextIOWrapper(files.open("text")) as text:
        assert list(text) == ["one\n", "two\n"]
    for mode in ("rr", "rw", "rbt", "+", "U", "a+", "", None):
        with pytest.raises(InvalidInputError) as caught:
            files.open("file", mode)  # type: ignore[arg-type]
        assert caught.value.hint


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        (lambda file, end: file.write(end, b"B" * 10), (b"B" * 10, b"B" * 10 + b"A" * 10)),
        (lambda file, end: file.truncate(20), (b"\0" * 20, b"\0" * 20 + b"A" * 10, b"A" * 10 + b"\0" * 10)),
        (lambda file, end: file.append(b"B" * 10), (b"A" * 10 + b"B" * 10, b"B" * 10 + b"A" * 10)),
    ],
)
def test_an_append_is_one_step(
    vol: RWVolume, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any, int], object], allowed: tuple[bytes, ...]
) -> None:
    """Another thread comes right before the bytes go to the engine."""
    vol.files.write("log", b"")
    stored, others = Files._store, list[threading.Thread]()

    def store(self: Files, call: Callable[[], int]) -> int:
        if not others:
            others.append(threading.Thread(target=lambda: change(opened, 0)))
            others[0].start()
            others[0].join(0.5)
        return stored(self, call)

    with vol.files.open("log", "r+b") as file:
        opened = file.raw._opened  # type: ignore[attr-defined]
        monkeypatch.setattr(Files, "_store", store)
        vol.files.append("log", b"A" * 10)
        others[0].join()
    assert vol.files.read("log") in allowed


APPENDS = """
import signal, threading
from cowfs.blocking import Volume
files = Volume.new("signals").files
counts = {name: 0 for name in "mhw"}
ends = threading.Event()

def append(name):
    files.append("log", name.encode())
    counts[name] += 1

def heard(*_):
    append("h")
    files.write("state", b"saved")
    if counts["h"] < 300:
        signal.setitimer(signal.ITIMER_REAL, 0.0005)

def work():
    while not ends.is_set():
        append("w")

signal.signal(signal.SIGALRM, heard)
worker = threading.Thread(target=work)
worker.start()
signal.setitimer(signal.ITIMER_REAL, 0.0005)
while counts["h"] < 300:
    append("m")
ends.set()
worker.join()
found = files.read("log").decode()
print({name: found.count(name) for name in counts} == counts, len(found) == sum(counts.values()))
"""


def test_a_signal_handler_may_write_too() -> None:
    """To the file that the program is just appending to: nothing is lost, and nobody waits for
    ever."""
    assert run(APPENDS).stdout == "True True\n"


def test_changes(vol: RWVolume) -> None:
    files = vol.files
    files.mkdir("d/e", parents=True)
    files.write("d/e/file", LARGE)
    files.chmod("d/e/file", 0o640)
    files.symlink("d/link", "e/file")
    files.copy("d/link", "copy")
    assert (files.read("copy"), files.stat("copy").mode & 0o777) == (LARGE, 0o640)
    files.copy("d", "d2", recursive=True)
    files.copy("d", "d2", recursive=True)
    assert [each.path for each in files.ls("d2", True)] == ["/d2/e", "/d2/e/file", "/d2/link"]
    files.move("d2/e", "e")
    files.move("copy", "e/file")
    files.remove("d2", recursive=True)
    files.remove("d/link")
    assert [each.path for each in files.ls(recursive=True)] == ["/d", "/d/e", "/d/e/file", "/e", "/e/file"]
    version = vol.commit()
    assert version.stats.stored_bytes_added < 2 * len(LARGE), "a copy shares the chunks of what it is made from"
    files.copy("e/file", "again")
    assert vol.commit().stats.stored_bytes_added < 100_000, "also of what is in the store"
    refused: list[tuple[type[OSError], Callable[[], object]]] = [
        (FileNotFoundError, lambda: files.read("none")),
        (FileNotFoundError, lambda: files.write("no/file", b"")),
        (FileNotFoundError, lambda: files.ls("none")),
        (FileNotFoundError, lambda: files.remove("none")),
        (FileNotFoundError, lambda: files.move("none", "x")),
        (FileNotFoundError, lambda: files.read("../etc/passwd")),
        (NotADirectoryError, lambda: files.ls("again/x")),
        (IsADirectoryError, lambda: files.read("d")),
        (IsADirectoryError, lambda: files.write("d", b"")),
        (IsADirectoryError, lambda: files.copy("d", "d3")),
        (FileExistsError, lambda: files.mkdir("d")),
        (FileExistsError, lambda: files.mkdir("again", exist_ok=True)),
        (FileExistsError, lambda: files.symlink("d", "x")),
        (OSError, lambda: files.remove("d")),
        (OSError, lambda: files.remove("/", recursive=True)),
        (OSError, lambda: files.copy("d", "d/e/f", recursive=True)),
    ]
    for kind, call in refused:
        with pytest.raises(kind) as caught:
            call()
        assert isinstance(caught.value.filename, str)


def test_glob_and_walk(vol: RWVolume) -> None:
    files = vol.files
    for path in ("a/x.py", "a/b/y.py", "a/b/z.txt", "c.py", "é.py"):
        files.mkdir(os.path.dirname(path), parents=True, exist_ok=True) if "/" in path else None
        files.write(path, b"")
    files.symlink("a/up", "..")

    def found(pattern: str) -> list[str]:
        return [each.path for each in files.glob(pattern)]

    assert found("*.py") == ["/c.py", "/é.py"]
    assert found("?.py") == ["/c.py", "/é.py"]
    assert found("**/*.py") == ["/c.py", "/é.py", "/a/x.py", "/a/b/y.py"]
    assert found("/a/**") == ["/a", "/a/b", "/a/b/y.py", "/a/b/z.txt", "/a/up", "/a/x.py"]
    assert found("a/[b]/*") == ["/a/b/y.py", "/a/b/z.txt"]
    assert (found("a/up/c.py"), found("a/b"), found("no/*"), found("c.py/*")) == (["/a/up/c.py"], ["/a/b"], [], [])
    seen = []
    for path, directories, others in files.walk():
        seen.append((path, [each.name for each in directories], [each.name for each in others]))
        directories[:] = [each for each in directories if each.name != "b"]
    assert seen == [("/", ["a"], ["c.py", "é.py"]), ("/a", ["b"], ["up", "x.py"])]


def test_trees_deeper_than_python_recurses_are_globbed_and_copied(vol: RWVolume) -> None:
    files, path, depth = vol.files, "deep", 100
    for _ in range(depth):
        files.mkdir(path)
        path += "/d"
    files.write("deep/file", b"")
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(len(inspect.stack()) + depth)
        assert len(list(files.glob("deep/**"))) == depth + 1
        files.copy("deep", "copy", recursive=True)
    finally:
        sys.setrecursionlimit(limit)
    copied = [each.path.replace("/copy", "/deep") for each in files.ls("copy", recursive=True)]
    assert copied == [each.path for each in files.ls("deep", recursive=True)]


def test_links_and_folders_keep_inside(vol: RWVolume) -> None:
    files = vol.files
    files.mkdir("in/deep", parents=True)
    files.write("secret", b"secret")
    files.write("in/deep/file", b"file")
    files.symlink("in/out", "../secret")
    files.symlink("absolute", "/etc/passwd")
    files.symlink("above", "../../etc/passwd")
    files.symlink("loop", "loop")
    assert files.read("in/out") == b"secret"
    for path in ("absolute", "above", "../secret", "in/../../secret"):
        with pytest.raises(FileNotFoundError):
            files.read(path)
        assert not files.exists(path)
    for path in ("loop", "loop/file", "loop/deep/file"):
        with pytest.raises(OSError, match="symbolic links"):
            files.read(path)
        assert not files.exists(path)
    files.symlink("dangling", "in/new")
    files.write("dangling", b"through")
    assert files.read("in/new") == b"through"
    folder = Volume.from_locator(f"{vol.commit().locator}/in").files
    assert [each.path for each in folder.ls()] == ["/deep", "/new", "/out"]
    assert (folder.read("deep/file"), folder.exists("out"), folder.exists("../secret")) == (b"file", False, False)


def test_objects_of_one_process_share_a_session() -> None:
    vol = Volume.new("data")
    vol.files.write("file", b"one")
    other = Volume.open("data").resolve()
    assert other.files.read("file") == b"one"
    assert sessions() == 1
    assert other.has_changes()
    version = other.commit()
    assert not vol.has_changes()
    again = Volume.from_locator(version.locator)
    assert (version.files.read("file"), again.files.read("file")) == (b"one", b"one")
    assert sessions() == 2
    file = again.files.open("file")
    del version, again
    assert (file.read(), sessions()) == (b"one", 2)
    file.close()
    del file
    wait_for_sessions(1)
    other.unmount()
    assert sessions() == 0
    vol.files.write("file", b"dropped")
    Volume.open("data").discard()
    assert (sessions(), vol.files.read("file")) == (0, b"one")
    vol.files.write("file", b"two")
    del other, vol
    wait_for_sessions(0)
    assert Volume.open("data").files.read("file") == b"two", "uncommitted work was kept"


def test_an_upload_closes_what_the_process_has_open(vol: RWVolume, place: Path) -> None:
    (place / "source").mkdir()
    (place / "source" / "file").write_text("uploaded")
    assert list(vol.files.ls()) == []
    vol.files.upload(place / "source")
    assert vol.files.read("file") == b"uploaded"
    vol.files.write("more", b"x")
    with pytest.raises(InvalidStateError, match="uncommitted"):
        vol.files.upload(place / "source")
    assert vol.files.read("more") == b"x"


def test_a_commit_without_a_session_is_waited_for_in_its_process(vol: RWVolume) -> None:
    vol.files.write("file", LARGE)
    vol.unmount()
    other = Volume.open("data")
    began, asked, read = threading.Event(), threading.Event(), list[bytes]()

    def reads() -> None:
        assert began.wait(60)
        asked.set()
        read.append(other.files.read("file"))

    def hears(_: object) -> None:
        began.set()
        assert asked.wait(60)

    reader = threading.Thread(target=reads)
    reader.start()
    version = vol.commit(progress=hears)
    reader.join()
    assert read == [LARGE]
    assert version.files.read("file") == LARGE


def test_files_pickle_as_what_they_are_of(vol: RWVolume) -> None:
    """For workers that are not forked: each opens its own session."""
    vol.files.write("file", b"x")
    with pytest.raises(InvalidStateError, match="pickled"):
        pickle.dumps(vol.files)
    version = vol.commit()
    assert pickle.loads(pickle.dumps(version.files)).read("file") == b"x"
    assert pickle.loads(pickle.dumps(vol.files)).read("file") == b"x"
    assert type(pickle.loads(pickle.dumps(as_async(version.files)))) is cowfs.ROFiles


def test_what_ends_a_session(vol: RWVolume) -> None:
    files = vol.files
    files.write("file", b"kept")
    file = files.open("file", "r+b")
    for end in (vol.unmount, vol.discard):
        with pytest.raises(ConflictError, match="/file") as caught:
            end()
        assert caught.value.hint
    file.write(b"not flushed")
    vol.unmount(force=True)
    with pytest.raises(OSError, match="closed") as lost:
        file.close()
    assert lost.value.errno == 9
    assert files.read("file") == b"kept", "the next call opens another session"
    vol.discard()
    assert (sessions(), files.exists("file")) == (0, False)
    files.write("file", b"x")
    version = vol.finalize()
    assert (version.stats.files, sessions()) == (1, 0)
    assert list_working_copies() == []


def test_the_end_of_the_program_keeps_the_work(place: Path) -> None:
    """And gives the lease back: the next one need not find out that the process is dead."""
    done = run(
        "from cowfs.blocking import Volume\n"
        "vol = Volume.new('data')\n"
        "vol.files.write('file', b'x' * 100)\n"
        "file = vol.files.open('other', 'wb'); file.write(b'flushed'); file.flush()\n"
        "left = vol.files.open('left', 'wb'); left.write(b'in the buffer')\n"
        "gone = vol.files.open('gone', 'wb'); gone.write(b'x'); gone.detach()\n"
    )
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1
    assert "kept on this machine" in done.stderr
    beats = [path.read_bytes() for path in (place / "store" / "volumes" / "data" / "heartbeat").iterdir()]
    assert len(beats) == 1
    assert b'"released":true' in beats[0]
    vol = Volume.open("data")
    assert vol.has_changes()
    assert (vol.files.read("file"), vol.files.read("other")) == (b"x" * 100, b"flushed")
    assert vol.files.read("left") == b"in the buffer"


KILLED = """
import os, signal, sys
from cowfs.blocking import Volume
vol = Volume.open("data", create=True)
files = vol.files
files.write("before", b"committed")
vol.commit()
for number in range(200):
    files.write(f"{number}", b"%d" % number * 1000)
    files.append("log", b"%d\\n" % number)
    print(number, flush=True)
    if number == 150:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kill_9_loses_nothing_written() -> None:
    done = run(KILLED)
    assert done.returncode == -signal.SIGKILL, done.stderr
    told = done.stdout.split()
    assert len(told) == 151
    vol = Volume.open("data")
    assert vol.has_changes()
    for number in told:
        assert vol.files.read(number) == number.encode() * 1000
    assert vol.files.read("log").decode().split() == told
    assert vol.finalize().stats.files == 153


@pytest.mark.parametrize("data", [5, "text", None, [1, 2]], ids=repr)
def test_what_is_no_bytes_changes_nothing(vol: RWVolume, data: Any) -> None:
    vol.files.write("file", b"kept")
    for name in ("file", "new"):
        with pytest.raises(TypeError):
            vol.files.write(name, data)
    assert vol.files.read("file") == b"kept"
    assert not vol.files.exists("new")
    vol.files.write("file", memoryview(bytearray(b"a b c"))[::2])
    assert vol.files.read("file") == b"abc"


WRITING = ("cowfs.api.files", "cowfs.session.files", "cowfs.session.opened_file")


@pytest.mark.parametrize("new", [b"much shorter", LARGE[:200_000], b""], ids=["shorter", "longer", "empty"])
def test_an_interrupted_write_leaves_the_old_content_or_the_new(vol: RWVolume, new: bytes) -> None:
    old = LARGE[:100_000]
    vol.files.write("file", old)
    found, number = set[bytes](), 0
    while True:
        number += 1
        interrupt = Interrupt(number, WRITING)
        with interrupt:
            vol.files.write("file", new)
        now = vol.files.read("file")
        assert now in (old, new), f"ended before line {number}: {len(now)} bytes"
        found.add(now)
        if not interrupt.is_over:
            break
        vol.files.write("file", old)
    assert number > 20
    assert found == {old, new}
    vol.finalize()


@pytest.mark.parametrize("call", ["write", "read", "ls", "mkdir", "open"])
def test_a_session_ends_after_the_calls_under_way(vol: RWVolume, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they are made of: it is the caller's frame that tells."""
    files = vol.files
    files.write("file", b"kept")
    inside, go_on = threading.Event(), threading.Event()
    asked = Files.ask

    def slow(self: Files, *arguments: Any, **named: Any) -> Any:
        if threading.current_thread() is worker:
            inside.set()
            assert go_on.wait(WAIT_S)
        return asked(self, *arguments, **named)

    calls: dict[str, Callable[[], object]] = {
        "write": lambda: files.write("file", b"written"),
        "read": lambda: files.read("file"),
        "ls": lambda: list(files.ls(recursive=True)),
        "mkdir": lambda: files.mkdir("d", exist_ok=True),
        "open": lambda: files.open("file").close(),
    }
    errors: list[BaseException] = []

    def body() -> None:
        try:
            calls[call]()
        except BaseException as error:
            errors.append(error)
            raise

    worker = threading.Thread(target=body)
    monkeypatch.setattr(Files, "ask", slow)
    worker.start()
    assert inside.wait(WAIT_S)
    ender = threading.Thread(target=lambda: vol.unmount(force=True))
    ender.start()
    ender.join(0.3)
    assert ender.is_alive(), "it waits"
    go_on.set()
    worker.join(WAIT_S)
    ender.join(WAIT_S)
    assert not worker.is_alive()
    assert not ender.is_alive()
    assert errors == []
    assert vol.files.read("file") == (b"written" if call == "write" else b"kept")
    vol.finalize()


INTERRUPTED = """
import os, sys
from cowfs.blocking import Volume
from tests.interrupt import Interrupt

vol = Volume.open("data", create=True)
files = vol.files
files.write("file", b"kept")
calls = {
    "read": lambda: files.read("file"),
    "stat": lambda: files.stat("file"),
    "append": lambda: files.append("file", b"+"),
    "open": lambda: files.open("file", "r+b").close(),
    "list": lambda: list(files.ls(recursive=True)),
    "unmount": vol.unmount,
}
modules = ("cowfs.api.access.file_session", "cowfs.api.access.file_object", "cowfs.api.access.file_access")
kept, number = [], 0
while True:
    number += 1
    interrupt = Interrupt(number, modules, kept.append)
    with interrupt:
        calls[sys.argv[1]]()
    if not interrupt.is_over:
        break
    assert files.read("file").startswith(b"kept")
    if sys.argv[1] == "unmount" or number % 10 == 0:
        vol.unmount(force=True)
        assert files.read("file").startswith(b"kept")
assert number > 5, number
vol.finalize()
print("ended")
"""


@pytest.mark.parametrize("call", ["read", "stat", "append", "open", "list", "unmount"])
def test_after_an_interrupted_call_nobody_waits_for_it(call: str) -> None:
    """Also while the exception, and with it the frames of the call, are kept, as notebooks do."""
    done = run(INTERRUPTED, call)
    assert (done.stdout, done.returncode) == ("ended\n", 0), done.stderr


@pytest.mark.parametrize(
    "ends", ["", "raise KeyboardInterrupt", "sys.exit(3)", "del vol; raise ValueError", "del vol; time.sleep(0.3)"]
)
def test_a_program_that_ends_without_a_commit_is_told_where_its_work_is(ends: str) -> None:
    begins = "import sys, time\nfrom cowfs.blocking import Volume\nvol = Volume.open('data', create=True)\n"
    written = run(f"{begins}vol.files.write('file', b'x')\n{ends}")
    assert written.stderr.count("Uncommitted work of volume 'data' was not published") == 1, written.stderr
    assert "Volume.open('data')" in written.stderr
    left = run(
        f"{begins}other = Volume.new('other')\nother.files.write('file', b'x')\nother.unmount()\ndel other\ntime.sleep(0.3)\n{ends}"
    )
    assert "was not published" not in left.stderr
    only_read = run(f"{begins}assert vol.files.read('file') == b'x'\n{ends}")
    assert "was not published" not in only_read.stderr
    published = run(f"{begins}vol.files.write('file', b'y')\nvol.commit()\n{ends}")
    assert "was not published" not in published.stderr
    more = run(f"{begins}vol.files.write('file', b'y')\nvol.commit()\nvol.files.write('more', b'x')\n{ends}")
    assert more.stderr.count("was not published") == 1
    kept = run(f"{begins}vol.files.write('file', b'y')\nvol.commit()\nvol.files.write('more', b'z')\n{ends}")
    assert kept.stderr.count("was not published") == 1, "what was there at first was committed"
    gone = run(f"{begins}vol.discard()\nmem = Volume.new('m', store='memory://x')\nmem.files.write('f', b'x')\n{ends}")
    assert "was not published" not in gone.stderr, "nothing is kept of it"
    assert Volume.version("data").files.read("file") == b"y"


ENDS_WHILE_A_SESSION_DOES = """
import gc, time
from cowfs.api.access import file_session
from cowfs.blocking import Volume
forget = file_session._forget
file_session._forget = lambda opened: (forget(opened), time.sleep(1))
vol = Volume.open("data", create=True)
vol.files.write("file", b"x")
del vol
gc.collect()
while file_session._sessions:
    time.sleep(0.001)
"""


def test_a_program_that_ends_while_its_work_is_left_is_told() -> None:
    """Another thread ends the session of a volume that nobody holds any more."""
    done = run(ENDS_WHILE_A_SESSION_DOES)
    assert done.stderr.count("Uncommitted work of volume 'data' was not published") == 1, done.stderr


GOES_ON = """
import atexit, threading
ended = threading.Event()
threading._register_atexit(ended.set)  # the first one is called last
from cowfs.blocking import Volume
vol = Volume.open("data", create=True)
{before}

def go_on():
    ended.wait()
    {after}

{how}
"""
IN_A_THREAD = "threading.Thread(target=go_on).start()"
AT_EXIT = "atexit.register(go_on)"


@pytest.mark.parametrize("how", [IN_A_THREAD, AT_EXIT])
@pytest.mark.parametrize("before", ["", "vol.files.write('file', b'x')"])
def test_what_goes_on_after_the_main_thread_publishes(how: str, before: str, tmp_path: Path) -> None:
    after = "vol.files.write('more', b'x' * (3 << 20)); vol.commit().tag('t'); "
    after += f"Volume.version('data').files.download('/more', {os.fspath(tmp_path / 'more')!r})"
    ended = run(GOES_ON.format(before=before, after=after, how=how))
    assert ended.stderr == ""
    assert (tmp_path / "more").read_bytes() == b"x" * (3 << 20)
    assert [tag.name for tag in Store().tags("data")] == ["t"]


@pytest.mark.parametrize("how", [IN_A_THREAD, AT_EXIT])
@pytest.mark.parametrize("before", ["", "vol.files.write('file', b'x')"])
def test_what_is_written_after_the_main_thread_is_told_of_at_the_end(how: str, before: str) -> None:
    ended = run(GOES_ON.format(before=before, after="vol.files.write('more', b'x')", how=how))
    assert ended.stderr.count("Uncommitted work of volume 'data' was not published") == 1, ended.stderr
    assert Volume.open("data").files.read("more") == b"x"


HOLDS = """
import sys
from cowfs.blocking import Volume
vol = Volume.open("data", create=True)
vol.files.write("file", b"x")
print("ready", flush=True)
sys.stdin.read()
"""


def test_another_process_is_told_who_has_the_volume(vol: RWVolume) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        other = Volume.open("data")
        for call in (lambda: other.files.read("file"), other.commit):
            with pytest.raises(LeaseHeldError, match=rf"process {holder.pid}, without a mount, since") as caught:
                call()
            assert "vol.files" in caught.value.hint
            assert caught.value.details["pid"] == holder.pid
        assert holder.stdin is not None
        holder.stdin.close()
        assert holder.wait() == 0
    assert other.files.read("file") == b"x"


TAKES_OVER = """
from cowfs.blocking import Volume
vol = Volume.open("data")
(vol.mount(take_over=True) / "theirs").write_text("x")
vol.finalize()
"""


@pytest.mark.mount
def test_work_that_was_taken_over_goes_on_in_a_fork(vol: RWVolume, place: Path) -> None:
    vol.files.write("base", b"1")
    vol.commit()
    vol.files.write("mine", b"uncommitted")
    with pytest.MonkeyPatch.context() as elsewhere:
        elsewhere.setenv("COWFS_STATE_DIR", str(place / "elsewhere"))
        elsewhere.setenv("COWFS_CACHE_DIR", str(place / "elsewhere"))
        (place / "other").mkdir(mode=0o700)
        elsewhere.setenv("XDG_RUNTIME_DIR", str(place / "other"))
        done = run(TAKES_OVER)
    assert done.returncode == 0, done.stderr
    with pytest.raises(LeaseLostError):
        vol.commit()
    assert vol.files.read("mine") == b"uncommitted"
    rescued = vol.fork("rescued")
    assert rescued.has_changes()
    assert [each.name for each in rescued.finalize().files.ls()] == ["base", "mine"]
    assert [each.name for each in Volume.version("data").files.ls()] == ["base", "theirs"]


FORKS = """
import os, signal, sys, warnings
from cowfs.blocking import Volume
from cowfs.errors import LeaseHeldError
warnings.simplefilter("ignore")
vol = Volume.new("data")
vol.files.write("file", b"parent")
version = vol.commit()
assert version.files.read("file") == b"parent"
held = version.files.open("file")
if (pid := os.fork()) == 0:
    assert version.files.read("file") == b"parent"     # by a session of its own
    assert vol.files.read("file") == b"parent"         # likewise, of the newest version
    try:
        vol.files.write("file", b"child")
    except LeaseHeldError as error:
        assert "forked" in error.message and error.hint
    else:
        os._exit(3)
    try:
        held.read()
    except OSError as error:
        assert error.errno == 9
    else:
        os._exit(4)
    del held, version, vol
    sys.exit(0)                                         # with all that happens when Python ends
assert os.waitpid(pid, 0)[1] == 0
vol.files.write("file", b"parent again")
vol.files.append("file", b"!")
if (pid := os.fork()) == 0:
    try:
        vol.files.read("file")                          # the newest version lacks the parent's work
    except LeaseHeldError as error:
        os._exit(0 if "forked" in error.message and error.hint else 5)
    os._exit(6)
assert os.waitpid(pid, 0)[1] == 0
assert vol.commit().files.read("file") == b"parent again!"
if (pid := os.fork()) == 0:
    for fd in range(3):
        os.close(fd)
    signal.pause()
print(pid, flush=True)
vol.files.write("file", b"last")
os.kill(os.getpid(), 9)
"""


def test_a_forked_child_neither_uses_nor_ends_its_parents_session() -> None:
    done = run(FORKS)
    assert done.returncode == -signal.SIGKILL, done.stderr
    child = int(done.stdout)
    try:
        assert Volume.open("data").files.read("file") == b"last", "a child that lives on does not keep the lock"
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.mount
def test_a_mounted_volume_is_used_through_its_mount(vol: RWVolume, place: Path) -> None:
    files = vol.files
    files.write("before", b"of the session")
    path = vol.mount()
    assert sessions() == 0
    assert (path / "before").read_text() == "of the session"
    files.mkdir("dir")
    files.write("dir/file", LARGE)
    files.copy("dir/file", "copy")
    files.symlink("out", str(place))
    files.symlink("link", "dir/file")
    files.mkdir("dir/deep/er", parents=True)
    files.symlink("to", "dir")
    files.write("to/deep/er/file", b"below a link")
    assert files.read("dir/deep/er/file") == b"below a link" == files.read("to/deep/er/file")
    files.remove("to")
    for missing in ("to/deep/er/file", "out/deep/er/file"):
        assert not files.exists(missing)
        with pytest.raises(FileNotFoundError):
            files.chmod(missing, 0o600)
    assert (path / "copy").read_bytes() == LARGE == files.read("link")
    assert files.read("link", 5, 5) == LARGE[5:10]
    assert not files.exists("out")
    (path / "by hand").write_text("x")
    assert [each.path for each in Volume.open("data").files.ls()] == [
        "/before",
        "/by hand",
        "/copy",
        "/dir",
        "/link",
        "/out",
    ]
    with files.open("dir/file", "r+b") as file:
        file.write(b"patch")
        with pytest.raises(ConflictError):
            vol.unmount()
    files.append("by hand", b"y")
    files.chmod("by hand", 0o600)
    files.remove("dir", recursive=True)
    files.move("copy", "moved")
    assert sessions() == 0
    version = vol.finalize()
    assert version.files.read("by hand") == b"xy"
    assert [each.name for each in version.files.ls()] == ["before", "by hand", "link", "moved", "out"]


@pytest.mark.mount
def test_a_session_and_a_mount_hand_the_work_to_each_other(vol: RWVolume) -> None:
    path = vol.mount()
    (path / "file").write_text("mount")
    vol.unmount()
    vol.files.append("file", b", session")
    with vol:
        assert (vol / "file").read_text() == "mount, session"
    assert Volume.version("data").files.read("file") == b"mount, session"


@pytest.mark.parametrize("mode", [pytest.param("fuse", marks=pytest.mark.mount), "copy"])
def test_a_call_that_a_mount_comes_before_goes_through_it(
    vol: RWVolume, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    vol.files.write("file", b"content")
    vol.commit()
    vol.unmount()
    other, look = Volume.open("data"), VolumeHandle._live_to_use

    def looked_before(volume: VolumeHandle) -> MountEntry | None:
        found = look(volume)
        if volume is other._handle and not vol.is_mounted:
            vol.mount(mode=mode)
        return found

    monkeypatch.setattr(VolumeHandle, "_live_to_use", looked_before)
    other.files.append("file", b", more")
    assert vol.is_mounted
    assert (vol / "file").read_bytes() == b"content, more" == other.files.read("file")
    vol.finalize()


def test_the_async_twin_does_likewise() -> None:
    async def body() -> None:
        vol = cowfs.Volume.new("data")
        files = vol.files
        await files.mkdir("a/b", parents=True)
        await files.write("a/b/file", b"one")
        async with await files.open("a/b/file", "r+b") as file:
            await file.seek(3)
            await file.write(b"two")
        assert await files.read("a/b/file") == b"onetwo"
        assert [each.path async for each in files.ls(recursive=True)] == ["/a", "/a/b", "/a/b/file"]
        assert [each.path async for each in files.glob("**/file")] == ["/a/b/file"]
        async for _, directories, _ in files.walk():
            directories.clear()
        with pytest.raises(FileNotFoundError):
            [each async for each in files.ls("none")]
        version = await vol.finalize()
        assert type(version.files) is cowfs.ROFiles
        assert (await version.files.stat("a/b/file")).size == 6

    anyio.run(body)


WORKS_ON = """
import threading
from cowfs.blocking import Volume

def work(number, is_there):
    vol = Volume.new(f"volume-{number}")
    while True:
        vol.files.write("file", b"x")
        is_there.set()

begun = [threading.Event() for _ in range(8)]
for number, is_there in enumerate(begun):
    threading.Thread(target=work, args=(number, is_there), daemon=True).start()
for is_there in begun:
    is_there.wait()
"""


def test_the_interpreter_ends_although_its_daemon_threads_go_on() -> None:
    """They open sessions anew as fast as these are ended."""
    assert run(WORKS_ON).returncode == 0


COMMITS_WHEN_TOLD = """
import os, signal
from cowfs.blocking import Volume
from cowfs.session.session import Session

vol = Volume.new("told")
vol.files.write("first", b"1")
told = []

def end(number, frame):
    if not told:
        told.append(number)
        vol.files.write("second", b"2")
        print(vol.commit("told to end").files.read("second"), flush=True)

signal.signal(signal.SIGTERM, end)
ends = Session.mark_ending

def is_told(session):
    os.kill(os.getpid(), signal.SIGTERM)
    ends(session)

Session.mark_ending = is_told
"""


def test_the_handler_of_a_signal_commits_while_the_interpreter_ends() -> None:
    result = run(COMMITS_WHEN_TOLD)
    assert (result.returncode, result.stdout, result.stderr) == (0, "b'2'\n", "")
    version = Volume.open("told").resolve()
    assert [version.files.read(name) for name in ("first", "second")] == [b"1", b"2"]


WRITES_TWO = """
from cowfs.blocking import Volume
vol = Volume.open("data")
vol.files.write("file", b"two")
vol.files.mkdir("dir/new")
vol.finalize()
"""


def stored(place: Path) -> set[str]:
    """Keys of all objects in the store."""
    return {os.fspath(path) for path in (place / "store").rglob("*") if path.is_file()}


def test_reading_a_volume_keeps_no_writer_out(vol: RWVolume, place: Path) -> None:
    vol.files.mkdir("dir/old", parents=True)
    vol.files.write("file", b"one")
    vol.finalize()
    before, reader = stored(place), Volume.open("data")
    assert reader.files.read("file") == b"one"
    walked, globbed = reader.files.walk(), reader.files.glob("dir/*")
    assert next(walked)[0] == "/"
    file = reader.files.open("file")
    assert (stored(place), list_working_copies(), reader.has_changes()) == (before, [], False)
    done = run(WRITES_TWO)
    assert done.returncode == 0, done.stderr
    assert reader.files.read("file") == b"two", "the newest version of that moment"
    assert [[each.name for each in directories] for _, directories, _ in walked] == [["old"], []], "one version"
    assert [each.path for each in globbed] == ["/dir/new", "/dir/old"], "that of its first look"
    assert file.read() == b"one", "a file that is open stays as it was"
    file.close()
    reader.files.write("file", b"three")
    assert (reader.files.read("file"), Volume.open("data").files.read("file")) == (b"three", b"three")
    reader.unmount()
    assert (reader.files.read("file"), Volume.open("data").files.read("file")) == (b"three", b"three"), "kept work"
    reader.discard()
    assert (reader.files.read("file"), list_working_copies()) == (b"two", [])
    del reader, walked, globbed, file
    wait_for_sessions(0)


def test_reading_a_volume_without_versions_keeps_no_writer_out(vol: RWVolume, place: Path) -> None:
    reader = Volume.open(vol.resolve().name)
    before = stored(place)
    assert (list(reader.files.ls()), list(vol.files.walk()), reader.files.exists("file")) == (
        [],
        [("/", [], [])],
        False,
    )
    with pytest.raises(FileNotFoundError):
        reader.files.read("file")
    made_ns = reader.files.stat("/").mtime_ns
    assert (stored(place), list_working_copies()) == (before, [])
    assert run(WRITES_TWO.replace("dir/new", "new")).returncode == 0
    assert reader.files.read("file") == b"two"
    other = Volume.new("other")
    assert other.files.stat("/").mtime_ns > made_ns, "each empty volume has a root of its own"
