"""The results of a run: every sample of every row and column, and the failures.

{"format": 1, "machine": {…}, "settings": {…}, "systems": [{name, title}],
 "failures": [{system, group, message}],
 "rows": [{key, title, unit, more_is_better, samples: {system: [value, …]}}]}
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, field
from typing import Any

from cowfs.base.fast_dataclass import dataclass
from cowfs.bench.table import Row

FORMAT = 1


@dataclass
class Results:
    """titles: the title of each column, by its name."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    rows: Sequence[Row]
    titles: dict[str, str] = field(default_factory=dict)
    failures: list[dict[str, str]] = field(default_factory=list)
    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, row: str, system: str, value: float) -> None:
        self.samples.setdefault(row, {}).setdefault(system, []).append(value)

    def values(self, row: str, system: str) -> list[float]:
        return self.samples.get(row, {}).get(system, [])

    def ratio(self, row: Row, system: str, *baselines: str) -> float | None:
        """How many times better a system's median is than the best of the baselines.

        None if the system, or every baseline, has no value.
        """
        theirs = [statistics.median(values) for each in baselines if (values := self.values(row.key, each))]
        if not theirs or not (ours := self.values(row.key, system)):
            return None
        median, best = statistics.median(ours), (max if row.more_is_better else min)(theirs)
        if min(median, best) <= 0:
            return None
        return median / best if row.more_is_better else best / median

    def to_json(self) -> dict[str, Any]:
        measured = [row for row in self.rows if row.key in self.samples]
        return {
            "format": FORMAT,
            "machine": self.machine,
            "settings": self.settings,
            "systems": [{"name": name, "title": title} for name, title in self.titles.items()],
            "failures": self.failures,
            "rows": [
                {**asdict(row), "more_is_better": row.more_is_better, "samples": self.samples[row.key]}
                for row in measured
            ],
        }
