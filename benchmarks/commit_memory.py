"""What a commit of many small files takes: time, and memory of the daemon for each changed file.

    python -m benchmarks.commit_memory [--files 100000] [--bytes 100] [--directory DIR]

Mounts a volume, makes so many files through the kernel, commits, overwrites all of them, commits
again. Memory is the peak of the daemon's resident set during the commit above what it was right
before, so packs on their way and other constants are in it: compare two numbers of files. "engine"
is what the daemon grew by while the files were made, which stays until it is committed. Everything
lies below DIR, which is removed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import scratch
from benchmarks.processes import mounted, status_bytes
from cowfs import blocking

PER_DIRECTORY = 1000


def main() -> None:
    chosen = scratch.options("Time and memory of a commit of many small files.", files=100_000, bytes=100)
    with scratch.directory(chosen.directory) as directory:
        measure(directory, chosen.files, chosen.bytes)


def measure(directory: Path, files: int, size: int) -> None:
    volume = blocking.Volume.new("commit-memory", store=(directory / "store").as_uri())
    path = Path(volume.mount(directory / "mount"))
    try:
        entry = mounted(path)
        for what, first in (("create", b"n"), ("change", b"c")):
            before = status_bytes(entry.pid, "VmRSS")
            made_s = timed(lambda first=first: write(path, files, first * size))  # type: ignore[misc]
            held = status_bytes(entry.pid, "VmRSS")
            Path(f"/proc/{entry.pid}/clear_refs").write_text("5")  # the peak starts anew
            commit_s = timed(lambda: volume.commit("measured"))
            peak = status_bytes(entry.pid, "VmHWM")
            print(
                f"{what}: {files} files of {size} bytes in {made_s:.1f} s, engine {(held - before) / files:.0f} bytes a file; "
                f"commit {commit_s:.1f} s, {(peak - held) / files:.0f} bytes a file more, {peak >> 20} MiB in all"
            )
    finally:
        volume.discard()


def write(path: Path, files: int, tail: bytes) -> None:
    for number in range(files):
        directory = path / f"d{number // PER_DIRECTORY}"
        if number % PER_DIRECTORY == 0:
            directory.mkdir(exist_ok=True)
        handle = os.open(directory / f"sample-{number:08}.json", os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(handle, b"%d" % number + tail)
        os.close(handle)


def timed(work: Callable[[], object]) -> float:
    since_s = time.monotonic()
    work()
    return time.monotonic() - since_s


if __name__ == "__main__":
    main()
