"""What comparing, merging and collecting cost on histories that are large.

    python -m benchmarks.history diff    [--files 1000000] [--changed 10]
    python -m benchmarks.history merge   [--files 100000] [--forks 8] [--own 100]
    python -m benchmarks.history collect [--files 10000] [--versions 1000] [--changed 10] [--kept 10]
                                         [--directory DIR]

diff: `cowfs diff` of two versions that differ in a few files, over S3, with an empty cache and
again. Prints times, requests and bytes that were fetched.

merge: forks of one volume, each of which has files of its own in a directory of its own, brought
together into one version. Prints its time, that of a commit of one small file to the same volume,
and the bytes that the store has grown by.

collect: versions that each change some files; then all but the last are pruned, and a collection is
planned, and applied, in a new process. Prints the time, the requests by method, and how much memory
that process has taken on at most, for each live chunk. Files of the store are said to be two hours
old, since what is younger stays.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

from benchmarks import scratch
from benchmarks.processes import status_bytes
from benchmarks.store_path import places
from cowfs.base import clock
from cowfs.blocking import RWVolume, Store, Volume
from cowfs.maintain.collect.collecting import Collection
from cowfs.maintain.collect.planning import Survey
from cowfs.store import open_store
from cowfs.store.refs.holder import current_holder
from tests.faulty_store import FaultyStore
from tests.maintain.stores import age

PER_DIRECTORY = 1000
SMALL_BYTES = 1000
TINY_BYTES = 40


def main() -> None:
    what = sys.argv.pop(1)
    if what == "collect-here":
        _collect_here(Path(sys.argv[1]))
        return
    if what == "diff":
        chosen = scratch.options("Comparing of versions.", files=1_000_000, changed=10)
    elif what == "merge":
        chosen = scratch.options("Merging of forks.", files=100_000, forks=8, own=100)
    else:
        chosen = scratch.options("Collecting.", files=10_000, versions=1000, changed=10, kept=10)
    with scratch.directory(chosen.directory) as directory:
        os.environ["COWFS_STORE"] = str(directory / "store")
        if what == "diff":
            _compare(directory, chosen.files, chosen.changed)
        elif what == "merge":
            _merge(directory, chosen.files, chosen.forks, chosen.own)
        else:
            _collect(directory, chosen.files, chosen.versions, chosen.changed, chosen.kept)


def _compare(directory: Path, files: int, changed: int) -> None:
    with places.opened("counted", directory / "server") as place:
        assert place.relayed is not None
        os.environ["COWFS_STORE"] = str(place.store)
        scratch.small_files(directory / "base", files, TINY_BYTES, per_directory=PER_DIRECTORY)
        old = Store().import_(directory / "base", "data")
        for number in range(files // changed // 2, files, files // changed):
            name = scratch.small_file(Path(), number, PER_DIRECTORY)
            (directory / "changed" / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / "changed" / name).write_bytes(b"changed")
        volume: RWVolume = Volume.open("data").resolve()
        volume.files.upload(directory / "changed", "/")
        new = Volume.version("data")
        os.environ["COWFS_CACHE_DIR"] = str(directory / "empty")
        for row in ("cold", "warm"):
            place.relayed.seen()
            start_s = clock.monotonic_s()
            command = [sys.executable, "-m", "cowfs.cli", "diff", old.locator, new.locator, "--name-status"]
            found = subprocess.run(command, check=True, capture_output=True, text=True)
            took_s = clock.monotonic_s() - start_s
            seen = place.relayed.seen()
            assert len(found.stdout.splitlines()) == changed, found.stdout
            print(
                f"diff of {files:,} files, {row}: {took_s:.2f} s, {seen['requests']} requests, {seen['depth']} deep, "
                f"{seen['received_bytes'] / 1e6:.2f} MB fetched",
                flush=True,
            )


def _merge(directory: Path, files: int, forks: int, own: int) -> None:
    _fill(directory / "base", files)
    base = Store().import_(directory / "base", "data")
    branches = []
    for number in range(forks):
        _fill(directory / f"own-{number}", own)
        fork: RWVolume = base.fork(f"fork-{number}").resolve()
        fork.files.upload(directory / f"own-{number}", f"/own-{number}")
        branches.append(Volume.version(f"fork-{number}"))
    before = _stored_bytes(directory)
    start_s = clock.monotonic_s()
    report = Store().merge("data", branches)
    took_s = clock.monotonic_s() - start_s
    grown = _stored_bytes(directory) - before
    assert report.is_new
    (directory / "one").write_bytes(b"x")
    volume: RWVolume = Volume.open("data").resolve()
    start_s = clock.monotonic_s()
    volume.files.upload(directory / "one", "/")
    commit_s = clock.monotonic_s() - start_s
    print(
        f"merge of {forks} forks of {files:,} files: {took_s:.2f} s, {grown / 1e6:.2f} MB; a commit: {commit_s:.2f} s"
    )


def _collect(directory: Path, files: int, versions: int, changed: int, kept: int) -> None:
    _fill(directory / "base", files)
    Store().import_(directory / "base", "data")
    chance = random.Random(1)
    start_s = clock.monotonic_s()
    with Volume.open("data").resolve() as mounted:
        for _ in range(versions - 1):
            for number in chance.sample(range(files), changed):
                scratch.small_file(mounted.path, number, PER_DIRECTORY).write_bytes(chance.randbytes(SMALL_BYTES))
            mounted.commit()
    print(f"{versions} versions made in {clock.monotonic_s() - start_s:.0f} s", flush=True)
    start_s = clock.monotonic_s()
    plan = Store().plan_prune("data", last=kept)
    Store().prune(plan)
    print(f"prune: {clock.monotonic_s() - start_s:.2f} s", flush=True)
    age(directory)
    command = [sys.executable, "-m", "benchmarks.history", "collect-here", str(directory)]
    subprocess.run(command, check=True)


def _collect_here(directory: Path) -> None:
    with closing(open_store(os.environ["COWFS_STORE"])) as objects:
        store = FaultyStore(objects)
        before = status_bytes(os.getpid(), "VmRSS")
        start_s = clock.monotonic_s()
        found = Survey(store, directory / "collector")
        plan = found.plan()
        plan_s = clock.monotonic_s() - start_s
        planned = Counter(method for method, _ in store.calls)
        outcome = Collection(found, current_holder("benchmark"), wait_s=0.0).apply(plan)
        took_s = clock.monotonic_s() - start_s
        asked = Counter(method for method, _ in store.calls)
        grown = status_bytes(os.getpid(), "VmHWM") - before
    print(f"plan: {plan_s:.2f} s, {dict(planned)}; {plan.versions} versions and {found.marker.pages_read} pages read")
    print(f"apply: {took_s - plan_s:.2f} s, {dict(asked - planned)}; {len(outcome.deleted)} objects deleted")
    live = found.marker.live.count
    print(f"memory: {grown / 1e6:.1f} MB, {grown / live:.0f} bytes for each of {live:,} live blobs")


def _fill(directory: Path, files: int) -> None:
    scratch.small_files(directory, files, SMALL_BYTES, per_directory=PER_DIRECTORY)


def _stored_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in (directory / "store").rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
