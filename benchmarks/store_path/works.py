"""What is measured, once for each system. Each work begins with a system of its own, fresh and
empty, and cold means: no cache of the system's own, and none of the kernel's.

    commit, write-commit    one incompressible file, from staged to stored, and from the first write on
    read-1, read-4          it, cold, by one reader; four of a quarter each, by four
    mmap                    it, mapped, its pages touched in order, a tensor (4 MiB) after the other
    small                   4,096 bytes each, cold, read in the order of a walk
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from benchmarks import scratch, stores
from benchmarks.store_path.systems import System
from cowfs.base import clock
from cowfs.bench import hardware
from cowfs.format.store_url import StoreUrl
from cowfs.store import open_store

PIECE_BYTES = 1 << 20
TENSOR_BYTES = 4 << 20
READERS = 4
SMALL_BYTES = 4096
PER_DIRECTORY = 100
GETS_AT_ONCE = 8
"""As many as saturate the server here; more are not faster."""

Save = Callable[[str, float], None]
"""Takes a row and a value."""


def large(system: System, size: int, save: Save) -> None:
    """Rows of large files: MB/s and CPU seconds a GiB."""
    gib = size / (1 << 30)
    with system.writable() as mounted:
        start_s = clock.monotonic_s()
        _write(mounted.root / "large", size)
        written_s = clock.monotonic_s()
        for number in range(READERS):
            _write(mounted.root / f"part-{number}", 0)
        before_s = mounted.cpu_s()
        mounted.settle()
        settled_s = clock.monotonic_s()
        save("write-commit", size / 1e6 / (settled_s - start_s))
        if system.has_commits:
            save("commit", size / 1e6 / (settled_s - written_s))
            save("commit-cpu", (mounted.cpu_s() - before_s) / gib)
            save("commit-memory", mounted.peak_bytes() / 1e6)
        for number in range(READERS):
            _write(mounted.root / f"part-{number}", size // READERS)
        mounted.settle()
    for row, paths, job in (
        ("read-1", ["large"], "read"),
        ("read-4", [f"part-{number}" for number in range(READERS)], "read"),
        ("mmap", ["large"], "touch"),
    ):
        with system.cold() as mounted:
            before_s = mounted.cpu_s()
            save(row, size / 1e6 / _in_processes(job, [mounted.root / path for path in paths]))
            if row == "read-1":
                save("read-cpu", (mounted.cpu_s() - before_s) / gib)


def small(system: System, count: int, save: Save) -> None:
    with system.writable() as mounted:
        scratch.small_files(mounted.root / "small", count, SMALL_BYTES, per_directory=PER_DIRECTORY)
        mounted.settle()
    with system.cold() as mounted:
        # Not the root: that of JuiceFS has files without an end.
        save("small", count / _in_processes("walk", [mounted.root / "small"]))


def raw(base: StoreUrl, size: int, save: Save) -> None:
    """The store's own speed: as many bytes in objects of a pack's size, by the library cowfs uses,
    without cowfs. Gets come from the server's disk, as those of a cold reader do."""
    content = memoryview(os.urandom(min(size, 64 << 20)) * max(1, size >> 26))
    save("commit", stores.put_speed(base, content) / 1e6)
    with stores.fresh(base) as place, closing(open_store(str(place), create=True)) as store:
        parts = range(0, size, stores.OBJECT_BYTES)
        for at in parts:
            store.put(f"objects/{at}", content[at : at + stores.OBJECT_BYTES])
        with ThreadPoolExecutor(GETS_AT_ONCE) as pool:
            hardware.drop_caches()
            start_s = clock.monotonic_s()
            list(pool.map(lambda at: len(store.get(f"objects/{at}")), parts))
            speed = size / 1e6 / (clock.monotonic_s() - start_s)
    for row in ("read-1", "read-4", "mmap"):
        save(row, speed)


def _write(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for _ in range(0, size, PIECE_BYTES):
            file.write(os.urandom(PIECE_BYTES))


def _in_processes(job: str, paths: list[Path]) -> float:
    """Each path in a process of its own, as programs are. Seconds from when all are ready, with the
    kernel's caches dropped, to the end of the last."""
    command = [sys.executable, "-m", "benchmarks.store_path.works", job]
    processes = [
        subprocess.Popen([*command, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for path in paths
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    hardware.drop_caches()
    start_s = clock.monotonic_s()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.close()
    for process in processes:
        if process.wait():
            raise RuntimeError(f"{job} failed")
    return clock.monotonic_s() - start_s


def _read(path: Path) -> None:
    buffer = bytearray(PIECE_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def _touch(path: Path) -> None:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        for at in range(0, len(mapped), TENSOR_BYTES):
            bytes(mapped[at : at + TENSOR_BYTES])


def _walk(root: Path) -> None:
    for directory, _, names in os.walk(root):
        for name in names:
            Path(directory, name).read_bytes()


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    {"read": _read, "touch": _touch, "walk": _walk}[sys.argv[1]](Path(sys.argv[2]))
