"""Real programs on a writable mount; what they made reads back equal after a commit and a mount on
another machine."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from tests.system.machine import Machine
from tests.system.source_tree import make_source_tree
from tests.system.trees import differences, read_tree

pytestmark = [pytest.mark.mount, pytest.mark.slow]


def run(*arguments: str | Path, cwd: Path | None = None, timeout_s: float = 300) -> str:
    done = subprocess.run([*map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, f"{done.args} exited with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def writable(machine: Machine, name: str) -> Path:
    machine.create(name)
    return machine.mount(name)


def read_back(machine: Machine, elsewhere: Machine, mounted: Path) -> Path:
    """Commits, mounts the version by its locator on the other machine, and compares everything."""
    before = read_tree(mounted)
    locator = machine.commit(mounted, "written by a test")
    assert differences(before, read_tree(mounted)) == [], "a commit changed what the mount shows"
    machine.unmount(mounted)
    other = elsewhere.mount(locator, at="back")
    assert differences(before, read_tree(other)) == []
    return other


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_source_tree(tmp_path_factory.mktemp("source") / "tree")


def test_git_clone_and_fsck(machine: Machine, elsewhere: Machine, source: Path, tmp_path: Path) -> None:
    git = ("git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "safe.directory=*", "-c", "gc.auto=0")
    origin = tmp_path / "origin"
    run("git", "init", "-q", "-b", "main", origin)
    for package in ("json", "asyncio", "email"):
        run("cp", "-r", source / package, origin)
        run(*git, "add", ".", cwd=origin)
        run(*git, "commit", "-q", "-m", f"add {package}", cwd=origin)
    mounted = writable(machine, "git")
    clone = mounted / "clone"
    run(*git, "clone", "-q", "--no-hardlinks", origin, clone)
    run(*git, "fsck", "--full", "--strict", cwd=clone)
    (clone / "json" / "decoder.py").write_text("changed\n")
    run(*git, "commit", "-q", "-a", "-m", "change on the mount", cwd=clone)
    run(*git, "checkout", "-q", "-b", "side", "HEAD~2", cwd=clone)
    run(*git, "checkout", "-q", "main", cwd=clone)
    run(*git, "gc", "-q", cwd=clone)
    run(*git, "fsck", "--full", "--strict", cwd=clone)
    assert run(*git, "status", "--porcelain", cwd=clone) == ""

    other = read_back(machine, elsewhere, mounted) / "clone"
    run(*git, "--no-optional-locks", "fsck", "--full", "--strict", cwd=other)
    assert run(*git, "log", "--format=%s", cwd=other).splitlines()[0] == "change on the mount"


def make_wheel(directory: Path) -> Path:
    path = directory / "small_thing-1.0-py3-none-any.whl"
    info = "small_thing-1.0.dist-info"
    files = {
        "small_thing/__init__.py": "def answer() -> int:\n    return 42\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: small-thing\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return path


def test_pip_install_into_a_virtual_environment(machine: Machine, elsewhere: Machine, tmp_path: Path) -> None:
    mounted = writable(machine, "venv")
    environment = mounted / "env"
    run(sys.executable, "-m", "venv", environment)
    run(environment / "bin" / "python", "-m", "pip", "install", "-q", "--no-index", make_wheel(tmp_path))
    script = "import small_thing; print(small_thing.answer(), small_thing.__file__)"
    answer, _, place = run(environment / "bin" / "python", "-c", script).strip().partition(" ")
    assert answer == "42"
    assert place.startswith(str(environment))
    run(environment / "bin" / "python", "-m", "pip", "check")

    other = read_back(machine, elsewhere, mounted)
    assert run(other / "env" / "bin" / "python", "-B", "-c", script).split()[0] == "42"


SQLITE_WRITER = """
import sqlite3, sys
name, rows = sys.argv[2], int(sys.argv[3])
connection = sqlite3.connect(sys.argv[1], timeout=120, isolation_level=None)
assert connection.execute("pragma journal_mode=wal").fetchone() == ("wal",)
connection.execute("create table if not exists entries (writer text, number integer, payload blob, unique (writer, number))")
for number in range(rows):
    connection.execute("begin immediate")
    connection.execute("insert into entries values (?, ?, randomblob(300))", (name, number))
    if number % 10 == 9:
        connection.execute("update entries set payload = randomblob(500) where number = ?", (number // 2,))
    connection.execute("commit")
print(connection.execute("select count(*) from entries where writer = ?", (name,)).fetchone()[0])
"""


def test_sqlite_wal_with_two_processes(machine: Machine, elsewhere: Machine) -> None:
    mounted = writable(machine, "sqlite")
    database = mounted / "two.db"
    # One process switches to WAL first: SQLite answers a second one that does so at that moment
    # "locked" at once, on any file system, since waiting there could deadlock.
    assert run("sqlite3", database, "pragma journal_mode=wal;").strip() == "wal"
    rows = 400
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", SQLITE_WRITER, database, name, str(rows)], stdout=subprocess.PIPE, text=True
        )
        for name in ("left", "right")
    ]
    for writer in writers:
        output, _ = writer.communicate(timeout=300)
        assert (writer.returncode, output.strip()) == (0, str(rows))
    assert run("sqlite3", database, "pragma integrity_check; select count(*) from entries;").split() == ["ok", "800"]

    other = read_back(machine, elsewhere, mounted)
    check = "pragma integrity_check; select count(*) from entries;"
    assert run("sqlite3", f"file:{other}/two.db?immutable=1", check).split() == ["ok", "800"]


def test_sqlite_open_in_wal_mode_survives_commits(machine: Machine, elsewhere: Machine) -> None:
    """Versions committed in the middle of transactions hold a database that SQLite recovers."""
    mounted = writable(machine, "sqlite-live")
    arguments = [sys.executable, "-c", SQLITE_WRITER, str(mounted / "live.db"), "only", "1500"]
    writer = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    locators: list[str] = []
    while writer.poll() is None and len(locators) < 5:
        time.sleep(0.2)
        locators.append(machine.commit(mounted))
    assert writer.wait(timeout=300) == 0
    locators.append(machine.commit(mounted))
    counts = []
    for number, locator in enumerate(dict.fromkeys(locators)):
        name = f"fork{number}"
        elsewhere.cowfs("fork", locator, name)
        fork = elsewhere.mount(name)
        if (fork / "live.db").exists():
            result = run("sqlite3", fork / "live.db", "pragma integrity_check;").split()
            assert result == ["ok"], f"version {number} of {len(locators)}"
            tables = run("sqlite3", fork / "live.db", "select count(*) from sqlite_master where name = 'entries';")
            if tables.strip() == "1":
                counts.append(int(run("sqlite3", fork / "live.db", "select count(*) from entries;")))
        elsewhere.unmount(fork, "--discard")
    assert counts == sorted(counts), "a later version has fewer rows"
    assert counts[-1] == 1500


def test_tar_extract_and_compare(machine: Machine, elsewhere: Machine, source: Path, tmp_path: Path) -> None:
    archive = tmp_path / "tree.tar"
    run("tar", "--xattrs", "--sparse", "-cf", archive, "-C", source, ".")
    mounted = writable(machine, "tar")
    run("tar", "--xattrs", "-xpf", archive, "-C", mounted)
    run("tar", "--xattrs", "-df", archive, "-C", mounted)
    other = read_back(machine, elsewhere, mounted)
    run("tar", "--xattrs", "-df", archive, "-C", other)


def test_cp_archive(machine: Machine, elsewhere: Machine, source: Path) -> None:
    mounted = writable(machine, "cp")
    run("cp", "-a", source, mounted / "copy")
    assert differences(read_tree(source), read_tree(mounted / "copy")) == []
    run("cp", "-a", mounted / "copy", mounted / "copy of copy")
    other = read_back(machine, elsewhere, mounted)
    assert differences(read_tree(source), read_tree(other / "copy of copy")) == []
    run("diff", "-r", "--no-dereference", "-x", "fifo", source, other / "copy")


def test_rsync_checksum(machine: Machine, elsewhere: Machine, source: Path) -> None:
    mounted = writable(machine, "rsync")
    rsync = ("rsync", "-aHX", "--checksum", "--delete", "--itemize-changes")
    run(*rsync, f"{source}/", mounted / "tree")
    assert run(*rsync, "--dry-run", f"{source}/", mounted / "tree") == ""
    (mounted / "tree" / "json" / "decoder.py").write_text("damaged")
    (mounted / "tree" / "extra").mkdir()
    run(*rsync, f"{source}/", mounted / "tree")
    other = read_back(machine, elsewhere, mounted)
    assert run(*rsync, "--dry-run", f"{source}/", other / "tree") == ""


@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        ("random", ("--rw=randwrite", "--bs=4k", "--size=32M", "--fsync=500")),
        ("sequential", ("--rw=write", "--bs=1M", "--size=256M")),
        ("mixed", ("--rw=randrw", "--bsrange=512-128k", "--bs_unaligned", "--size=32M")),
        ("mapped", ("--rw=randwrite", "--bs=4k", "--size=16M", "--ioengine=mmap")),
    ],
)
def test_fio_verify(machine: Machine, elsewhere: Machine, pattern: str, options: tuple[str, ...]) -> None:
    mounted = writable(machine, f"fio-{pattern}")
    verify = ("--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--verify_state_save=0")
    common = (f"--directory={mounted}", *verify, "--randseed=7")
    engine = () if pattern == "mapped" else ("--ioengine=psync",)
    run("fio", "--name=verified", *common, *engine, *options)
    read_back(machine, elsewhere, mounted)


def test_mapped_stores_are_in_the_next_version(machine: Machine, elsewhere: Machine) -> None:
    """Stores through a shared mapping that nobody synced are part of a commit called after them."""
    mounted = writable(machine, "mapped")
    script = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 1 << 20)
view = mmap.mmap(fd, 1 << 20)
view[:] = bytes(range(256)) * 4096
print("stored", flush=True)
sys.stdin.readline()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", script, mounted / "mapped"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "stored\n"
    locator = machine.commit(mounted)
    holder.communicate("\n", timeout=60)
    other = elsewhere.mount(locator, at="back")
    assert hashlib.sha256((other / "mapped").read_bytes()).digest() == hashlib.sha256(bytes(range(256)) * 4096).digest()
