"""How fast a directory or a file gets into a version: `files.upload`, beside `cp -a` into a mount
with a commit, and beside the store's own puts.

    python -m benchmarks.transfers [--place directory|seaweedfs] [--mib 2048] [--rounds 3] [--directory DIR]

Sources are Python's standard library, and one incompressible file, both in the kernel's cache. "cp"
is from the start of `cp` to the return of the commit, without mounting. "put" is the file's bytes
in objects as large as packs, as many at once as a commit has on their way (`benchmarks.stores`).
All three in turn within each round; prints every round, and the ratios of the medians.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks import scratch, stores
from benchmarks.store_path import places
from cowfs.base import clock
from cowfs.blocking import RWVolume, Volume
from cowfs.format.store_url import StoreUrl

PIECE_BYTES = 16 << 20


def main() -> None:
    chosen = scratch.options("Speed of uploads.", place="", mib=2048, rounds=3)
    with scratch.directory(chosen.directory) as directory:
        sources = {"standard library": _library(directory), "file": _file(directory, chosen.mib << 20)}
        for name in [chosen.place] if chosen.place else ("directory", "seaweedfs"):
            with places.opened(name, directory / name) as place:
                for kind, source in sources.items():
                    _compare(f"{name}, {kind}", place.store, source, chosen.rounds)


def _compare(title: str, store: StoreUrl, source: Path, rounds: int) -> None:
    ways: dict[str, Callable[[StoreUrl, Path], float]] = {"upload": _upload, "cp": _cp}
    if source.is_file():
        ways["put"] = _put
    took: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, measured in ways.items():
            with stores.fresh(store) as place:
                took[way].append(measured(place, source))
    print(title)
    for way, found in took.items():
        said = ", ".join(f"{each:.2f}" for each in found)
        print(f"  {way:8} {said} s; upload is {median(found) / median(took['upload']):.2f} times as fast", flush=True)


def _upload(store: StoreUrl, source: Path) -> float:
    volume: RWVolume = Volume.new("data", store=str(store)).resolve()
    start_s = clock.monotonic_s()
    volume.files.upload(source, "/")
    return clock.monotonic_s() - start_s


def _cp(store: StoreUrl, source: Path) -> float:
    volume: RWVolume = Volume.new("data", store=str(store)).resolve()
    with tempfile.TemporaryDirectory() as at:
        path = volume.mount(Path(at) / "mount")
        start_s = clock.monotonic_s()
        subprocess.run(["cp", "-a", str(source), str(path)], check=True)
        volume.commit()
        took_s = clock.monotonic_s() - start_s
        volume.unmount()
    return took_s


def _put(store: StoreUrl, source: Path) -> float:
    content = memoryview(source.read_bytes())
    return len(content) / stores.put_speed(store, content)


def _library(directory: Path) -> Path:
    target = directory / "library"
    shutil.copytree(
        sysconfig.get_path("stdlib"),
        target,
        symlinks=True,
        ignore=shutil.ignore_patterns("site-packages", "__pycache__"),
    )
    return target


def _file(directory: Path, size: int) -> Path:
    target = directory / "file"
    with target.open("wb") as file:
        for _ in range(0, size, PIECE_BYTES):
            file.write(os.urandom(min(PIECE_BYTES, size)))
    return target


if __name__ == "__main__":
    main()
