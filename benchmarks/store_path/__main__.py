"""Compares cowfs, JuiceFS and the store itself, place by place, in turn within each round.

    python -m benchmarks.store_path [--place NAME]… [--rounds 5] [--mib 1024] [--files 10000] [--trace] [--output FILE]

Prints the median of each row, and what cowfs reaches of the others; --output keeps every sample as
JSON. As root: only root may drop the kernel's caches and make links.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import scratch
from benchmarks.store_path import places, requests, works
from benchmarks.store_path.places import Place
from benchmarks.store_path.systems import Cowfs, Juice, System
from cowfs.format.store_url import StoreUrl

Samples = dict[str, dict[str, list[float]]]
"""By row and column: cowfs, juicefs (with write-back), juicefs-through (without), raw."""


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing stays mounted
    chosen = _options()
    found: dict[str, Any] = {}
    for name in chosen.place or places.NAMES:
        with scratch.directory(chosen.directory) as directory:
            found[name] = _measured(name, directory, chosen)
        _print(name, found[name])
    if chosen.output:
        chosen.output.write_text(json.dumps({"mib": chosen.mib, "files": chosen.files, "places": found}, indent=1))
    return 0


def _measured(name: str, directory: Path, chosen: argparse.Namespace) -> Any:
    if chosen.store:
        return _speeds(Place(name, StoreUrl.parse(chosen.store)), directory, chosen)
    if name in places.RATES:
        output = directory / "found.json"
        numbers = [f"--{key}={getattr(chosen, key)}" for key in ("rounds", "mib", "files")]
        command = [sys.executable, "-m", "benchmarks.store_path", "--place", name, *numbers, "--output", str(output)]
        if places.over_link(name, directory, [*command, "--directory", str(directory)]):
            raise SystemExit(f"the run over {name} has failed")
        return json.loads(output.read_text())["places"][name]
    with places.opened(name, directory) as place:
        if name == "counted" or name == "delayed":
            counted: dict[str, dict[str, float]] = {}
            requests.run(place, directory, chosen.files, counted.__setitem__, traced=chosen.trace)
            if name == "counted":
                return counted
            return {**counted, **_speeds(place, directory, chosen)}
        return _speeds(place, directory, chosen)


def _speeds(place: Place, directory: Path, chosen: argparse.Namespace) -> Samples:
    size = chosen.mib << 20
    samples: Samples = {}

    def saver(column: str) -> works.Save:
        return lambda row, value: samples.setdefault(row, {}).setdefault(column, []).append(value)

    for number in range(chosen.rounds):
        works.raw(place.store, size, saver("raw"))
        for column in ("cowfs", "juicefs", "juicefs-through"):
            at = directory / f"{number}-{column}"
            system = _system(column, at, place.store)
            try:
                works.large(system, size, saver(column))
                if column != "juicefs-through":
                    works.small(system, chosen.files, saver(column))
            finally:
                system.end()
                scratch.remove(at)
    return samples


def _system(column: str, at: Path, store: StoreUrl) -> System:
    return Cowfs(at, store) if column == "cowfs" else Juice(at, store, writes_back=column == "juicefs")


def _print(name: str, found: Any) -> None:
    print(f"\n## {name}\n")
    for row, values in found.items():
        shown = {key: median(value) if isinstance(value, list) else value for key, value in values.items()}
        print(f"{row:14}", "  ".join(f"{key} {value:.4g}" for key, value in shown.items()))
        ours = shown.get("cowfs")
        for other in ("juicefs", "juicefs-through", "raw"):
            if ours and shown.get(other):
                print(f"{'':14}   {ours / shown[other]:.2f} of {other}")
    sys.stdout.flush()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--place", action="append", choices=places.NAMES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--directory", type=Path, default=None)
    parser.add_argument("--store", help=argparse.SUPPRESS)  # of a run that is started over a link
    parser.add_argument("--trace", action="store_true", help="print the requests that are counted")
    parser.add_argument("--output", type=Path, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
