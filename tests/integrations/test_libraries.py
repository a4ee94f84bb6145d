"""What data programs do with cowfs:// URLs and locators: pandas, pyarrow, duckdb, datasets, zarr,
universal-pathlib."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import numpy
import pandas
import pyarrow.dataset
import pyarrow.parquet
import pytest
import zarr
from upath import UPath

from cowfs.blocking import ROVolume, Volume
from cowfs.integrations.fsspec import CowfsFileSystem

pytestmark = pytest.mark.usefixtures("place")

FRAME = pandas.DataFrame({"number": range(1000), "kind": ["even", "odd"] * 500})


@pytest.fixture
def fs(place: Path) -> CowfsFileSystem:
    made = CowfsFileSystem(skip_instance_cache=True)
    made.mkdir("data")
    return made


@pytest.fixture
def version(fs: CowfsFileSystem) -> ROVolume:
    """A Parquet data set, written as one version."""
    with fs.transaction:
        pyarrow.dataset.write_dataset(
            pyarrow.Table.from_pandas(FRAME),
            "data/set",
            format="parquet",
            partitioning=["kind"],
            partitioning_flavor="hive",
            filesystem=fs,
            existing_data_behavior="overwrite_or_ignore",
        )
    assert len(Volume.open("data").resolve().history()) == 1
    return Volume.version("data")


def test_pandas(fs: CowfsFileSystem, version: ROVolume) -> None:
    found = pandas.read_parquet(f"{version.locator}/set")
    assert sorted(found["number"]) == list(range(1000))
    FRAME.to_parquet("cowfs://data/frame.parquet")
    assert pandas.read_parquet("cowfs://data/frame.parquet").equals(FRAME)
    FRAME.to_csv("cowfs://data/frame.csv", index=False)
    assert pandas.read_csv("cowfs://data/frame.csv").equals(FRAME)


def test_pyarrow(fs: CowfsFileSystem, version: ROVolume) -> None:
    found = pyarrow.dataset.dataset(f"data@{version.id}/set", filesystem=fs, partitioning="hive")
    assert found.count_rows() == 1000
    assert found.to_table(filter=pyarrow.dataset.field("kind") == "odd").num_rows == 500


def test_duckdb(fs: CowfsFileSystem, version: ROVolume) -> None:
    connection: Any = duckdb.connect()
    connection.register_filesystem(fs)
    query = "select sum(number) from read_parquet('cowfs://data/set/*/*.parquet', hive_partitioning=true) where kind = 'odd'"
    assert connection.sql(query).fetchall() == [(sum(range(1, 1000, 2)),)]


def test_datasets(fs: CowfsFileSystem, version: ROVolume, place: Path) -> None:
    import datasets  # for two seconds: not by each process that collects the tests

    files = [f"cowfs://data@{version.id}/set/kind={kind}/*.parquet" for kind in ("even", "odd")]
    found: Any = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(place / "cache"))
    assert sorted(found["number"]) == list(range(1000))
    streamed: Any = datasets.load_dataset(
        "parquet", data_files="cowfs://data/set/*/*.parquet", split="train", streaming=True
    )
    assert sorted(row["number"] for row in streamed) == list(range(1000))
    elsewhere: Any = datasets.load_dataset(
        "parquet",
        data_files=f"cowfs://data@{version.id}/set/*/*.parquet",
        split="train",
        streaming=True,
        storage_options={"store": str(place / "store")},
    )
    assert sum(1 for _ in elsewhere) == 1000
    found.to_parquet("cowfs://data/copy.parquet")
    assert pandas.read_parquet("cowfs://data/copy.parquet")["number"].sum() == sum(range(1000))


def test_zarr(fs: CowfsFileSystem) -> None:
    array = numpy.arange(10_000).reshape(100, 100)
    with fs.transaction:
        for path, content in _stored(array).items():
            fs.pipe(f"data/array/{path}", content)
    found: Any = zarr.open(f"{Volume.version('data').locator}/array", mode="r")
    assert (found[:] == array).all()


def _stored(array: Any) -> dict[str, bytes]:
    """A zarr array, as files."""
    memory = fsspec.filesystem("memory")
    zarr.save("memory://array", array)
    return {path.removeprefix("/array/"): memory.cat(path) for path in memory.find("/array")}


def test_universal_pathlib(version: ROVolume) -> None:
    root = UPath(version.locator)
    assert sorted(each.name for each in (root / "set").iterdir()) == ["kind=even", "kind=odd"]
    path = next((root / "set" / "kind=odd").iterdir())
    assert path.read_bytes()[:4] == b"PAR1"
    assert (path.is_file(), (root / "none").exists()) == (True, False)
    (UPath("cowfs://data") / "note").write_text("written")
    assert UPath("cowfs://data/note").read_text() == "written"


def test_universal_pathlib_in_a_process_that_has_not_used_fsspec(version: ROVolume) -> None:
    """It keeps what it has guessed of a protocol."""
    program = f"""
import fsspec
from upath import UPath
from upath.registry import register_implementation

fsspec.register_implementation("cowfs+file", "cowfs.integrations.fsspec.CowfsFileSystem", clobber=True)
register_implementation("cowfs+file", "cowfs.integrations.upath.CowfsPath", clobber=True)
print((UPath({version.locator!r}) / "set").is_dir())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.stdout == "True\n", done.stderr


def test_a_universal_path_as_text_opens_the_same_file(version: ROVolume, place: Path) -> None:
    path = UPath(version.locator) / "a b%20?#.txt"
    assert str(path) == path.as_uri() == f"{version.locator}/a%20b%2520%3F%23.txt"
    assert UPath(str(path)) == path
    assert (str(path.parent), str(path.relative_to(path.parent))) == (version.locator, path.name)

    there = UPath("cowfs://there", store=str(place / "other"))
    there.mkdir()
    (there / "a b").write_bytes(b"text")
    assert [UPath(str(each)).read_bytes() for each in there.iterdir()] == [b"text"]
    assert str(UPath("cowfs://data/note")) == "cowfs://data/note"
