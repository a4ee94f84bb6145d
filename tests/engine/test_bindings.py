"""What the bindings add to the engine: rows, exceptions, bytes, threads. The engine's own rules are
tested in Rust."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cowfs.base.ids import ChunkHash
from cowfs.native import Caller, DirectoryRows, Engine, JournalCorrupt, Lane, NotResident
from cowfs.native.chunks import CODEC_RAW, CODEC_ZSTD, ChunkRef, FileRows, cut_points, zero_runs
from cowfs.native.constants import INODE_HAS_XATTRS
from tests.engine.volumes import CALLER, ROOT, fresh_engine, open_engine

pytestmark = pytest.mark.quick

FILE_ROW = (2, stat.S_IFREG | 0o640, 1, 7, 8, 0, 10, 6, -5, 6, 7, INODE_HAS_XATTRS, b"")
HASH = ChunkHash(bytes(range(32)))
EXTENT_ROW = (2, 6, HASH, 3, 4096, 80, 100, 20, CODEC_ZSTD)


def put(engine: Engine, name: bytes, data: bytes) -> int:
    attr, fh = engine.create(ROOT, name, 0o644, os.O_RDWR, CALLER)
    assert engine.write(fh, 0, data) == len(data)
    engine.release(fh)
    return attr.ino


def test_constants() -> None:
    assert (CODEC_RAW, CODEC_ZSTD, INODE_HAS_XATTRS) == (0, 1, 1)


def test_errors_are_those_of_system_calls(tmp_path: Path) -> None:
    engine = fresh_engine(tmp_path)
    with pytest.raises(FileNotFoundError) as absent:
        engine.lookup(ROOT, b"absent")
    assert absent.value.errno == errno.ENOENT
    assert absent.value.strerror == os.strerror(errno.ENOENT)
    engine.mkdir(ROOT, b"d", 0o755, CALLER)
    with pytest.raises(FileExistsError):
        engine.mkdir(ROOT, b"d", 0o755, CALLER)
    engine.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        engine.getattr(ROOT)


def test_not_resident_says_what_to_load(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    with pytest.raises(NotResident) as missing:
        engine.lookup(ROOT, b"f")
    assert (missing.value.what, missing.value.ino, missing.value.chunks) == ("directory", ROOT, [])
    rows = DirectoryRows()
    rows.add([(b"f", FILE_ROW)])
    engine.load_directory(ROOT, rows)
    attr = engine.lookup(ROOT, b"f")
    assert (attr.ino, attr.mode, attr.uid, attr.gid, attr.size) == (2, stat.S_IFREG | 0o640, 7, 8, 10)
    assert (attr.atime_ns, attr.mtime_ns, attr.ctime_ns) == (-5, 6, 7)
    fh = engine.open_file(2, os.O_RDONLY)
    with pytest.raises(NotResident) as missing:
        engine.read(fh, 0, 100)
    assert (missing.value.what, missing.value.ino) == ("content", 2)
    engine.load_content(2, [EXTENT_ROW], [(b"user.a", b"1")])
    with pytest.raises(NotResident) as missing:
        engine.read(fh, 0, 100)
    chunk = missing.value.chunks[0]
    assert missing.value.what == "chunks"
    assert (chunk.hash, chunk.pack, chunk.offset) == (HASH, 3, 4096)
    assert (chunk.stored_length, chunk.raw_length, chunk.codec) == (80, 100, CODEC_ZSTD)
    raw = bytes(range(100))
    assert engine.cached_chunk(chunk.hash, 100) is None
    engine.cache_chunk(chunk.hash, raw)
    assert engine.cached_chunk(chunk.hash, 100) == raw
    assert engine.read(fh, 0, 100) == b"\0\0" + raw[20:26] + b"\0\0"
    assert engine.get_xattr(2, b"user.a") == b"1"


def test_chunk_references_are_values() -> None:
    one, same, other = (ChunkRef(HASH, 1, 2, 3, 4, number) for number in (0, 0, 1))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    with pytest.raises(ValueError, match="32 bytes"):
        ChunkRef(b"short", 1, 2, 3, 4, 0)


def test_names_and_targets_are_bytes(tmp_path: Path) -> None:
    engine = fresh_engine(tmp_path)
    attr = engine.symlink(ROOT, b"\xff\x80", b"to \xfe", CALLER)
    assert engine.readlink(attr.ino) == b"to \xfe"
    fh = engine.open_directory(ROOT)
    entries = engine.read_directory(fh, 0, 10)
    assert [name for name, _, _ in entries] == [b".", b"..", b"\xff\x80"]
    assert engine.read_directory(fh, entries[1][1], 10)[0][2].ino == attr.ino
    engine.release_directory(fh)


def test_setattr_changes_what_is_given(tmp_path: Path) -> None:
    engine = fresh_engine(tmp_path)
    ino = put(engine, b"f", b"0123456789")
    attr = engine.setattr(ino, CALLER, mode=0o600, uid=5, gid=6, size=4, atime_ns=-1, mtime_ns=2**40, ctime_ns=9)
    assert (attr.mode & 0o777, attr.uid, attr.gid, attr.size) == (0o600, 5, 6, 4)
    assert (attr.atime_ns, attr.mtime_ns, attr.ctime_ns) == (-1, 2**40, 9)
    with pytest.raises(OverflowError):
        engine.setattr(ino, CALLER, size=-1)
    unknown_groups = Caller(1, 1, 1, 0, None)
    assert engine.setattr(ino, unknown_groups, mode=0o2755).mode & 0o2000


@pytest.mark.parametrize(("asked_ns", "kept_ns"), [(2**63, 2**63 - 1), (-(10**25), -(2**63)), (-7, -7)])
def test_times_beyond_64_bits_become_the_nearest(tmp_path: Path, asked_ns: int, kept_ns: int) -> None:
    engine = fresh_engine(tmp_path)
    ino = put(engine, b"f", b"x")
    attr = engine.setattr(ino, CALLER, atime_ns=asked_ns, mtime_ns=asked_ns, ctime_ns=asked_ns)
    assert (attr.atime_ns, attr.mtime_ns, attr.ctime_ns) == (kept_ns,) * 3
    engine.close()


def test_a_layer_is_published_through_rows(tmp_path: Path) -> None:
    engine = fresh_engine(tmp_path)
    assert engine.freeze() is None
    ino = put(engine, b"f", b"x" * 1000)
    engine.set_xattr(ino, b"user.k", b"v", 0)
    assert [quiet for (_, quiet), _ in engine.quiet_files(0.0, (0, 0), 10)] == [ino]
    assert engine.quiet_files(1e9, (0, 0), 10) == []
    layer = engine.freeze()
    assert layer == 1
    rows = {row[0]: row for row in engine.layer_inodes(layer, 0, 10, FileRows())}
    assert set(rows) == {ROOT, ino}
    assert rows[ino][6:8] == (1000, 1000)
    assert rows[ino][11] == INODE_HAS_XATTRS
    assert engine.layer_entries(layer, (0, b""), 10) == [(ROOT, b"f", ino)]
    assert engine.layer_removed(layer, 0, 10) == []
    assert engine.layer_xattrs(layer, 0, 10) == [(ino, [(b"user.k", b"v")])]
    assert engine.layer_next_ino(layer) == ino + 1
    [(changed, version)] = engine.layer_contents(layer, 0, 10)
    assert engine.layer_contents(layer, changed, 10) == []
    assert engine.layer_totals(layer) == (1, 1000)
    [extent] = engine.layer_extents(layer, ino)
    assert (changed, extent.offset, extent.length, extent.chunk) == (ino, 0, 1000, None)
    assert engine.read_staged(extent.segment, extent.segment_offset, 3) == b"xxx"
    target = bytearray(5)
    engine.read_staged_into(extent.segment, extent.segment_offset, memoryview(target)[1:4])
    assert target == b"\0xxx\0"
    with pytest.raises(ValueError, match="cannot be filled"):
        engine.read_staged_into(extent.segment, extent.segment_offset, memoryview(bytes(3)))  # read-only
    contents = FileRows()
    contents.put(ino, version, [(0, 1000, HASH, 1, 2, 3, 1000, 0, CODEC_RAW)])
    engine.layer_committed(layer, contents)
    assert not engine.is_dirty()
    _, [extent] = engine.live_extents(ino)
    assert extent.segment >= 1, "still cached"
    assert extent.chunk == ChunkRef(HASH, 1, 2, 3, 1000, CODEC_RAW)
    with pytest.raises(OSError, match="Invalid argument"):
        engine.layer_inodes(layer, 0, 10, FileRows())


def test_recovery_tells_what_the_journal_held(tmp_path: Path) -> None:
    engine = fresh_engine(tmp_path)
    put(engine, b"f", b"kept")
    del engine
    engine = open_engine(tmp_path)
    recovery = engine.recover()
    assert (recovery.directories, recovery.inodes, recovery.contents) == ([ROOT], [ROOT], [])
    assert recovery.records > 0
    assert recovery.cut_bytes == 0
    assert not recovery.power_loss
    engine.load_directory(ROOT, DirectoryRows())
    assert engine.replay() == 0
    assert engine.read(engine.open_file(engine.lookup(ROOT, b"f").ino, os.O_RDONLY), 0, 10) == b"kept"


def test_an_abandoned_engine_answers_nothing_and_lets_the_next_one_open(tmp_path: Path) -> None:
    engine = fresh_engine(tmp_path)
    put(engine, b"file", b"data")
    engine.abandon()
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        engine.getattr(ROOT)
    assert caught.value.errno == errno.EBADF
    engine.abandon()
    again = open_engine(tmp_path)
    assert again.recover().records > 0, "nothing was deleted: that is for the owner of the files"
    again.abandon()


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    engine = fresh_engine(tmp_path)
    for number in range(20):
        put(engine, b"f%d" % number, b"x")
    del engine
    [journal] = (tmp_path / "working" / "journal").iterdir()
    damaged = bytearray(journal.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    journal.write_bytes(damaged)
    with pytest.raises(JournalCorrupt):
        open_engine(tmp_path)
    assert journal.read_bytes() == damaged


def test_a_read_only_engine_raises_erofs(tmp_path: Path) -> None:
    engine = open_engine(tmp_path, writable=False)
    assert engine.recover().records == 0
    assert engine.replay() == 0
    engine.load_directory(ROOT, DirectoryRows())
    with pytest.raises(OSError, match="Read-only file system"):
        engine.mkdir(ROOT, b"d", 0o755, CALLER)
    with pytest.raises(OSError, match="Read-only file system"):
        engine.freeze()


def test_rows_of_the_wrong_shape_are_refused(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    with pytest.raises(ValueError, match="13 values, not 2"):
        engine.load_inode((2, 3))  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        engine.load_inode((-1, *FILE_ROW[1:]))
    with pytest.raises(ValueError, match="32 bytes"):
        engine.load_content(2, [(0, 1, b"short", 0, 0, 0, 1, 0, 0)], [])


def test_threads_share_an_engine(tmp_path: Path) -> None:
    engine = fresh_engine(tmp_path)
    engine.count_base(0, 1)  # the root

    def make(thread: int) -> None:
        for number in range(200):
            put(engine, b"%d-%d" % (thread, number), b"%d" % number)

    threads = [threading.Thread(target=make, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file_bytes, inodes, free_bytes = engine.statfs()
    assert inodes == 4 * 200 + 1
    assert file_bytes == 4 * sum(len(b"%d" % number) for number in range(200))
    assert free_bytes > 0


def test_cutting_and_zero_runs() -> None:
    data = bytes(1 << 20) + os.urandom(3 << 20)
    assert zero_runs(data, 65536)[0][0] == 0
    assert zero_runs(b"abc", 1) == []
    ends = cut_points(data, True)
    assert ends == sorted(ends)
    assert ends[-1] == len(data)
    assert set(cut_points(data, False)) <= set(ends)


def test_upkeep_sleeps_until_something_changes(tmp_path: Path) -> None:
    engine = fresh_engine(tmp_path)
    seen = engine.watch()
    put(engine, b"f", b"x")
    engine.wait_changed(seen, 3600)
    waiter = threading.Thread(target=engine.wait_changed, args=(engine.watch(), 3600), daemon=True)
    waiter.start()
    assert engine.getattr(ROOT).ino == ROOT
    waiter.join(0.1)
    assert waiter.is_alive(), "a look changes nothing"
    put(engine, b"g", b"x")
    waiter.join(30)
    assert not waiter.is_alive()
    engine.end_waits()
    engine.wait_changed(engine.watch(), 3600)
    assert engine.reclaim_when_due(3600) == 0
    engine.close()


def test_a_number_that_is_no_descriptor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        Lane(open_engine(tmp_path, writable=False), device_fd=-1, attr_ns=0, entry_ns=0, dir_entry_ns=0)


def test_a_read_takes_no_more_memory_than_the_file_has(tmp_path: Path) -> None:
    engine = fresh_engine(tmp_path)
    _, fh = engine.create(ROOT, b"f", 0o644, os.O_RDWR, CALLER)
    engine.write(fh, 0, b"all of it")
    assert engine.read(fh, 4, 1 << 50) == b"of it"
    assert engine.read(fh, 1 << 40, 1 << 50) == b""


def test_no_cookie_is_too_large(tmp_path: Path) -> None:
    engine = fresh_engine(tmp_path)
    engine.mkdir(ROOT, b"d", 0o755, CALLER)
    assert engine.read_directory(engine.open_directory(ROOT), (1 << 64) - 1, 10) == []


@pytest.mark.parametrize("timeout_s", [1e19, float("inf"), float("nan")])
def test_a_wait_without_end_is_a_wait(tmp_path: Path, timeout_s: float) -> None:
    engine = fresh_engine(tmp_path)
    waiting = threading.Thread(target=engine.wait_changed, args=(engine.watch(), timeout_s), daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    engine.end_waits()
    waiting.join()


FORKED = """
import hashlib, os, sys
from pathlib import Path
from tests.engine.volumes import open_engine

directory = Path(sys.argv[1])
engine = open_engine(directory, writable=False)
data = lambda number: hashlib.blake2b(b"%d" % number).digest() * 50
name = lambda number: hashlib.sha256(b"%d" % number).digest()

def cache(numbers):
    for number in numbers:
        engine.cache_chunk(name(number), data(number))

cache(range(10))
engine.flush_cache()  # a segment of this process is begun
cache(range(10, 15))
told, tell = os.pipe()
if (child := os.fork()) == 0:
    os.read(told, 1)
    del engine  # writes what it has, as at the end of an interpreter
    os._exit(0)
cache(range(15, 200))
engine.flush_cache()
os.write(tell, b"x")
os.waitpid(child, 0)
cache(range(200, 400))
engine.close()
again = open_engine(directory, writable=False)
print(sum(again.cached_chunk(name(number), len(data(number))) is None for number in range(400)))
"""


def test_a_forked_child_writes_nothing_into_its_parents_cache(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "0\n"
