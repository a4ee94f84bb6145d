"""What encryption costs: bytes in the store, requests and time, beside a plain store.

    python -m benchmarks.encryption [--rounds 3] [--files 20000] [--mib 256] [--save FILE] [--before FILE] [--directory DIR]

    upload       Python's standard library, small files of 100 bytes, and one incompressible file, each a volume of its own
    commit       one file of 1 KiB more in each of them
    commits      20 of them, one after the other, beside the standard library
    read         all of it into an empty directory, with empty caches
    read few     20 files of it, each with empty caches

A plain and an encrypted store in turn within each round, on a SeaweedFS behind a relay that counts.
Prints medians, and encrypted as a multiple of plain. --save keeps the medians; --before names such
a file of another tree, whose multiples are printed beside.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median

from benchmarks import scratch, stores
from benchmarks.store_path import places
from benchmarks.store_path.places import Place
from cowfs.base import clock
from cowfs.blocking import RWVolume, Volume
from cowfs.format.store_url import StoreUrl
from cowfs.store import open_store

SMALL_BYTES = 100
PER_DIRECTORY = 1000
ONE_BYTES = 1024
COMMITS = 20
FEW = 20
KEY = "COWFS_ENCRYPTION_KEY_FILE"
KINDS = ("plain", "encrypted")
MEASURES = ("stored MB", "fetched MB", "requests", "seconds")

Found = dict[str, dict[str, dict[str, float]]]


def main() -> None:
    chosen = scratch.options("Cost of encryption.", rounds=3, files=20_000, mib=256, save="", before="")
    with scratch.directory(chosen.directory) as directory:
        (directory / "key").write_bytes(clock.random_bytes(32))
        sources = _sources(directory, chosen.files, chosen.mib << 20)
        every: dict[str, dict[str, list[dict[str, float]]]] = {}
        with places.opened("counted", directory / "server") as place:
            for _ in range(chosen.rounds):
                for kind in KINDS:
                    with _keyed(directory / "key" if kind == "encrypted" else None), stores.fresh(place.store) as store:
                        for work, found in _Round(place, store, directory).run(sources):
                            every.setdefault(work, {}).setdefault(kind, []).append(found)
    medians: Found = {
        work: {
            kind: {each: median(found[each] for found in rounds) for each in MEASURES} for kind, rounds in kinds.items()
        }
        for work, kinds in every.items()
    }
    if chosen.save:
        Path(chosen.save).write_text(json.dumps(medians))
    _print(medians, json.loads(Path(chosen.before).read_text()) if chosen.before else None)


class _Round:
    """One store, from nothing on."""

    def __init__(self, place: Place, store: StoreUrl, directory: Path) -> None:
        assert place.relayed is not None
        self._relay = place.relayed
        self._store = store
        self._directory = directory
        self._caches = 0
        self._before_bytes = 0

    def run(self, sources: dict[str, Path]) -> Iterator[tuple[str, dict[str, float]]]:
        chance = random.Random(1)
        for name, source in sources.items():
            volume: RWVolume = Volume.new(name, store=str(self._store)).resolve()
            yield f"upload, {name}", self._measured(lambda: volume.files.upload(source, "/data"))  # noqa: B023
        for name in sources:
            volume = Volume.open(name, store=str(self._store)).resolve()
            yield f"commit, {name}", self._measured(lambda: self._commit(volume, "/one"))  # noqa: B023
        volume = Volume.open(next(iter(sources)), store=str(self._store)).resolve()
        yield "commits", self._measured(lambda: self._commit(volume, *(f"/more-{n}" for n in range(COMMITS))))
        for name in sources:
            files = Volume.version(name, store=str(self._store)).files
            yield f"read, {name}", self._measured(lambda: files.download("/data", self._directory / "read"))  # noqa: B023
            shutil.rmtree(self._directory / "read") if (self._directory / "read").is_dir() else (
                self._directory / "read"
            ).unlink()
        for name, source in sources.items():
            if source.is_dir():
                paths = sorted(str(each.relative_to(source)) for each in source.rglob("*") if each.is_file())
                some = chance.sample(paths, FEW)
                yield f"read few, {name}", self._measured(lambda: self._read(name, some))  # noqa: B023

    def _commit(self, volume: RWVolume, *paths: str) -> None:
        for path in paths:
            one = self._directory / "one"
            one.write_bytes(clock.random_bytes(ONE_BYTES))
            volume.files.upload(one, path)

    def _read(self, name: str, paths: list[str]) -> None:
        for path in paths:
            self._forget()
            Volume.version(name, store=str(self._store)).files.read(f"/data/{path}")

    def _measured(self, work: Callable[[], object]) -> dict[str, float]:
        self._forget()
        self._relay.seen()
        start_s = clock.monotonic_s()
        work()
        seconds = clock.monotonic_s() - start_s
        seen = self._relay.seen()
        before_bytes, self._before_bytes = self._before_bytes, _stored_bytes(self._store)
        return {
            "stored MB": (self._before_bytes - before_bytes) / 1e6,
            "fetched MB": seen["received_bytes"] / 1e6,
            "requests": seen["requests"],
            "seconds": seconds,
        }

    def _forget(self) -> None:
        """Caches are empty from now on."""
        self._caches += 1
        os.environ["COWFS_CACHE_DIR"] = str(
            self._directory / f"cache-{self._store.path.rsplit('/', 1)[-1]}-{self._caches}"
        )


def _sources(directory: Path, files: int, size: int) -> dict[str, Path]:
    library = directory / "library"
    shutil.copytree(
        sysconfig.get_path("stdlib"), library, ignore=shutil.ignore_patterns("site-packages", "__pycache__")
    )
    scratch.small_files(directory / "small", files, SMALL_BYTES, per_directory=PER_DIRECTORY)
    (directory / "file").write_bytes(clock.random_bytes(size))
    return {"library": library, "small": directory / "small", "file": directory / "file"}


@contextmanager
def _keyed(path: Path | None) -> Iterator[None]:
    os.environ.pop(KEY, None)
    if path is not None:
        os.environ[KEY] = str(path)
    try:
        yield
    finally:
        os.environ.pop(KEY, None)


def _stored_bytes(place: StoreUrl) -> int:
    with closing(open_store(str(place))) as store:
        return sum(found.size for found in store.list(""))


def _print(found: Found, before: Found | None) -> None:
    for work, kinds in found.items():
        plain, encrypted = (kinds[kind] for kind in KINDS)
        cells = []
        for each in MEASURES:
            ratio = f"{encrypted[each] / plain[each]:.2f}" if plain[each] > 0 else "-"
            if before is not None and before[work]["plain"][each] > 0:
                ratio = f"{before[work]['encrypted'][each] / before[work]['plain'][each]:.2f} → {ratio}"
            cells.append(f"{each}: {plain[each]:.4g}, {encrypted[each]:.4g} ({ratio})")
        print(f"{work:18}", "; ".join(cells), flush=True)


if __name__ == "__main__":
    main()
