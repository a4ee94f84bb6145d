"""cowfs beside the local directory it runs on: create, stat, sequential write and read, commit; as ratios.

    python benchmarks/basic.py [DIR] [--rounds 3] [--no-record]

Works in a new directory below DIR (default: the temporary directory). Each round does the same work on the plain directory and
on a mount, alternating, so that a busy machine hurts both; the median round counts. Writes docs/benchmarks/basic.json and
basic.md. A ratio says how much of the local directory's speed the mount reaches; nothing here passes or fails.

    create     files of 1 KiB in one directory, each open, write, close
    stat       each of them by name: cold after dropping kernel caches (on the mount: after a remount), then warm
    write      one file in 1 MiB writes, fsync at the end
    read       the same file in 1 MiB reads: cold, then warm
    commit     all of it into a store below DIR; against `cp -r` and sync of the same files. Quiet files were uploaded in the
               background by then, as they are in practice, so that this can be faster than the copy
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILES = 5_000
FILE_BYTES = 1 << 10
LARGE_BYTES = 256 << 20
BLOCK_BYTES = 1 << 20

Rates = dict[str, float]
UNITS = {
    "create": "files/s",
    "stat cold": "files/s",
    "stat warm": "files/s",
    "write": "MB/s",
    "read cold": "MB/s",
    "read warm": "MB/s",
    "commit": "MB/s",
    "commit, one file changed": "commits/s",
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("directory", type=Path, nargs="?", default=Path(tempfile.gettempdir()))
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--no-record", action="store_true", help="print, but leave docs/benchmarks alone")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="cowfs-benchmark-", dir=options.directory) as name:
        scratch = Path(name)
        for variable in [variable for variable in os.environ if variable.startswith(("COWFS_", "XDG_"))]:
            del os.environ[variable]
        os.environ["HOME"] = str(scratch)
        rounds = [(local_round(scratch), mounted_round(scratch, number)) for number in range(options.rounds)]
    local = medians([first for first, _ in rounds])
    mounted = medians([second for _, second in rounds])
    table = markdown(local, mounted)
    print(table)
    if not options.no_record:
        record(local, mounted, table, options.rounds)


# -- one round on each side


def local_round(scratch: Path) -> Rates:
    plain = scratch / "plain"
    plain.mkdir()
    rates = file_rates(plain, forget=drop_kernel_caches)
    start = time.perf_counter()
    shutil.copytree(plain, scratch / "copy")
    os.sync()
    rates["commit"] = total_bytes() / 1e6 / (time.perf_counter() - start)
    start = time.perf_counter()
    shutil.copyfile(plain / "small" / "0", scratch / "copy" / "small" / "0")
    os.sync()
    rates["commit, one file changed"] = 1 / (time.perf_counter() - start)
    shutil.rmtree(plain)
    shutil.rmtree(scratch / "copy")
    return rates


def mounted_round(scratch: Path, number: int) -> Rates:
    from cowfs.blocking import Volume

    path = scratch / f"mount-{number}"
    volume = Volume.new(f"benchmark-{number}")
    volume.mount(path)
    try:

        def remount() -> None:
            volume.unmount()
            drop_kernel_caches()
            volume.mount(path)

        rates = file_rates(path, forget=remount)
        start = time.perf_counter()
        volume.commit("everything")
        rates["commit"] = total_bytes() / 1e6 / (time.perf_counter() - start)
        (path / "small" / "0").write_bytes(os.urandom(FILE_BYTES))
        start = time.perf_counter()
        volume.commit("one file")
        rates["commit, one file changed"] = 1 / (time.perf_counter() - start)
    finally:
        volume.unmount()
    return rates


def file_rates(directory: Path, *, forget: Callable[[], None]) -> Rates:
    rates: Rates = {}
    content = os.urandom(FILE_BYTES)
    small = directory / "small"
    small.mkdir()
    names = [str(small / str(number)) for number in range(FILES)]

    def create() -> None:
        for name in names:
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(fd, content)
            os.close(fd)

    def stat() -> None:
        for name in names:
            os.stat(name)

    def write() -> None:
        block = os.urandom(BLOCK_BYTES)
        fd = os.open(directory / "large", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for index in range(LARGE_BYTES // BLOCK_BYTES):
            os.write(fd, index.to_bytes(8, "big") + block[8:])
        os.fsync(fd)
        os.close(fd)

    def read() -> None:
        fd = os.open(directory / "large", os.O_RDONLY)
        while os.read(fd, BLOCK_BYTES):
            pass
        os.close(fd)

    megabytes = LARGE_BYTES / 1e6
    rates["create"] = rate(create, FILES)
    rates["write"] = rate(write, megabytes)
    forget()
    rates["stat cold"] = rate(stat, FILES)
    rates["stat warm"] = rate(stat, FILES)
    rates["read cold"] = rate(read, megabytes)
    rates["read warm"] = rate(read, megabytes)
    return rates


def rate(work: Callable[[], None], amount: float) -> float:
    start = time.perf_counter()
    work()
    return amount / (time.perf_counter() - start)


def drop_kernel_caches() -> None:
    """Where permitted; otherwise "cold" is warm on the local side, and the ratio is harder on the mount."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except PermissionError:
        print("note: kernel caches cannot be dropped by this user")


def total_bytes() -> int:
    return LARGE_BYTES + FILES * FILE_BYTES


# -- results


def medians(rounds: list[Rates]) -> Rates:
    return {name: statistics.median(rates[name] for rates in rounds) for name in UNITS}


def markdown(local: Rates, mounted: Rates) -> str:
    lines = ["| work | unit | local directory | cowfs mount | ratio |", "|---|---|--:|--:|--:|"]
    for name, unit in UNITS.items():
        numbers = (
            f"{local[name]:,.0f} | {mounted[name]:,.0f}"
            if local[name] >= 100
            else f"{local[name]:,.2f} | {mounted[name]:,.2f}"
        )
        lines.append(f"| {name} | {unit} | {numbers} | {mounted[name] / local[name]:.3f} |")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    kind = subprocess.run(["stat", "-f", "-c", "%T", tempfile.gettempdir()], capture_output=True, text=True, check=True)
    return {
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "disk": kind.stdout.strip(),
    }


def record(local: Rates, mounted: Rates, table: str, rounds: int) -> None:
    target = ROOT / "docs" / "benchmarks"
    target.mkdir(exist_ok=True)
    facts = machine()
    results = {
        "machine": facts,
        "rounds": rounds,
        "local": local,
        "mounted": mounted,
        "ratio": {name: mounted[name] / local[name] for name in UNITS},
    }
    (target / "basic.json").write_text(json.dumps(results, indent=1) + "\n")
    about = ", ".join(f"{name} {value}" for name, value in facts.items())
    explanation = (__doc__ or "").partition("passes or fails.")[2].strip("\n")
    (target / "basic.md").write_text(
        f"# Beside the local directory\n\n`python benchmarks/basic.py`, median of {rounds} rounds; {about}.\n\n{table}\n\n{explanation}\n"
    )


if __name__ == "__main__":
    main()
