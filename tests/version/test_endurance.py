"""What a long life costs: threads, descriptors and memory after many commits, and while large files
are committed."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cowfs.index import open_index
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader
from cowfs.version.history import open_version
from cowfs.version.publish.recut import PIECE_BYTES
from tests.faulty_store import Fault, FaultyStore
from tests.version.working_volume import ReadingVolume, WorkingVolume

ROOT = Path(__file__).parents[2]
MIB = 1 << 20


def open_descriptors() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return sorted(found)


@pytest.mark.slow
def test_two_hundred_commits_leave_nothing_behind(store: ObjectStore, tmp_path: Path) -> None:
    """The last of them adds as little to the store as the first ones, and the version reads
    back."""
    seed = random.Random(7)
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        expected: dict[bytes, bytes | None] = {}

        def once(number: int) -> int:
            path = b"f%d" % (number % 60)
            data = seed.randbytes(3000)
            expected[path] = data
            volume.write(path, data)
            if number % 3 == 0:
                volume.committer.upload_quiet(idle_s=0)
            before = sum(info.size for info in store.list("packs/"))
            volume.commit(str(number))
            return sum(info.size for info in store.list("packs/")) - before

        for number in range(20):
            once(number)
        gc.collect()
        threads, descriptors = threading.active_count(), open_descriptors()
        added = [once(number) for number in range(20, 200)]
        gc.collect()
        assert threading.active_count() <= threads + 4, [thread.name for thread in threading.enumerate()]
        assert len(open_descriptors()) <= len(descriptors) + 4, open_descriptors()
        assert max(added) < 400_000
        assert volume.committer.base.manifest is not None
        section = volume.committer.base.manifest.index
        assert len(section.packs) <= 70
        assert len(section.catalogues) <= 40
        version = volume.committer.base.version_id
    assert version is not None
    with ReadingVolume(store, version, tmp_path / "r") as reader:
        assert reader.tree() == expected


def test_a_log_has_as_many_rows_as_chunks_however_often_it_was_appended_to(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        text, version = b"", None
        for number in range(30):
            for turn in range(40):
                line = b"%08d" % (number * 40 + turn)
                volume.write(b"log", line, len(text))
                text += line
                volume.write(b"other", line)  # so that the lines of the log do not lie one behind the other
            if number % 3 == 0:
                volume.committer.upload_quiet(idle_s=0)
            if number == 15:
                volume.engine.trim_staging(0)
            version = volume.commit().version_id
        assert volume.read(b"log") == text
        ino = volume.find(b"log")
    assert version is not None
    section = open_version(store, version).index
    index = open_index(store, PackReader(store), section, cache_dir=tmp_path / "r")
    rows, _ = index.content(ino)
    index.close()
    assert len(rows) == 1, rows
    with ReadingVolume(store, version, tmp_path / "r") as reader:
        assert reader.read(b"log") == text


def test_a_file_that_is_changed_in_many_places_does_not_fall_to_pieces(store: ObjectStore, tmp_path: Path) -> None:
    """A database, say, whose staged bytes and chunks are on this machine no more when the next page
    is written: each page would stay a chunk of its own, for every reader."""
    size, page = 4 * MIB, 4096
    chance = random.Random(7)
    content = bytearray(chance.randbytes(size))
    counts: list[int] = []
    version = None
    for number in range(40):
        with WorkingVolume(store, "v", tmp_path / f"machine{number}") as volume:
            if number == 0:
                volume.write(b"large", bytes(content))
            for _ in range(40 if number else 0):
                at = chance.randrange(size - page)
                content[at : at + page] = chance.randbytes(page)
                volume.write(b"large", bytes(content[at : at + page]), at)
            version = volume.commit().version_id
            rows, _ = volume.committer._publisher.index.content(volume.find(b"large"))
            counts.append(len(rows))
    print(f"{counts} rows")
    assert version is not None
    with ReadingVolume(store, version, tmp_path / "r") as reader:
        assert reader.read(b"large") == content
    assert max(counts) < 1.5 * size / PIECE_BYTES


def test_failed_commits_leave_nothing_behind(store: ObjectStore, tmp_path: Path) -> None:
    faulty = FaultyStore(store)
    with WorkingVolume(faulty, "v", tmp_path / "v") as volume:

        def fail(key_part: str) -> None:
            volume.write(b"f", random.Random(key_part).randbytes(10_000))
            faulty.inject(Fault.FAIL, "put", key_part=key_part)
            with pytest.raises(Exception, match="injected"):
                volume.commit()

        for _ in range(3):
            fail("versions/")
            fail("packs/")
        gc.collect()
        threads, descriptors = threading.active_count(), open_descriptors()
        for _ in range(30):
            fail("versions/")
            fail("packs/")
        gc.collect()
        assert threading.active_count() <= threads + 4
        assert len(open_descriptors()) <= len(descriptors) + 4
        volume.commit()


LARGE_FILE = """
import os, random, resource, sys, time
from pathlib import Path
from cowfs.store import initialize, open_store
from tests.version.working_volume import ME, WorkingVolume

class SlowStore:
    # Packs wait for their upload, as many as may.
    def __init__(self, store):
        self._store = store
    def __getattr__(self, name):
        return getattr(self._store, name)
    def put(self, key, data):
        if key.startswith("packs/"):
            time.sleep(1)
        self._store.put(key, data)

home, size = Path(sys.argv[1]), int(sys.argv[2])
store = open_store((home / "store").as_uri(), create=True)
initialize(store)
with WorkingVolume(SlowStore(store), "v", home / "v", max_uploads=50) as volume:
    seed = random.Random(1)
    _, fh = volume.call(volume.engine.create, 1, b"large", 0o100644, os.O_WRONLY, ME)
    for offset in range(0, size, 1 << 20):
        volume.engine.write(fh, offset, seed.randbytes(1 << 20))
    volume.engine.release(fh)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    volume.commit()
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def commit_large(home: Path, size_bytes: int) -> int:
    """MiB by which the process grows while it commits one file of this size."""
    done = subprocess.run(
        [sys.executable, "-c", LARGE_FILE, str(home), str(size_bytes)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


@pytest.mark.slow
def test_memory_of_a_commit_does_not_follow_the_size_of_a_file(tmp_path: Path) -> None:
    """Bytes in flight: pieces that wait to be hashed and packs that wait to be uploaded, both
    bounded."""
    grown_mib = commit_large(tmp_path, 1536 * MIB)
    print(f"grew by {grown_mib} MiB")
    assert grown_mib < 500
