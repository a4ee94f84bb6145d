"""What carries requests best here: the device or io_uring, with spinning or without.
`python -m benchmarks.transports`

Small files with one caller and with four, and a large file, in short rounds in which the
combinations take turns: a busy machine is so for all of them. Prints medians, and ratios to the
device without spinning, with what they are based on: decisions 13 and 17 stand on such tables.
Takes `--minutes` (4) on an idle machine; as root, since io_uring is switched on meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks import runner
from benchmarks.systems.contract import Group, System
from benchmarks.systems.cowfs_mounts import CowfsMount, CowfsSession
from cowfs.base import clock
from cowfs.bench.sizes import QUICK
from cowfs.machine import kernel

NAMES = ("device", "device+spin", "uring", "uring+spin")
SIZES = replace(QUICK, directories=20, per_directory=100, large_bytes=64 << 20, random_reads=5000, random_writes=1000)
GROUPS = (Group.FILES, Group.FILES_4, Group.LARGE)

Samples = dict[str, dict[str, list[float]]]
"""By row and combination, one value a round."""


class Combination(CowfsMount):
    def __init__(self, transport: str, *, spins: bool) -> None:
        name = f"{transport}+spin" if spins else transport
        super().__init__(name, name, frozenset(GROUPS), transport=transport)
        self._spins = spins

    def _start(self, session: CowfsSession) -> None:
        os.environ["COWFS_SPIN"] = "1" if self._spins else "0"  # the daemon inherits it
        super()._start(session)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path, nargs="?", default=Path(tempfile.gettempdir()))
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--group", dest="groups", action="append", choices=GROUPS, default=[])
    options = parser.parse_args()
    before = os.getloadavg()[0]
    with _uring():
        samples = measured(options.directory, options.groups or GROUPS, clock.monotonic_s() + options.minutes * 60)
    print(f"load {before:.1f} before, {os.getloadavg()[0]:.1f} after; {os.cpu_count()} CPUs; {os.uname().release}\n")
    print("\n".join(table(samples)))


def measured(directory: Path, groups: Sequence[str], end_s: float) -> Samples:
    """Rounds until the time is up; another combination begins in each."""
    systems: list[System] = [Combination(way, spins=spins) for way in ("device", "uring") for spins in (False, True)]
    samples: Samples = {}
    took_s = 0.0
    while clock.monotonic_s() + took_s < end_s:
        start_s = clock.monotonic_s()
        results = runner.run(directory, rounds=1, quick=True, groups=groups, among=systems, sizes=SIZES)
        if results.failures:
            sys.exit(f"FAILED: {results.failures}")
        for row, found in results.samples.items():
            for name, values in found.items():
                samples.setdefault(row, {}).setdefault(name, []).extend(values)
        systems.append(systems.pop(0))
        took_s = clock.monotonic_s() - start_s
        print(f"a round took {took_s:.0f} s, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    return samples


def table(samples: Samples) -> Iterator[str]:
    """Medians; in brackets the median of the ratios to the device without spinning in the same
    round."""
    names = [name for name in NAMES if any(name in found for found in samples.values())]
    yield "| row | " + " | ".join(names) + " | rounds |"
    yield "|---" * (len(names) + 2) + "|"
    for row, found in samples.items():
        if row.startswith("memory"):
            continue
        base = found[NAMES[0]]
        ratios = {name: [a / b for a, b in zip(found[name], base, strict=True)] for name in names}
        cells = [f"{statistics.median(found[name]):,.0f} ({statistics.median(ratios[name]):.2f})" for name in names]
        yield f"| {row} | " + " | ".join(cells) + f" | {len(base)} |"


@contextmanager
def _uring() -> Iterator[None]:
    """Switches io_uring on where it is there and off; put back afterwards."""
    with contextlib.ExitStack() as stack:
        if kernel.is_uring_offered() and not kernel.is_uring_enabled():
            kernel.URING_PARAMETER.write_text("Y")
            stack.callback(kernel.URING_PARAMETER.write_text, "N")
        yield


if __name__ == "__main__":
    main()
