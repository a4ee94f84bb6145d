"""What a file of a resident mount costs: a version of so many files, loaded whole into an engine in
a process of its own.

`python -m benchmarks.resident_memory 250000 1000000` prints the figures of
docs/benchmarks/memory.md. Directories of 1,000 files with names of 12 bytes and one extent each.
Fewer files than 250,000 tell nothing: until then the index's bounded caches fill up. The bound that
tests hold is the engine's (`native/engine/tests/memory.rs`).
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from cowfs.format.manifest import IndexSection
from cowfs.index import open_index
from cowfs.native import Engine
from cowfs.session.residency.residency import Residency
from cowfs.store import open_store
from cowfs.store.packs import PackReader
from tests.index.bench import Bench, many_files


class Loaded(NamedTuple):
    inodes: int
    memory_bytes: int
    elapsed_s: float


def measure(files: int) -> Loaded:
    """Stores the version, then loads it in a fresh process."""
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory))
        index, published = bench.commit(bench.empty(), many_files(files))
        index.close()
        bench.store.close()
        command = [sys.executable, "-m", "benchmarks.resident_memory", directory]
        done = subprocess.run(command, input=pickle.dumps(published.section), stdout=subprocess.PIPE, check=True)
        inodes, memory_bytes, elapsed_s = done.stdout.split()
        return Loaded(int(inodes), int(memory_bytes), float(elapsed_s))


def load(directory: Path, section: IndexSection) -> Loaded:
    store = open_store((directory / "store").as_uri())
    packs = PackReader(store)
    index = open_index(store, packs, section, cache_dir=directory / "cache")
    root = index.inode(1)
    assert root is not None
    engine = Engine.open(root=root, next_ino=index.next_ino, cache_dir=str(directory / "chunks"))
    residency = Residency(engine, index, packs)
    start_s = time.monotonic()
    residency.load_namespace()
    elapsed_s = time.monotonic() - start_s
    index.close()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Loaded(engine.inodes_in_memory(), pages * os.sysconf("SC_PAGE_SIZE"), elapsed_s)


def slope_bytes(few: Loaded, many: Loaded) -> float:
    return (many.memory_bytes - few.memory_bytes) / (many.inodes - few.inodes)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(*load(Path(sys.argv[1]), pickle.loads(sys.stdin.buffer.read())))
    else:
        few, many = (measure(int(count)) for count in sys.argv[1:])
        print(few, many, f"{slope_bytes(few, many):.0f} bytes a file", sep="\n")
