"""What a run of the suite found. In addition to `cowfs.bench.results`:

{…, "systems": [{name, title, version}], "left_out": {name: reason},
 "targets": [{row, system, baseline, factor, measured}]}

`measured` is null if the system or the baseline did not take part.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.targets import JUICEFS, TARGETS, Target
from cowfs.bench.results import Results


@dataclass
class SuiteResults(Results):
    versions: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def measured(self, target: Target) -> float | None:
        """How many times better the target's system is than its baseline; None if one is
        missing."""
        (row,) = (row for row in self.rows if row.key == target.row)
        peers = [name for name in self.titles if name.startswith("juicefs")]
        return self.ratio(row, target.system, *(peers if target.baseline == JUICEFS else [target.baseline]))

    def to_json(self) -> dict[str, Any]:
        document = super().to_json()
        for system in document["systems"]:
            system["version"] = self.versions.get(system["name"], "")
        targets = [{**asdict(target), "measured": self.measured(target)} for target in TARGETS]
        return {**document, "left_out": self.left_out, "targets": targets}
