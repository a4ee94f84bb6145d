"""What a run found: every sample of every row and system, who was left out and why, and what failed. JSON both ways.

{"format": 1, "machine": {…}, "settings": {…}, "systems": [{name, title, version}], "left_out": {name: reason},
 "failures": [{system, group, message}], "rows": [{key, title, unit, more_is_better, samples: {system: [value, …]}}],
 "targets": [{row, system, baseline, target, measured}]}        measured: null where one of the two did not take part
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from cowfs.bench.rows import JUICEFS, Row, Target

FORMAT = 1


@dataclass(frozen=True)
class Measured:
    """One cell of the table."""

    median: float
    low: float
    high: float
    count: int


@dataclass
class Results:
    machine: dict[str, Any]
    settings: dict[str, Any]
    rows: list[Row]
    titles: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    failures: list[dict[str, str]] = field(default_factory=list)
    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, row: str, system: str, value: float) -> None:
        self.samples.setdefault(row, {}).setdefault(system, []).append(value)

    def cell(self, row: str, system: str) -> Measured | None:
        values = self.samples.get(row, {}).get(system)
        if not values:
            return None
        return Measured(statistics.median(values), min(values), max(values), len(values))

    def ratio(self, row: Row, target: Target) -> float | None:
        """How many times better the target's system is than its baseline, by medians; None: one of them is missing."""
        ours, theirs = self.cell(row.key, target.system), self._baseline(row, target.baseline)
        if ours is None or theirs is None or min(ours.median, theirs) <= 0:
            return None
        return ours.median / theirs if row.more_is_better else theirs / ours.median

    def _baseline(self, row: Row, name: str) -> float | None:
        names = [name] if name != JUICEFS else [each for each in self.titles if each.startswith("juicefs")]
        medians = [cell.median for each in names if (cell := self.cell(row.key, each)) is not None]
        if not medians:
            return None
        return max(medians) if row.more_is_better else min(medians)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "machine": self.machine,
            "settings": self.settings,
            "systems": [
                {"name": name, "title": title, "version": self.versions.get(name, "")}
                for name, title in self.titles.items()
            ],
            "left_out": self.left_out,
            "failures": self.failures,
            "rows": [
                {
                    "key": row.key,
                    "title": row.title,
                    "unit": row.unit,
                    "more_is_better": row.more_is_better,
                    "samples": self.samples[row.key],
                }
                for row in self.rows
                if row.key in self.samples
            ],
            "targets": [
                {
                    "row": row.key,
                    "system": target.system,
                    "baseline": target.baseline,
                    "target": target.factor,
                    "measured": self.ratio(row, target),
                }
                for row in self.rows
                for target in row.targets
            ],
        }
