"""The input of the workloads, made once a run: random bytes in one file, incompressible and without
duplicates."""

from __future__ import annotations

from pathlib import Path

from cowfs.base import clock
from cowfs.base.fast_dataclass import dataclass
from cowfs.bench.sizes import Sizes


@dataclass(frozen=True)
class Material:
    large: Path


def make(place: Path, sizes: Sizes) -> Material:
    place.mkdir()
    large = place / "large"
    with large.open("wb") as file:
        for offset in range(0, sizes.large_bytes, 1 << 24):
            file.write(clock.random_bytes(min(1 << 24, sizes.large_bytes - offset)))
    return Material(large)
