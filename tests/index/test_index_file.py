"""Index files: the same rows as the version, and damage of every byte noticed."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

from cowfs.base.ids import VersionId
from cowfs.errors import CorruptError, CowfsError, InvalidInputError
from cowfs.format.locator import Locator
from cowfs.format.manifest import Manifest, Stats
from cowfs.format.store_url import StoreUrl
from cowfs.index.index_file import IndexFile, write_index_file
from tests.index.bench import Bench, many_files

SEED = 51


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, list[tuple[bytes, int]]]:
    """The file, and the names and inodes of the version's root."""
    bench = Bench(tmp_path)
    index, published = bench.commit(bench.empty(), many_files(2000))
    with index:
        manifest = Manifest("v", (), published.section, Stats(2000, 1, 0, 0, 0), 1)
        locator = Locator(StoreUrl("file", "", "/nowhere"), "v", VersionId(bytes(32)))
        path = tmp_path / "file"
        with path.open("wb") as file:
            write_index_file(index.blocks, locator, manifest, file)
        rows = [(name, row[0]) for name, row in index.directory(2)]
    bench.store.close()
    return path, rows


def listed(path: Path, cache: Path) -> list[tuple[bytes, int]]:
    found = IndexFile(path, cache_dir=cache)
    try:
        return [(name, row[0]) for name, row in found.index.directory(2)]
    finally:
        found.close()


def test_a_file_has_the_rows_of_the_version(made: tuple[Path, list[tuple[bytes, int]]], tmp_path: Path) -> None:
    path, rows = made
    assert len(rows) == 1000
    assert listed(path, tmp_path / "cache") == rows


def test_damage_is_an_error_and_never_other_rows(made: tuple[Path, list[tuple[bytes, int]]], tmp_path: Path) -> None:
    path, rows = made
    data, chosen = path.read_bytes(), random.Random(SEED)
    places = [*range(64), *(chosen.randrange(len(data)) for _ in range(200))]
    for at in places:
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chosen.randrange(8)]) + data[at + 1 :])
        with suppress(CowfsError):
            assert listed(path, tmp_path / "cache") == rows, f"seed {SEED}, byte {at}"
    for length in (0, 7, 12, 100):
        path.write_bytes(data[:length])
        with pytest.raises((CorruptError, InvalidInputError)):
            listed(path, tmp_path / "cache")


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "text").write_text("hello")
    for path in (tmp_path / "fifo", tmp_path / "text", tmp_path):
        with pytest.raises((InvalidInputError, OSError)):
            IndexFile(path, cache_dir=tmp_path / "cache")
    with pytest.raises(FileNotFoundError):
        IndexFile(tmp_path / "nothing", cache_dir=tmp_path / "cache")
