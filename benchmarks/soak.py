"""A soak: many processes of mixed work on one mount, a commit a second, and whether what the daemon
holds stays flat.

    python -m benchmarks.soak [--minutes 20] [--processes 64] [--warm-minutes 5] [--directory DIR]

Half of the processes write (whole files replaced by rename, appends, small overwrites of a large
file, removals, attributes), a quarter read and check what they read, a quarter walk and stat. A
sample every second: resident memory, descriptors (but for chunk files that the cache keeps open:
native/cache bounds them), threads, bytes of staging and of the journal.

Of each, the lower quartile of the last third of the samples is compared with that of the first
third (both after the warm minutes): what is left when little is on its way. It is flat if it has
not grown by more than its slack. Prints a table and one verdict a line; exit status 1 if anything
grows, a read is wrong, or a commit fails. Everything stays below DIR, which is removed once the
volume is unmounted.

Not in CI: it takes its time.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, fields
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import quantiles

from benchmarks import scratch
from benchmarks.processes import mounted, status_bytes
from cowfs import blocking
from cowfs.errors import CowfsError

SLACK = {"resident_mb": 16.0, "descriptors": 8.0, "threads": 32.0, "staging_mb": 68.0, "journal_mb": 96.0}
"""What may come and go: a trim's worth of pages, threads that sync (native/lane/src/syncing.rs),
one segment, a checkpoint's worth of journal."""
SIZES = (0, 100, 5_000, 60_000, 300_000)
LARGE_BYTES = 4 << 20
REPEATS = 16
PAUSE_S = 0.05
JOIN_S = 120.0


@dataclass(frozen=True)
class Sample:
    resident_mb: float
    descriptors: float
    threads: float
    staging_mb: float
    journal_mb: float


def main() -> int:
    chosen = scratch.options(
        "Many processes, a commit a second: does anything grow?", minutes=20.0, warm_minutes=5.0, processes=64
    )
    with scratch.directory(chosen.directory) as directory:
        return soak(directory, chosen.minutes * 60, chosen.warm_minutes * 60, chosen.processes)


def soak(directory: Path, duration_s: float, warm_s: float, processes: int) -> int:
    volume = blocking.Volume.new("soak", store=(directory / "store").as_uri())
    path = Path(volume.mount(directory / "mount", cache_size=512 << 20))
    entry = mounted(path)
    assert entry.working_copy is not None
    wrong: multiprocessing.Queue[str] = multiprocessing.Queue()
    try:
        with _working(path, processes, wrong):
            samples, commits_s = _commit_and_sample(volume, entry.pid, Path(entry.working_copy), duration_s, wrong)
        volume.commit(message="the last")
    finally:
        volume.unmount()
    return report(samples, commits_s, warm_s, [wrong.get() for _ in range(wrong.qsize())])


@contextmanager
def _working(path: Path, processes: int, wrong: multiprocessing.Queue[str]) -> Iterator[None]:
    """The crew at work; all of it has ended afterwards."""
    stop = multiprocessing.Event()
    kinds = [write, write, read, walk]
    crew = [
        multiprocessing.Process(target=kinds[number % 4], args=(path, number, processes, stop, wrong))
        for number in range(processes)
    ]
    for process in crew:
        process.start()
    try:
        yield
    finally:
        stop.set()
        for process in crew:
            process.join(JOIN_S)
            if process.is_alive():
                wrong.put(f"process {process.pid} did not end within {JOIN_S:.0f} s")
                process.kill()
                process.join()


def _commit_and_sample(
    volume: blocking.RWVolume, pid: int, working_copy: Path, duration_s: float, wrong: multiprocessing.Queue[str]
) -> tuple[list[tuple[float, Sample]], list[float]]:
    samples, commits_s = [], []
    begun_s = time.monotonic()
    while (now_s := time.monotonic()) - begun_s < duration_s:
        try:
            volume.commit(message="soak")
        except CowfsError as error:
            wrong.put(f"a commit failed after {now_s - begun_s:.0f} s: {error}")
            break
        commits_s.append(time.monotonic() - now_s)
        samples.append((now_s - begun_s, sample(pid, working_copy)))
        time.sleep(max(0.0, 1.0 - (time.monotonic() - now_s)))
    return samples, commits_s


def sample(pid: int, working_copy: Path) -> Sample:
    return Sample(
        resident_mb=status_bytes(pid, "VmRSS") / (1 << 20),
        descriptors=float(sum(not is_cached_chunk(target) for target in _descriptors(pid))),
        threads=float(len(os.listdir(f"/proc/{pid}/task"))),
        staging_mb=_megabytes(working_copy / "staging"),
        journal_mb=_megabytes(working_copy / "journal"),
    )


def _descriptors(pid: int) -> Iterator[str]:
    for name in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            yield os.readlink(f"/proc/{pid}/fd/{name}")


def is_cached_chunk(target: str) -> bool:
    """Whether a descriptor's target is a file of the chunk cache: .../<2 hex>/<64 hex>, perhaps
    unlinked since."""
    return re.search(r"/[0-9a-f]{2}/[0-9a-f]{64}( \(deleted\))?$", target) is not None


def _megabytes(directory: Path) -> float:
    total = 0
    for name in os.listdir(directory):
        with suppress(FileNotFoundError):
            total += (directory / name).stat().st_blocks * 512
    return total / 1e6


# -- the crew


def write(path: Path, number: int, processes: int, stop: Event, wrong: multiprocessing.Queue[str]) -> None:
    rnd, mine = random.Random(number), path / f"w{number}"
    mine.mkdir()
    (mine / "large").write_bytes(content(rnd, LARGE_BYTES))  # whole from the start, so that it does not grow
    for turn in range(sys.maxsize):
        if stop.wait(PAUSE_S):
            return
        new = mine / ".new"
        new.write_bytes(body(content(rnd, rnd.choice(SIZES))))
        if rnd.random() < 0.1:
            with new.open("rb") as file:
                os.fsync(file.fileno())
        new.rename(mine / f"f{turn % 40}")
        with (mine / "log").open("ab") as log:
            log.write(b"%08d" % turn)
        if turn % 5 == 0:
            os.setxattr(mine / f"f{turn % 40}", "user.turn", str(turn).encode())
        if turn % 7 == 0:
            (mine / f"f{rnd.randrange(40)}").unlink(missing_ok=True)
        if turn % 11 == 0:
            fd = os.open(mine / "large", os.O_RDWR)
            os.pwrite(fd, rnd.randbytes(4096), rnd.randrange(LARGE_BYTES - 4096))
            os.close(fd)


def read(path: Path, number: int, processes: int, stop: Event, wrong: multiprocessing.Queue[str]) -> None:
    rnd = random.Random(number)
    while not stop.wait(PAUSE_S):
        file = path / f"w{_writer(rnd, processes)}" / f"f{rnd.randrange(40)}"
        with suppress(FileNotFoundError):
            if not is_whole(file.read_bytes()):
                wrong.put(f"{file} is torn")


def walk(path: Path, number: int, processes: int, stop: Event, wrong: multiprocessing.Queue[str]) -> None:
    rnd = random.Random(number)
    while not stop.wait(PAUSE_S):
        with suppress(FileNotFoundError):
            for file in os.scandir(path / f"w{_writer(rnd, processes)}"):
                with suppress(FileNotFoundError):
                    file.stat()


def _writer(rnd: random.Random, processes: int) -> int:
    return rnd.choice([number for number in range(processes) if number % 4 < 2])


def content(rnd: random.Random, size: int) -> bytes:
    """A sixteenth of it is new: the store keeps every version, and no disk is to be filled."""
    return (rnd.randbytes(size // REPEATS + 1) * REPEATS)[:size]


def body(data: bytes) -> bytes:
    return hashlib.sha256(data).digest() + data


def is_whole(data: bytes) -> bool:
    return hashlib.sha256(data[32:]).digest() == data[:32]


# -- the verdict


def report(
    samples: Sequence[tuple[float, Sample]], commits_s: Sequence[float], warm_s: float, wrong: Sequence[str]
) -> int:
    names = [field.name for field in fields(Sample)]
    print("seconds", *names, sep="\t")
    for at_s, found in samples[:: max(1, len(samples) // 20)]:
        print(f"{at_s:.0f}", *(f"{value:.1f}" for value in astuple(found)), sep="\t")
    print(f"{len(commits_s)} commits, the slowest {max(commits_s):.1f} s")
    for problem in wrong[:10]:
        print(problem)
    warm = [found for at_s, found in samples if at_s >= warm_s]
    growing = False
    for name in names:
        before, after = ends([getattr(found, name) for found in warm])
        grows = after > before + SLACK[name]
        growing |= grows
        print(f"{name}: {'grows' if grows else 'flat'}, {before:.1f} then {after:.1f}")
    return 1 if growing or wrong else 0


def ends(values: Sequence[float]) -> tuple[float, float]:
    """The lower quartile of the first third and of the last."""
    third = len(values) // 3
    if third < 2:
        return 0.0, 0.0
    return quantiles(values[:third])[0], quantiles(values[2 * third :])[0]


if __name__ == "__main__":
    sys.exit(main())
