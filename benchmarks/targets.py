"""The targets: how one of cowfs' variants compares with a baseline in the same run.

A factor above 1 always means that cowfs is better, also where less is better (seconds, bytes).
The numbers are the project's own goals, written before anything was measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

JUICEFS = "JuiceFS"
"""The better of its two modes, row by row."""
PASSTHROUGH = "passthrough_hp"
STORE = "store"
"""The column of the store's own speed."""


@dataclass(frozen=True)
class Target:
    """In `row`, `system` reaches `factor` times the `baseline` (a system's name, or JUICEFS)."""

    row: str
    system: str
    baseline: str
    factor: float


def _against(row: str, juicefs: float | None, passthrough: float | None, system: str = "cowfs") -> Iterator[Target]:
    for baseline, factor in ((JUICEFS, juicefs), (PASSTHROUGH, passthrough)):
        if factor is not None:
            yield Target(row, system, baseline, factor)


def _files(suffix: str) -> Iterator[Target]:
    pairs = {
        "create": (5, 1),
        "stat": (1.1, 1),
        "traverse": (1, 0.8),
        "read": (2.5, 1),
        "rename": (2.5, 1),
        "unlink": (4, 1),
    }
    for row, (juicefs, passthrough) in pairs.items():
        yield from _against(row + suffix, juicefs, passthrough)


TARGETS = [
    *_files(""),
    *_files("-4"),
    *_against("write", 2, 0.4),
    Target("write", "cowfs", "local", 0.6),
    *_against("read-cache", 4, 0.9, "cowfs-ro"),
    *_against("read-warm", 3, 0.8),
    *_against("random-read", 4, None),
    *_against("random-read", 15, 0.9, "cowfs-ro"),
    *_against("random-write", 5, 1),
    *_against("untar", 5, 1),
    *_against("sqlite", 7, 1),
    Target("commit-large", "cowfs", STORE, 0.8),
]
