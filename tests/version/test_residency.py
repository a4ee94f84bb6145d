"""Loading what an engine lacks while the version under it changes: indexes replaced by commits,
packs that moved."""

from __future__ import annotations

import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cowfs.base import clock
from cowfs.base.ids import PackId
from cowfs.errors import CorruptError, UnavailableError
from cowfs.index import Index
from cowfs.native import Engine, Handle, NotResident
from cowfs.session.residency.loading import call_until_resident
from cowfs.store import ObjectStore
from cowfs.store.contract import Data
from tests.faulty_store import FaultyStore
from tests.version.repacking import move
from tests.version.working_volume import ME, ROOT, ReadingVolume, WorkingVolume


def _refuse(*_: object) -> None:
    raise UnavailableError("the store does not answer")


class CommitBetween:
    """An index that is replaced and closed between being chosen and being asked."""

    def __init__(self, volume: WorkingVolume) -> None:
        self._index: Any = volume.residency._index
        self._volume = volume

    def directory_pages(self, ino: int) -> Any:
        self._volume.commit()
        return self._index.directory_pages(ino)


def test_a_load_meets_an_index_that_a_commit_has_just_closed(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "v", tmp_path / "a") as volume:
        volume.mkdir(b"d")
        volume.write(b"d/f", b"inside")
        volume.commit()
    with WorkingVolume(store, "v", tmp_path / "b") as volume:
        volume.write(b"new", b"x")
        volume.residency._index = CommitBetween(volume)  # type: ignore[assignment]
        assert volume.tree() == {b"d": None, b"d/f": b"inside", b"new": b"x"}


def test_readers_see_no_error_while_commits_run(store: ObjectStore, tmp_path: Path) -> None:
    """Each directory and file is loaded for the first time while commits replace the index."""
    expected: dict[bytes, bytes | None] = {}
    with WorkingVolume(store, "v", tmp_path / "a") as volume:
        for number in range(150):
            path = b"d%d" % number
            volume.mkdir(path)
            volume.write(path + b"/f", path)
            expected |= {path: None, path + b"/f": path}
        volume.commit()
    with WorkingVolume(store, "v", tmp_path / "b") as volume:
        found: dict[bytes, bytes | None] = {}
        reader = threading.Thread(target=lambda: found.update(volume.tree()))
        reader.start()
        rounds = 0
        while reader.is_alive():
            volume.write(b"d0/changing", b"%d" % rounds)
            volume.commit()
            rounds += 1
        reader.join()
        found.pop(b"d0/changing", None)
        assert found == expected


class Emptied:
    """An index that has lost what its files hold."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def read_stored_content(self, ino: int) -> tuple[list[Any], list[Any]]:
        return [], []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)


def test_files_without_a_name_outlive_the_commit_that_drops_them(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened in a cold engine, unlinked or replaced before anything was read of them; then a
    commit, one that failed before it."""
    names = (b"unlinked", b"replaced", b"written")
    with WorkingVolume(store, "v", tmp_path / "a") as volume:
        for name in names:
            volume.write(name, name * 40_000)
            volume.engine.set_xattr(volume.find(name), b"user.name", name, 0)
        volume.commit()
    with WorkingVolume(store, "v", tmp_path / "b") as volume:
        engine, call = volume.engine, volume.call
        inodes = {name: volume.find(name) for name in names}
        handles = {name: call(engine.open_file, inodes[name], os.O_RDWR) for name in names}
        volume.unlink(b"unlinked")
        volume.unlink(b"written")
        volume.write(b"new", b"x")
        call(engine.rename, ROOT, b"new", ROOT, b"replaced", 0, ME)
        assert sorted(engine.nameless_without_content()) == sorted(inodes.values())
        with monkeypatch.context() as patch:
            patch.setattr(volume.store, "put", _refuse)
            with pytest.raises(UnavailableError):
                volume.commit()
        for _ in range(2):
            volume.commit()
            call(engine.write, handles[b"written"], 5, b"more")
            for name in names:
                expected = name * 40_000
                if name == b"written":
                    expected = expected[:5] + b"more" + expected[9:]
                assert call(engine.read, handles[name], 0, 1 << 20) == expected
                assert call(engine.get_xattr, inodes[name], b"user.name") == name
            volume.write(b"other", b"for another commit")
        assert set(volume.tree()) == {b"replaced", b"other"}


def test_rows_that_do_not_add_up_are_an_error_and_no_zeros(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "v", tmp_path / "a") as volume:
        volume.write(b"f", b"x" * 40_000)
        volume.commit()
    with WorkingVolume(store, "v", tmp_path / "b") as volume:
        ino = volume.find(b"f")
        volume.residency._index = Emptied(volume.residency._index)  # type: ignore[assignment]
        with pytest.raises(CorruptError, match=f"inode {ino}"):
            volume.read(b"f")


class Counted:
    """An index that counts questions; `spoils` stands between it and what is asked about many."""

    def __init__(self, index: Index, spoils: Callable[[list[Any]], list[Any]] | None) -> None:
        self._index = index
        self._spoils = spoils or (lambda rows: rows)
        self.alone: list[int] = []

    def read_stored_content(self, ino: int) -> Any:
        self.alone.append(ino)
        return self._index.read_stored_content(ino)

    def read_stored_contents(self, first: int, last: int) -> list[Any]:
        return self._spoils(self._index.read_stored_contents(first, last))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)


def unreachable(rows: list[Any]) -> list[Any]:
    raise UnavailableError("the store does not answer")


def silent(rows: list[Any]) -> list[Any]:
    time.sleep(3)
    raise UnavailableError("the store did not answer for long")


def without_extents(rows: list[Any]) -> list[Any]:
    return [(ino, [], xattrs) for ino, _, xattrs in rows]


@pytest.mark.parametrize("spoils", [None, unreachable, silent, without_extents])
def test_contents_of_neighbours_come_with_one_question(
    store: ObjectStore, tmp_path: Path, spoils: Callable[[list[Any]], list[Any]] | None
) -> None:
    """If it goes wrong, each file has its own."""
    files = {f"f{number:03}".encode(): b"%d" % number * (1 + number % 7) for number in range(600)}
    with WorkingVolume(store, "v", tmp_path / "a") as volume:
        for path, data in files.items():
            volume.write(path, data)
            volume.engine.set_xattr(volume.find(path), b"user.name", path, 0)
        volume.commit()
    with WorkingVolume(store, "v", tmp_path / "b") as volume:
        counted = Counted(volume.residency._index, spoils)
        volume.residency._index = counted  # type: ignore[assignment]
        volume.write(b"f300", b"changed")
        assert volume.tree() == files | {b"f300": b"changed"}
        for path in files:
            assert volume.call(volume.engine.get_xattr, volume.find(path), b"user.name") == path
        assert len(counted.alone) == len(set(counted.alone)), "nobody is asked about twice"
        if spoils is None:
            assert len(counted.alone) < len(files) / 2, "few, if nobody else is at work on this machine"
        else:
            assert len(counted.alone) == len(files)


def test_small_files_of_a_pack_that_moved_are_read(store: ObjectStore, tmp_path: Path) -> None:
    expected = {f"f{number:03}".encode(): random.Random(number).randbytes(2000) for number in range(100)}
    with WorkingVolume(store, "v", tmp_path / "a") as volume:
        for path, data in expected.items():
            volume.write(path, data)
        base = volume.commit()
    assert base.version_id is not None
    largest = max(store.list("packs/"), key=lambda info: info.size)
    in_place = FaultyStore(store)
    with ReadingVolume(in_place, base.version_id, tmp_path / "p") as reader:
        assert reader.tree() == expected
    move(store, PackId.from_hex(largest.key[-32:]), 1)
    moved = FaultyStore(store)
    with ReadingVolume(moved, base.version_id, tmp_path / "r") as reader:
        assert reader.tree() == expected
    assert len(moved.calls) <= len(in_place.calls) + 10, "a few requests a pack, not one a file"


def test_a_segment_trimmed_while_its_file_is_cut_again(store: ObjectStore, tmp_path: Path) -> None:
    """A neighbour's staged bytes, kept only as a cache, may go between being named and being
    read."""
    data = random.Random(5).randbytes(3 << 20)
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"f", data)
        volume.write(b"other", bytes(1) * (64 << 20))  # the segment of `f` is not the current one
        volume.commit()
        volume.write(b"f", b"changed", offset=1 << 20)
        contents = volume.committer._contents
        engine = volume.engine

        class TrimmedFirst:
            def __getattr__(self, name: str) -> Any:
                return getattr(engine, name)

            def read_staged(self, *arguments: Any) -> bytes:
                engine.trim_staging(0)
                return engine.read_staged(*arguments)

        contents._engine = TrimmedFirst()  # type: ignore[assignment]
        base = volume.commit()
    assert base.version_id is not None
    with ReadingVolume(store, base.version_id, tmp_path / "r") as reader:
        assert reader.read(b"f") == data[: 1 << 20] + b"changed" + data[(1 << 20) + 7 :]


def test_a_sequential_reader_finds_what_comes_next_fetched(store: ObjectStore, tmp_path: Path) -> None:
    """And one that jumps about has nothing fetched but what it asked for."""
    data = random.Random(1).randbytes(24 << 20)
    with WorkingVolume(store, "v", tmp_path / "a") as volume:
        volume.write(b"f", data)
        base = volume.commit()
    assert base.version_id is not None
    step = 128 << 10
    with ReadingVolume(store, base.version_id, tmp_path / "r") as reader:
        engine, ino = reader.engine, reader.find(b"f")
        fh = reader.call(engine.open_file, ino, os.O_RDONLY)
        for offset in range(20 << 20, 4 << 20, -(5 << 20)):
            assert reader.call(engine.read, fh, offset, 4096) == data[offset : offset + 4096]
        assert reader.residency._ahead_bytes == 0
        at = 0
        while at < 4 << 20:
            assert reader.call(engine.read, fh, at, step) == data[at : at + step]
            at += step
        deadline_s = clock.monotonic_s() + 30
        while not can_read(engine, fh, at, step):
            assert clock.monotonic_s() < deadline_s
            clock.sleep_s(0.01)
        while at < len(data):
            assert reader.call(engine.read, fh, at, step) == data[at : at + step]
            at += step


def test_each_of_many_readers_has_its_next_pack_asked_for(store: ObjectStore, tmp_path: Path) -> None:
    """However much of what others want is on its way: else it asks for each chunk by itself."""
    data = random.Random(6).randbytes(64 << 20)
    with WorkingVolume(store, "v", tmp_path / "a") as volume:
        volume.write(b"f", data)
        base = volume.commit()
    assert base.version_id is not None
    with ReadingVolume(store, base.version_id, tmp_path / "r") as reader:
        engine, ino, may_come = reader.engine, reader.find(b"f"), threading.Event()
        fh = reader.call(engine.open_file, ino, os.O_RDONLY)
        assert reader.call(engine.read, fh, 63 << 20, 4096) == data[63 << 20 :][:4096]  # its extents are here now
        packs: Any = reader.residency._packs

        class Waiting:
            def __init__(self, store: ObjectStore) -> None:
                self._store = store

            def stream_range(self, key: str, offset: int, length: int) -> Iterator[Data]:
                assert may_come.wait(60)
                yield self._store.get_range(key, offset, length)

        packs._store = Waiting(packs._store)

        def read_on(start: int, end: int) -> None:
            fh = reader.call(engine.open_file, ino, os.O_RDONLY)
            for offset in range(start, end, 512 << 10):
                assert not can_read(engine, fh, offset, 128 << 10)

        def until(is_so: Callable[[], bool]) -> None:
            deadline_s = clock.monotonic_s() + 60
            while not is_so():
                assert clock.monotonic_s() < deadline_s
                clock.sleep_s(0.01)

        try:
            for _ in range(12):
                read_on(0, 12 << 20)
            until(lambda: reader.residency._ahead_bytes >= 128 << 20)
            read_on(50 << 20, 53 << 20)
            next_one = engine.absent_chunks(ino, 55 << 20, (55 << 20) + 1)[0]
            until(lambda: reader.residency._loads.of(next_one.hash) is not None)
        finally:
            may_come.set()


def can_read(engine: Engine, fh: Handle, offset: int, size: int) -> bool:
    try:
        engine.read(fh, offset, size)
    except NotResident:
        return False
    return True


def test_a_first_read_asks_once(store: ObjectStore, tmp_path: Path) -> None:
    """For the rows of its file and the chunks of the bytes it reads, and for no others."""
    data = random.Random(3).randbytes(8 << 20)
    with WorkingVolume(store, "v", tmp_path / "a") as volume:
        volume.write(b"f", data)
        base = volume.commit()
    assert base.version_id is not None
    with ReadingVolume(store, base.version_id, tmp_path / "r") as reader:
        fh = reader.call(reader.engine.open_file, reader.find(b"f"), os.O_RDONLY)
        asked: list[str] = []

        def load(missing: NotResident) -> None:
            asked.append(missing.what)
            reader.residency.load(missing)

        assert call_until_resident(lambda: reader.engine.read(fh, 4 << 20, 4096), load) == data[4 << 20 :][:4096]
        assert asked == ["content"]
        assert call_until_resident(lambda: reader.engine.read(fh, 0, 4096), load) == data[:4096]
        assert asked == ["content", "chunks"]


def test_a_reader_waits_for_its_part_of_a_request_alone(store: ObjectStore, tmp_path: Path) -> None:
    """The bytes that come first are read while the rest of the request is on its way."""
    data = random.Random(4).randbytes(8 << 20)
    with WorkingVolume(store, "v", tmp_path / "a") as volume:
        volume.write(b"f", data)
        base = volume.commit()
    assert base.version_id is not None
    with ReadingVolume(store, base.version_id, tmp_path / "r") as reader:
        engine, has_begun, may_come, may_go = reader.engine, threading.Event(), threading.Event(), threading.Event()
        fh = reader.call(engine.open_file, reader.find(b"f"), os.O_RDONLY)
        with pytest.raises(NotResident) as extents:
            reader.engine.read(fh, 0, len(data))
        chunks = reader.residency.load_rows(extents.value)
        packs: Any = reader.residency._packs

        class Halting:
            """Gives half of the range when it may come, and the rest when it is let go."""

            def __init__(self, store: ObjectStore) -> None:
                self._store = store

            def stream_range(self, key: str, offset: int, length: int) -> Iterator[Data]:
                has_begun.set()
                assert may_come.wait(30)
                yield self._store.get_range(key, offset, length // 2)
                assert may_go.wait(30)
                yield self._store.get_range(key, offset + length // 2, length - length // 2)

        packs._store = Halting(packs._store)
        done: queue.Queue[BaseException | None] = queue.Queue()
        reader.residency.load_chunks(chunks, done.put)
        assert has_begun.wait(60)  # else the second may be the one that asks the store
        reader.residency.load_chunks(chunks[:1], done.put)
        may_come.set()  # before that, else the second may ask again for what has just come
        assert done.get(timeout=30) is None
        assert engine.read(fh, 0, 4096) == data[:4096]
        assert not can_read(engine, fh, 7 << 20, 4096)
        may_go.set()
        assert done.get(timeout=30) is None
        assert engine.read(fh, 0, len(data)) == data


def test_loads_that_wait_for_chunks_take_no_thread_of_the_caller(store: ObjectStore, tmp_path: Path) -> None:
    data = random.Random(2).randbytes(1 << 20)
    with WorkingVolume(store, "v", tmp_path / "a") as volume:
        volume.write(b"f", data)
        base = volume.commit()
    assert base.version_id is not None
    with ReadingVolume(store, base.version_id, tmp_path / "r") as reader:
        fh = reader.call(reader.engine.open_file, reader.find(b"f"), os.O_RDONLY)
        with pytest.raises(NotResident) as extents:
            reader.engine.read(fh, 0, len(data))
        needed = reader.residency.load_rows(extents.value)
        with pytest.raises(NotResident) as missing:
            reader.engine.read(fh, 0, len(data))
        assert missing.value.what == "chunks"
        assert [chunk.hash for chunk in needed] == [chunk.hash for chunk in missing.value.chunks]
        outcomes: queue.Queue[BaseException | None] = queue.Queue()
        packs = reader.residency._packs
        begun, may_go = threading.Event(), threading.Event()

        class Slow:
            def fill(self, *arguments: Any) -> Any:
                begun.set()
                assert may_go.wait(30)
                return packs.fill(*arguments)

        reader.residency._packs = Slow()  # type: ignore[assignment]
        reader.residency.load_chunks(missing.value.chunks, outcomes.put)
        assert begun.wait(30)
        assert outcomes.empty()
        may_go.set()
        assert outcomes.get(timeout=30) is None
        assert reader.engine.read(fh, 0, len(data)) == data
