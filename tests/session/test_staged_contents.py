"""Large staged files are read into buffers: the rows are those of any other way, and no check is
lost."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cowfs.native.chunks import LayerExtent
from cowfs.session.growing import Begun
from cowfs.session.staged_contents import _large_ranges
from cowfs.store import ObjectStore, initialize, open_store
from tests.version.working_volume import ReadingVolume, WorkingVolume

MIB = 1 << 20


def extents_of(volume: WorkingVolume, path: bytes) -> Sequence[LayerExtent]:
    return volume.engine.live_extents(volume.find(path))[1]


def settled(rows: list[Any]) -> list[Any]:
    """Without the first chunk behind each hole: where a long run of zeros ends depends on the
    buffers that it is read in."""
    ends = {0, *(row[0] + row[1] for row in rows)}
    return [row for row in rows if row[0] in ends]


@settings(max_examples=6, deadline=None)
@example(seed=101, parts=[(418429, "zeros"), (1, "data")])
@given(
    seed=st.integers(0, 1 << 32),
    parts=st.lists(
        st.tuples(st.integers(1, 3 * MIB), st.sampled_from(["data", "zeros", "hole"])), min_size=1, max_size=4
    ),
)
def test_the_rows_are_those_of_the_other_way(
    tmp_path_factory: pytest.TempPathFactory, seed: int, parts: list[tuple[int, str]]
) -> None:
    home = tmp_path_factory.mktemp("v")
    store = open_store((home / "store").as_uri(), create=True)
    initialize(store)
    source = random.Random(seed)
    with WorkingVolume(store, "v", home / "v") as volume:
        volume.write(b"f", source.randbytes(9 * MIB))  # more than a buffer, in several extents
        offset = 9 * MIB
        for length, kind in parts:
            if kind != "hole":
                volume.write(b"f", source.randbytes(length) if kind == "data" else bytes(length), offset=offset)
            offset += length
        volume.write(b"f", b"inside of what was written", offset=source.randrange(9 * MIB))
        extents, ino = extents_of(volume, b"f"), volume.find(b"f")
        contents, publisher = volume.committer._contents, volume.publisher
        assert _large_ranges(extents) is not None
        with publisher.storing():
            found = contents.rows(ino, extents, Begun())
            assert settled(found) == settled(publisher.rows(ino, extents, contents._read))
        publisher.chunks.rest()
        assert publisher.chunks._storer._buffers._made == 0, "an idle mount keeps none"


def test_files_that_keep_chunks_or_have_many_holes_go_the_other_way(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"kept", random.Random(1).randbytes(4 * MIB))
        volume.commit()
        volume.write(b"kept", b"changed", offset=MIB)
        for number in range(8):
            volume.write(b"sparse", b"data", offset=number * MIB)
        assert _large_ranges(extents_of(volume, b"kept")) is None
        assert _large_ranges(extents_of(volume, b"sparse")) is None


def test_a_damaged_staged_byte_is_refused_and_the_file_can_be_written_again(store: ObjectStore, tmp_path: Path) -> None:
    data = random.Random(2).randbytes(20 * MIB)
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"f", data)
        extents = extents_of(volume, b"f")
        damaged = extents[0].segment_offset + 13 * MIB
        [segment] = (tmp_path / "v").rglob(f"{extents[0].segment:016x}.seg")
        with segment.open("r+b") as file:
            file.seek(damaged)
            byte = file.read(1)[0]
            file.seek(damaged)
            file.write(bytes([byte ^ 1]))
        with pytest.raises(OSError, match="Input/output error"), volume.publisher.storing():
            volume.committer._contents.rows(volume.find(b"f"), extents, Begun())
        assert volume.publisher.chunks._storer._buffers._made == 0
        volume.write(b"f", data, offset=0)
        base = volume.commit()
    assert base.version_id is not None
    with ReadingVolume(store, base.version_id, tmp_path / "r") as reader:
        assert reader.read(b"f") == data
