"""Programs that work on a mount while its daemon is killed, each in processes of its own:

    python -m tests.system.programs_under_kills NAME DIRECTORY NUMBER SEED

A program works until its standard input ends, checks what it reads as it goes, and prints what it
was acknowledged, in JSON. Any error ends it with a traceback. Its check gets what its processes
printed, and a directory: the mount, or another mount of a version committed afterwards. `Running`
starts programs on a mount, and ends them.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import random
import select
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.conformance.tools import find_tool
from tests.effort import share
from tests.system.machine import COMMAND, ROOT, Machine

ENTRIES = share(10_000)
RENAME_EXCHANGE = 2
PATIENCE_S = 300


class Work(NamedTuple):
    """One process of a program. number: which of them."""

    directory: Path
    number: int
    draw: random.Random

    def goes_on(self, pause_s: float = 0.02) -> bool:
        """Rests for about pause_s, so that many programs share a machine. False: end now."""
        return not select.select([sys.stdin], [], [], self.draw.random() * 2 * pause_s)[0]


class Program(NamedTuple):
    work: Callable[[Work], Any]
    check: Callable[[Path, list[Any]], None]
    prepare: Callable[[Path], None] = lambda directory: None
    processes: int = 1


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """A command that must succeed; its output."""
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def no_check(directory: Path, acknowledged: list[Any]) -> None:
    """The program has checked everything itself."""


# -- appends by several processes


def append(work: Work) -> int:
    count = 0
    descriptor = os.open(work.directory / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while work.goes_on():
        record = f"{work.number} {count}".ljust(63).encode() + b"\n"
        assert os.write(descriptor, record) == len(record)
        if work.draw.random() < 0.1:
            os.fsync(descriptor)
        count += 1
    os.close(descriptor)
    return count


def check_appends(directory: Path, acknowledged: list[Any]) -> None:
    found: dict[int, list[int]] = {number: [] for number in range(len(acknowledged))}
    for line in (directory / "log").read_text().splitlines():
        process, value = line.split()
        found[int(process)].append(int(value))
    for number, count in enumerate(acknowledged):
        assert found[number] == list(range(count)), f"process {number}: {Counter(found[number]).most_common(3)}"


# -- a counter under locks


def count_under_locks(work: Work) -> int:
    count = 0
    with (work.directory / "counter").open("r+b", buffering=0) as file:
        while work.goes_on():
            lock = fcntl.flock if work.number % 2 else fcntl.lockf
            with (
                (work.directory / f"lock{work.number % 2}").open("r+b") as own,
                (work.directory / "lock").open("r+b") as common,
            ):
                lock(own, fcntl.LOCK_EX)
                fcntl.lockf(common, fcntl.LOCK_EX)
                value = int(os.pread(file.fileno(), 20, 0))
                assert os.pwrite(file.fileno(), f"{value + 1:020}".encode(), 0) == 20
                count += 1
    return count


def prepare_locks(directory: Path) -> None:
    for name in ("counter", "lock", "lock0", "lock1"):
        (directory / name).write_bytes(b"0" * 20)


def check_counter(directory: Path, acknowledged: list[Any]) -> None:
    assert int((directory / "counter").read_bytes()) == sum(acknowledged)


# -- SQLite


def transact(work: Work) -> int:
    count = 0
    database = connect(work.directory)
    while work.goes_on():
        database.execute("BEGIN IMMEDIATE")
        database.execute(
            "INSERT INTO rows VALUES (?, ?, randomblob(?))", (work.number, count, work.draw.randrange(3000))
        )
        database.execute("UPDATE total SET n = n + 1")
        database.execute("COMMIT")
        count += 1
        mine = database.execute("SELECT count(*) FROM rows WHERE process = ?", (work.number,)).fetchone()[0]
        assert mine == count, f"{mine} rows of {count}"
        if work.draw.random() < 0.02:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    database.close()
    return count


def connect(directory: Path) -> sqlite3.Connection:
    database = sqlite3.connect(directory / "db", timeout=600, isolation_level=None)
    database.execute("PRAGMA synchronous = FULL")
    return database


def prepare_database(directory: Path) -> None:
    database = connect(directory)
    assert database.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    database.execute("CREATE TABLE rows (process INTEGER, number INTEGER, data BLOB)")
    database.execute("CREATE INDEX by_process ON rows (process, number)")
    database.execute("CREATE TABLE total (n INTEGER)")
    database.execute("INSERT INTO total VALUES (0)")
    database.close()


def check_database(directory: Path, acknowledged: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as copy:  # SQLite writes beside a database that it reads
        shutil.copytree(directory, copy, dirs_exist_ok=True)
        database = connect(Path(copy))
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        for number, count in enumerate(acknowledged):
            rows = database.execute("SELECT number FROM rows WHERE process = ? ORDER BY number", (number,))
            assert [row[0] for row in rows] == list(range(count))
        assert database.execute("SELECT n FROM total").fetchone() == (sum(acknowledged),)
        database.close()


# -- git


def use_git(work: Work) -> int:
    count = 0
    while work.goes_on(0.1):
        for _ in range(work.draw.randrange(1, 5)):
            path = work.directory / f"d{work.draw.randrange(4)}" / f"f{work.draw.randrange(20)}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(work.draw.randbytes(work.draw.randrange(20_000)))
        (work.directory / "count").write_text(str(count))
        git(work.directory, "add", "-A")
        git(work.directory, "commit", "-q", "-m", str(count))
        count += 1
        assert git(work.directory, "status", "--porcelain") == ""
        if work.draw.random() < 0.1:
            git(work.directory, "gc", "-q", "--prune=now")
        if work.draw.random() < 0.1:
            git(work.directory, "checkout", "-q", "HEAD~1")
            git(work.directory, "checkout", "-q", "main")
    return count


def git(directory: Path, *arguments: str) -> str:
    return run("git", "--no-optional-locks", *arguments, cwd=directory)


def prepare_git(directory: Path) -> None:
    git(directory, "init", "-q", "-b", "main")
    settings = {"user.name": "n", "user.email": "n@localhost", "gc.auto": "0", "maintenance.auto": "false"}
    for name, value in settings.items():
        git(directory, "config", name, value)
    git(directory, "commit", "-q", "--allow-empty", "-m", "first")


def check_git(directory: Path, acknowledged: list[Any]) -> None:
    git(directory, "fsck", "--full", "--strict")
    (count,) = acknowledged
    assert int(git(directory, "rev-list", "--count", "main")) == count + 1
    assert git(directory, "status", "--porcelain") == ""


# -- a mapping


def map_file(work: Work) -> str:
    size = 256 << 10
    with (work.directory / "mapped").open("w+b", buffering=0) as file:
        file.truncate(size)
        shadow = bytearray(size)
        memory = mmap.mmap(file.fileno(), size)
        while work.goes_on():
            for _ in range(work.draw.randrange(20)):
                start = work.draw.randrange(size - 100)
                data = work.draw.randbytes(work.draw.randrange(1, 100))
                memory[start : start + len(data)] = shadow[start : start + len(data)] = data
            at = work.draw.randrange(size // 4096) * 4096
            assert os.pread(file.fileno(), 4096, at) == shadow[at : at + 4096]
            if work.draw.random() < 0.1:
                memory.flush()
            if work.draw.random() < 0.1:
                memory.close()
                memory = mmap.mmap(file.fileno(), size)
                assert memory[:] == shadow
        memory.close()
    return shadow.hex()


def check_mapped(directory: Path, acknowledged: list[Any]) -> None:
    assert (directory / "mapped").read_bytes() == bytes.fromhex(acknowledged[0])


# -- requests as large as they come


def stream(work: Work) -> None:
    path = work.directory / "stream"
    block = work.draw.randbytes(1 << 20)
    while work.goes_on(0.2):
        count = work.draw.randrange(4, 17)
        with path.open("w+b", buffering=0) as file:
            for number in range(count):
                assert file.write(b"%08d" % number + block[8:]) == len(block)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            for number in range(count):
                assert file.read(len(block)) == b"%08d" % number + block[8:]
            assert file.read(1) == b""
            if work.draw.random() < 0.3:
                os.fsync(file.fileno())


# -- names: what may not be done twice

_libc = ctypes.CDLL(None, use_errno=True)


class Names:
    """Changes of names in one directory, with a model of what is there. Each name's inode is
    compared. The process has the directory as its working directory."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.files: dict[str, int] = {}
        self.directories: dict[str, int] = {}

    def step(self) -> None:
        changes = (self.create, self.remove, self.rename, self.replace, self.exchange, self.link, self.set_attribute)
        more = (self.make_directory, self.remove_directory, self.make_link, self.make_node)
        self.draw.choice((*changes, *more))()

    def free(self) -> str:
        return next(
            name
            for name in iter(lambda: f"n{self.draw.randrange(200)}", "")
            if name not in self.files | self.directories
        )

    def create(self) -> None:
        if len(self.files) > 100:
            return
        name = self.free()
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        self.files[name] = os.lstat(name).st_ino

    def make_node(self) -> None:
        name = self.free()
        os.mkfifo(name)
        os.unlink(name)

    def make_link(self) -> None:
        name = self.free()
        os.symlink("target", name)
        assert os.readlink(name) == "target"
        os.unlink(name)

    def make_directory(self) -> None:
        if len(self.directories) > 20:
            return
        name = self.free()
        os.mkdir(name)
        self.directories[name] = os.lstat(name).st_ino

    def remove(self) -> None:
        if self.files:
            name = self.draw.choice(list(self.files))
            os.unlink(name)
            del self.files[name]

    def remove_directory(self) -> None:
        if self.directories:
            name = self.draw.choice(list(self.directories))
            os.rmdir(name)
            del self.directories[name]

    def rename(self) -> None:
        for kind in (self.files, self.directories):
            if kind:
                name, new = self.draw.choice(list(kind)), self.free()
                os.rename(name, new)
                kind[new] = kind.pop(name)

    def replace(self) -> None:
        names = [name for name in self.files if list(self.files.values()).count(self.files[name]) == 1]
        if len(names) > 1:
            name, other = self.draw.sample(names, 2)
            os.rename(name, other)
            self.files[other] = self.files.pop(name)

    def exchange(self) -> None:
        if len(self.files) > 1:
            one, other = self.draw.sample(list(self.files), 2)
            at = -100
            if _libc.renameat2(at, one.encode(), at, other.encode(), RENAME_EXCHANGE):
                raise OSError(ctypes.get_errno(), f"exchange {one} {other}")
            self.files[one], self.files[other] = self.files[other], self.files[one]

    def link(self) -> None:
        if self.files:
            name, new = self.draw.choice(list(self.files)), self.free()
            os.link(name, new)
            self.files[new] = self.files[name]

    def set_attribute(self) -> None:
        if self.files:
            name = self.draw.choice(list(self.files))
            os.setxattr(name, "user.a", b"1", os.XATTR_CREATE)
            os.setxattr(name, "user.a", b"2", os.XATTR_REPLACE)
            assert os.getxattr(name, "user.a") == b"2"
            os.removexattr(name, "user.a")

    def check(self, directory: str | Path = ".") -> None:
        expected = self.files | self.directories
        names = sorted(os.listdir(directory))
        assert names == sorted(expected), f"{names} instead of {sorted(expected)}"
        counts = Counter(self.files.values())
        for name, ino in expected.items():
            found = os.lstat(name)
            assert found.st_ino == ino, f"{name} is {found.st_ino}, not {ino}"
            assert stat.S_ISDIR(found.st_mode) == (name in self.directories), name
            assert name in self.directories or found.st_nlink == counts[ino], f"{name}: {found.st_nlink} links"


def change_names(work: Work) -> list[str]:
    os.chdir(work.directory / str(work.number))
    names = Names(work.draw)
    while work.goes_on(0.005):
        names.step()
        if work.draw.random() < 0.05:
            names.check()
    names.check()
    return sorted(names.files | names.directories)


def prepare_names(directory: Path) -> None:
    for number in range(2):
        (directory / str(number)).mkdir()


def check_names(directory: Path, acknowledged: list[Any]) -> None:
    for number, names in enumerate(acknowledged):
        assert sorted(os.listdir(directory / str(number))) == names


# -- files without a name


def use_nameless(work: Work) -> list[str]:
    files: list[tuple[int, bytearray]] = []
    linked: list[str] = []
    while work.goes_on():
        if len(files) < 20:
            files.append((make_nameless(work, len(linked)), bytearray()))
        descriptor, shadow = work.draw.choice(files)
        start = work.draw.randrange(len(shadow) + 1)
        data = work.draw.randbytes(work.draw.randrange(1, 20_000))
        assert os.pwrite(descriptor, data, start) == len(data)
        shadow[start : start + len(data)] = data
        if work.draw.random() < 0.2:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if work.draw.random() < 0.1:
            del shadow[len(shadow) // 2 :]
            os.ftruncate(descriptor, len(shadow))
        for each, expected in files:
            assert os.pread(each, len(expected) + 1, 0) == expected
            assert os.fstat(each).st_nlink == 0
        if work.draw.random() < 0.1:
            os.close(descriptor)
            files.remove((descriptor, shadow))
        elif work.draw.random() < 0.05 and is_temporary(descriptor):
            name = f"linked{len(linked)}"
            os.link(f"/proc/self/fd/{descriptor}", work.directory / name, follow_symlinks=True)
            linked.append(bytes(shadow).hex())
            os.close(descriptor)
            files.remove((descriptor, shadow))
            if len(linked) > 20:
                os.unlink(work.directory / f"linked{len(linked) - 21}")
    return linked


def make_nameless(work: Work, number: int) -> int:
    if work.draw.random() < 0.5:
        return os.open(work.directory, os.O_RDWR | os.O_TMPFILE)
    path = work.directory / f"removed{number}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.unlink(path)
    return descriptor


def is_temporary(descriptor: int) -> bool:
    """Whether it was made without a name: only such a file can be given one."""
    return os.readlink(f"/proc/self/fd/{descriptor}").rpartition("/")[2].startswith("#")


def check_linked(directory: Path, acknowledged: list[Any]) -> None:
    (linked,) = acknowledged
    first = max(0, len(linked) - 21 + 1) if len(linked) > 20 else 0
    assert sorted(os.listdir(directory)) == sorted(f"linked{number}" for number in range(first, len(linked)))
    for number in range(first, len(linked)):
        assert (directory / f"linked{number}").read_bytes() == bytes.fromhex(linked[number])


# -- large directories


def list_large(work: Work) -> None:
    directory = work.directory / "large"
    if work.number == 1:  # changes beside the listing
        number = 0
        while work.goes_on():
            (directory / f"changing{number}").touch()
            if number >= 50:
                (directory / f"changing{number - 50}").unlink()
            number += 1
        for left in range(max(0, number - 50), number):
            (directory / f"changing{left}").unlink()
        return
    while work.goes_on():
        require_once(list(slowly(work, directory)))
        require_once(run("find", directory, "-mindepth", "1", "-printf", "%f\\n").splitlines())


def slowly(work: Work, directory: Path) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for number, entry in enumerate(entries):
            if not number % 100:
                time.sleep(work.draw.random() * 0.02)
            yield entry.name


def require_once(names: list[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    assert not twice, f"listed twice: {twice[:5]}"
    missing = {f"entry{number}" for number in range(ENTRIES)} - set(names)
    assert not missing, f"not listed: {sorted(missing)[:5]} of {len(names)}"


def prepare_large(directory: Path) -> None:
    (directory / "large").mkdir()
    for number in range(ENTRIES):
        (directory / "large" / f"entry{number}").touch()


def check_large(directory: Path, acknowledged: list[Any]) -> None:
    require_once(os.listdir(directory / "large"))
    assert len(os.listdir(directory / "large")) == ENTRIES


def remove_trees(work: Work) -> None:
    """`cp -r`, `find` and `rm -r` of as many entries."""
    source, copy = work.directory / "source", work.directory / "copy"
    for number in range(ENTRIES):
        if not number % 200:
            (source / f"d{number}").mkdir(parents=True)
        (source / f"d{number - number % 200}" / f"f{number}").write_bytes(b"%d" % number)
    names = sorted(run("find", ".", cwd=source).splitlines())
    assert len(names) == 1 + ENTRIES + -(-ENTRIES // 200)
    while work.goes_on():
        run("cp", "-r", source, copy)
        assert sorted(run("find", ".", cwd=copy).splitlines()) == names
        assert run("diff", "-r", source, copy) == ""
        assert run("rm", "-r", copy) == ""
        assert os.listdir(work.directory) == ["source"]


# -- fsx and commits

FSX = (
    "",
    "[weights]\nclose_open = 5\ninvalidate = 2\nfsync = 2\nfdatasync = 2\n",
    "[weights]\nposix_fallocate = 5\npunch_hole = 5\ntruncate = 10\ncopy_file_range = 5\n",
    "flen = 8388608\n[opsize]\nmax = 1048576\n[weights]\nclose_open = 1\ncopy_file_range = 10\n",
)


def use_fsx(work: Work) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        settings = Path(scratch) / "fsx.toml"
        while work.goes_on():
            settings.write_text(work.draw.choice(FSX))
            seed = str(work.draw.randrange(1 << 32))
            file = work.directory / f"fsx-{seed}"
            run(find_tool("fsx"), "-f", settings, "-N", "400", "-S", seed, "-P", scratch, file)
            file.unlink()


def commit(work: Work) -> int:
    count = 0
    mount = work.directory.parent
    while work.goes_on(0.5):
        (work.directory / "count").write_text(str(count))
        run(COMMAND, "commit", mount, "-m", f"commit {count}")
        count += 1
        if work.draw.random() < 0.3:
            run(COMMAND, "status")
    return count


def check_commits(directory: Path, acknowledged: list[Any]) -> None:
    (count,) = acknowledged
    if count:
        assert (directory / "count").read_text() == str(count - 1)


PROGRAMS = {
    "appends": Program(append, check_appends, processes=8),
    "locks": Program(count_under_locks, check_counter, prepare_locks, processes=4),
    "sqlite": Program(transact, check_database, prepare_database, processes=2),
    "git": Program(use_git, check_git, prepare_git),
    "mapping": Program(map_file, check_mapped),
    "stream": Program(stream, no_check),
    "names": Program(change_names, check_names, prepare_names, processes=2),
    "nameless": Program(use_nameless, check_linked),
    "listing": Program(list_large, check_large, prepare_large, processes=2),
    "trees": Program(remove_trees, no_check),
    "fsx": Program(use_fsx, no_check),
    "commits": Program(commit, check_commits),
}


class Running:
    """These programs, each in a directory of its own on the mount."""

    def __init__(self, machine: Machine, mounted: Path, names: Sequence[str], seed: int) -> None:
        self._machine = machine
        self._mounted = mounted
        self._names = names
        self._processes: dict[tuple[str, int], subprocess.Popen[str]] = {}
        for name in names:
            (mounted / name).mkdir()
            PROGRAMS[name].prepare(mounted / name)
        for name in names:
            for number in range(PROGRAMS[name].processes):
                self._processes[name, number] = self._start(name, number, seed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for each in self._processes.values():
            each.kill()
        if error is not None:
            print(self._machine.daemon_logs())

    def _start(self, name: str, number: int, seed: int) -> subprocess.Popen[str]:
        module = "tests.system.programs_under_kills"
        return subprocess.Popen(
            [sys.executable, "-m", module, name, str(self._mounted / name), str(number), str(seed)],
            env={**self._machine.environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def are_all_alive(self) -> bool:
        return all(each.poll() is None for each in self._processes.values())

    def require_alive(self) -> None:
        ended = {key: each for key, each in self._processes.items() if each.poll() is not None}
        assert not ended, "\n\n".join(f"{key}: {each.communicate()[1][-4000:]}" for key, each in ended.items())

    def end(self) -> dict[str, list[Any]]:
        """What each process of each program was acknowledged. All must end without an error, and
        what they have left must be right."""
        for each in self._processes.values():
            assert each.stdin is not None
            each.stdin.close()
            each.stdin = None
        acknowledged: dict[str, list[Any]] = {name: [] for name in self._names}
        failed = []
        for (name, number), each in self._processes.items():
            try:
                output, errors = each.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                each.kill()
                output, errors = each.communicate()
                errors = f"it does not end\n{errors}"
            if each.returncode:
                failed.append(f"{name} {number}: exit {each.returncode}\n{errors[-4000:]}")
            else:
                acknowledged[name].append(json.loads(output))
        assert not failed, "\n\n".join(failed)
        check(self._mounted, acknowledged)
        return acknowledged


def check(mounted: Path, acknowledged: dict[str, list[Any]]) -> None:
    for name, each in acknowledged.items():
        PROGRAMS[name].check(mounted / name, each)


if __name__ == "__main__":
    name, directory, number, seed = sys.argv[1:]
    work = Work(Path(directory), int(number), random.Random(f"{seed} {name} {number}"))
    json.dump(PROGRAMS[name].work(work), sys.stdout)
