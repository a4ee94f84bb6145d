"""What is fetched of a version, and that nothing is fetched twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from cowfs.base import clock
from cowfs.store import ObjectStore
from tests.index.bench import WatchedStore
from tests.version.working_volume import ReadingVolume, WorkingVolume

pytestmark = pytest.mark.quick

FILE_BYTES = 8 << 20


def test_what_has_come_since_it_was_found_absent_is_not_fetched_again(store: ObjectStore, tmp_path: Path) -> None:
    """Between a reader's miss and its request another request may have ended that brought the
    chunk."""
    with WorkingVolume(store, "data", tmp_path / "writer") as volume:
        volume.write(b"large", clock.random_bytes(FILE_BYTES))
        version = volume.commit().version_id
    assert version is not None
    watched = WatchedStore(store)
    with ReadingVolume(watched, version, tmp_path / "reader") as reader:
        assert len(reader.files.read(b"large", 0, 1)) == 1
        absent = reader.engine.absent_chunks(reader.files.stat(b"large").ino, 0, FILE_BYTES)
        assert absent, "a byte needs one chunk of several"
        reader.residency.fetch(absent)
        before = len(watched.reads)
        reader.residency.fetch(absent)
        assert watched.reads[before:] == []
    assert before > 0
