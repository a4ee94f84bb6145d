"""Large files are uploaded while they are written: the version is that of a commit that saw all at
once."""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from cowfs.errors import UnavailableError
from cowfs.format import pack
from cowfs.native.chunks import FileRows
from cowfs.session import growing
from cowfs.store import ObjectStore, initialize, open_store
from cowfs.store.packs import PackUploader
from cowfs.version.publish import cut_file
from cowfs.version.publish.known_chunks import KnownChunks
from tests.version.working_volume import ME, ReadingVolume
from tests.version.working_volume import WorkingVolume as AnyVolume

MIB = 1 << 20
STEP = 4 * MIB


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "STEP_BYTES", STEP)
    monkeypatch.setattr(growing, "PART_BYTES", STEP)


class WorkingVolume(AnyVolume):
    """It knows what its store has."""

    def __init__(self, store: ObjectStore, name: str, home: Path) -> None:
        super().__init__(store, name, home)
        self.publisher.chunks.wait_for_uploads()


def made(at: Path) -> ObjectStore:
    store = open_store((at / "store").as_uri(), create=True)
    initialize(store)
    return store


def stored_bytes(store: ObjectStore) -> int:
    return sum(info.size for info in store.list("packs/"))


def cut_lengths(volume: WorkingVolume) -> list[int]:
    """Of the chunks that are cut from now on."""
    storer, lengths = volume.publisher.chunks._storer, list[int]()
    prepare = storer._prepare

    def prepared(data: memoryview, uploader: PackUploader) -> Any:
        lengths.append(len(data))
        return prepare(data, uploader)

    storer._prepare = prepared  # type: ignore[method-assign]
    return lengths


def made_of(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[weakref.ref[Any]]:
    """All of that class that are made from now on."""
    kind, made = getattr(module, name), list[weakref.ref[Any]]()

    def make() -> Any:
        made.append(weakref.ref(new := kind()))
        return new

    monkeypatch.setattr(module, name, make)
    return made


def rows_of(volume: WorkingVolume, path: bytes) -> list[Any]:
    """Of the last version: offsets, lengths and hashes."""
    ino = volume.find(path)
    return [(row[0], row[1], row[2]) for row in volume.committer.index.read_stored_content(ino)[0]]


def test_what_is_settled_is_stored_before_the_file_is_complete(store: ObjectStore, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(40 * MIB)
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        volume.write(b"f", b"")
        for offset in range(0, 32 * MIB, MIB):
            volume.write(b"f", data[offset : offset + MIB], offset=offset)
        assert volume.committer.upload_growing() == 0, "nobody knows yet what is written again"
        assert volume.committer.upload_growing() == 0, "nothing was written since"
        volume.write(b"f", data[32 * MIB :], offset=32 * MIB)
        done = volume.committer.upload_growing()
        assert 26 * MIB < done <= 32 * MIB
        while stored_bytes(store) == 0:  # on their way
            time.sleep(0.01)
        cut = cut_lengths(volume)
        base = volume.commit()
        assert sum(cut) == len(data) - done, "the commit goes on where the upload ended"
        rows = rows_of(volume, b"f")
        assert base.version_id
        assert base.manifest
        assert base.manifest.stats.added_bytes == len(data)
    with ReadingVolume(store, base.version_id, tmp_path / "r") as version:
        assert version.read(b"f") == data
    with WorkingVolume(store, "b", tmp_path / "b") as whole:
        whole.write(b"f", data)
        whole.commit()
        assert rows_of(whole, b"f") == rows, "a file is cut at the same places however it was stored"


def test_nothing_is_stored_before_it_is_known_what_the_store_has(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = random.Random(1).randbytes(40 * MIB)
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        volume.write(b"f", data)
        volume.commit()
    stored, asked, load = stored_bytes(store), threading.Event(), KnownChunks._load_all

    def late(known: KnownChunks) -> None:
        assert asked.wait(60)
        load(known)

    monkeypatch.setattr(KnownChunks, "_load_all", late)
    with AnyVolume(store, "b", tmp_path / "b") as other:
        other.write(b"f", b"")
        for offset in range(0, len(data), STEP):
            other.write(b"f", data[offset : offset + STEP], offset=offset)
            assert other.committer.upload_growing() == 0
        asked.set()
        base = other.commit()
    assert base.manifest is not None
    assert stored_bytes(store) - stored < MIB, "all of it was there"


def test_a_file_that_is_written_again_and_again_is_left_to_the_commit(store: ObjectStore, tmp_path: Path) -> None:
    source = random.Random(2)
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        volume.write(b"f", source.randbytes(16 * MIB))
        for _ in range(5):
            volume.write(b"f", source.randbytes(5 * MIB), offset=0)
            assert volume.committer.upload_growing() == 0
        assert stored_bytes(store) == 0


def test_a_file_whose_header_changes_now_and_then_is_cut_again_a_few_times_at_most(
    store: ObjectStore, tmp_path: Path
) -> None:
    source = random.Random(6)
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        volume.write(b"f", source.randbytes(16 * MIB))
        cut = cut_lengths(volume)
        for number in range(2, 14):
            if number % 2:
                volume.write(b"f", source.randbytes(64), offset=0)
            volume.write(b"f", source.randbytes(8 * MIB), offset=number * 8 * MIB)
            volume.committer.upload_growing()
        assert sum(cut) < 200 * MIB, "several times as much without a bound"
        content, version = volume.read(b"f"), volume.commit().version_id
        assert version
    with ReadingVolume(store, version, tmp_path / "r") as reader:
        assert reader.read(b"f") == content


def test_memory_is_used_again_for_what_follows_and_freed_afterwards(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New pages for each part cost as much as all else that is done to its bytes."""
    rooms, buffers = made_of(monkeypatch, pack, "Room"), made_of(monkeypatch, cut_file, "Buffer")
    source = random.Random(8)
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        for number in range(10):
            volume.write(b"f", source.randbytes(16 * MIB), offset=number * 16 * MIB)
            volume.committer.upload_growing()
            uploader = volume.publisher.chunks._uploader
            while uploader._pending_bytes:
                time.sleep(0.01)
        assert (len(rooms) <= 3, len(buffers) <= 3) == (True, True), "of nine packs, of nine parts"
        volume.committer.upload_quiet(idle_s=3600)
        gc.collect()
        still = [sum(made() is not None for made in kind) for kind in (rooms, buffers)]
        assert still == [1, 0], "the pack that is not full waits for the commit"


def test_nothing_is_begun_while_the_session_ends(store: ObjectStore, tmp_path: Path) -> None:
    data = random.Random(7).randbytes(40 * MIB)
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        volume.write(b"f", data[: 32 * MIB])
        volume.committer.upload_growing()
        volume.write(b"f", data[32 * MIB :], offset=32 * MIB)
        cut = cut_lengths(volume)
        prepared = volume.publisher.chunks._storer._prepare

        def ends(view: memoryview, uploader: PackUploader) -> Any:
            volume.committer.end_uploads()
            return prepared(view, uploader)

        volume.publisher.chunks._storer._prepare = ends  # type: ignore[assignment, method-assign]
        volume.committer.upload_growing()
        assert 0 < sum(cut) <= STEP, "the part under way is the last one"
        assert volume.committer.upload_growing() == volume.committer.upload_quiet(idle_s=0) == 0
        version = volume.commit().version_id
        assert version
    with ReadingVolume(store, version, tmp_path / "r") as reader:
        assert reader.read(b"f") == data


def test_a_file_that_grows_after_a_pause_is_not_cut_again_from_its_beginning(
    store: ObjectStore, tmp_path: Path
) -> None:
    data = random.Random(3).randbytes(24 * MIB)
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        volume.write(b"f", data[: 16 * MIB])
        assert volume.committer.upload_quiet(idle_s=0) == 16 * MIB
        cut = cut_lengths(volume)
        volume.write(b"f", data[16 * MIB :], offset=16 * MIB)
        volume.committer.upload_quiet(idle_s=0)
        assert 8 * MIB <= sum(cut) <= 10 * MIB
        version = volume.commit().version_id
        assert version
    with ReadingVolume(store, version, tmp_path / "r") as reader:
        assert reader.read(b"f") == data


def test_a_store_that_fails_meanwhile_costs_the_commit_nothing(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = random.Random(4).randbytes(40 * MIB)
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        volume.write(b"f", data[: 36 * MIB])
        volume.committer.upload_growing()
        volume.write(b"f", data[36 * MIB :], offset=36 * MIB)

        def fail(*_: object) -> None:
            raise UnavailableError("no answer")

        with monkeypatch.context() as broken:
            broken.setattr(volume.publisher.chunks._uploader._store, "put", fail)
            broken.setattr(volume.publisher.chunks._uploader._store, "put_if_absent", fail)
            with suppress(UnavailableError):
                volume.committer.upload_growing()
        version = volume.commit().version_id
        assert version
    with ReadingVolume(store, version, tmp_path / "r") as reader:
        assert reader.read(b"f") == data


def test_what_is_known_of_files_is_bounded(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "MOST_FILES", 2)
    monkeypatch.setattr(growing, "MOST_RUNS", 3)
    source = random.Random(5)
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        for number in range(4):
            volume.write(b"f%d" % number, source.randbytes(6 * MIB))
            for _ in range(5):  # elsewhere in staging
                volume.write(b"f%d" % number, source.randbytes(4096), offset=source.randrange(5 * MIB))
        volume.committer.upload_growing()
        volume.committer.upload_quiet(idle_s=0)
        known = volume.committer._early._growing._files
        assert len(known) == 2
        assert all(len(file.seen) == 3 for file in known.values())
        tree, version = volume.tree(), volume.commit().version_id
        assert version
    with ReadingVolume(store, version, tmp_path / "r") as reader:
        assert reader.tree() == tree


sizes = st.integers(1, 3 * MIB)
steps = st.one_of(
    st.tuples(st.just("append"), st.integers(2 * MIB, 9 * MIB), st.booleans()),
    st.tuples(st.just("overwrite"), sizes, st.sampled_from([0.0, 0.1, 0.3, 0.6, 0.9])),
    st.tuples(st.just("truncate"), st.just(0), st.sampled_from([0.0, 0.4, 0.7, 0.99])),
    st.tuples(st.just("extend"), sizes, st.just(0)),
    st.tuples(st.just("again"), st.just(0), st.just(0)),
    st.tuples(st.just("grow"), st.just(0), st.just(0)),
    st.tuples(st.just("quiet"), st.just(0), st.just(0)),
    st.tuples(st.just("commit"), st.just(0), st.just(0)),
)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1 << 32), done=st.lists(steps, min_size=1, max_size=10))
def test_any_history_of_a_file_is_committed_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, seed: int, done: list[tuple[str, int, Any]]
) -> None:
    home = tmp_path_factory.mktemp("v")
    store = made(home)
    source = random.Random(seed)
    with WorkingVolume(store, "v", home / "v") as volume:
        content = bytearray(source.randbytes(14 * MIB))
        for begin, end in ((0, 9 * MIB), (9 * MIB, 14 * MIB)):
            volume.write(b"f", bytes(content[begin:end]), offset=begin)
            volume.committer.upload_growing()
        for what, length, where in done:
            if what in ("append", "overwrite"):
                data = bytes(length) if where is True else source.randbytes(length)
                offset = len(content) if what == "append" else int(where * len(content))
                content[offset : offset + length] = data
                volume.write(b"f", data, offset=offset)
                volume.committer.upload_growing()
            elif what in ("truncate", "extend"):
                size = int(where * len(content)) if what == "truncate" else len(content) + length
                content[size:] = bytes(max(0, size - len(content)))
                volume.engine.setattr(volume.find(b"f"), ME, size=size)
            elif what == "again":
                volume.unlink(b"f")
                volume.write(b"f", bytes(content))
            elif what == "grow":
                volume.committer.upload_growing()
            elif what == "quiet":
                volume.committer.upload_quiet(idle_s=0)
            else:
                volume.commit()
        version = volume.commit().version_id
        rows = rows_of(volume, b"f")
        assert version
    with ReadingVolume(store, version, home / "r") as reader:
        assert blake3(reader.read(b"f")).hexdigest() == blake3(content).hexdigest()
    # Where a long run of zeros ends depends on the buffers that it was read in.
    has_zeros = any(what in ("truncate", "extend") or where is True for what, _, where in done)
    if not has_zeros and "commit" not in {what for what, _, _ in done}:
        with WorkingVolume(store, "whole", home / "whole") as whole:
            whole.write(b"f", bytes(content))
            whole.commit()
            assert rows_of(whole, b"f") == rows


def test_a_draft_that_is_newer_than_doubts_does_not_end_them(store: ObjectStore, tmp_path: Path) -> None:
    data = random.Random(7).randbytes(4 * STEP)
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        early, chunks = volume.committer._early, volume.publisher.chunks
        volume.write(b"f", data)
        volume.committer.upload_growing()
        volume.write(b"f", data, offset=len(data))
        assert volume.committer.upload_growing() > 0
        ino = volume.find(b"f")
        extents = volume.engine.live_extents(ino)[1]
        assert early.find_beginning(ino, extents).until > 0
        chunks._doubts += 1  # as a failed upload does
        early.take_over(FileRows(), chunks.doubts)
        assert early.find_beginning(ino, extents).until == 0
        volume.commit()
        assert volume.tree() == {b"f": data + data}
