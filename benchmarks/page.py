"""The page docs/benchmarks: where it was measured, the targets, every median with its range, plots.

`write` makes results.json, README.md and the SVG files, so they always come from the same run.
`python -m benchmarks.page DIR` makes the page and the plots again from the results.json in DIR.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import plots
from benchmarks.targets import JUICEFS, STORE
from cowfs.bench import report

EXPLANATION = """\
Ratios are of medians in this run and above 1 where cowfs is better. The two modes of JuiceFS count as one baseline: the
better of them, row by row. Cells are medians, with the lowest and the highest value where there was more than one.
Every workload's result was checked: contents, counts, digests (of the do-nothing server only amounts). What `cold` means in
each row stands in `benchmarks/workloads/`. JuiceFS ran with `--writeback` and 60 s caches; as root it gives itself the
highest priority (nice -19), which shows where the machine is busy. The do-nothing server answers with constants from
cowfs' own device loop: what FUSE costs in this design, as far as one run can tell. Where it is slower than cowfs, the noise is
larger than the difference, or its constants do not fit the row. passthrough_hp is a whole file system without
versions."""

Document = dict[str, Any]
"""Of SuiteResults.to_json."""


def write(found: Document, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    names = plots.draw(found, directory)
    images = "\n".join(f"![{name}]({name}.svg)\n" for name in names)
    page = f"# Benchmarks\n\n{_about(found)}\n\n{images}\n{tables(found)}\n"
    (directory / "README.md").write_text(page)


def _about(found: Document) -> str:
    settings = found["settings"]
    versions = [f"{each['title']} {each['version']}" for each in found["systems"] if each["version"]]
    lines = [
        *([f"**{settings['note']}**"] if settings["note"] else []),
        *report.describe_run(found["machine"], settings),
        f"Measured by `make bench` on {found['machine']['file_system']}; store: {settings['store']}.",
        ", ".join(versions) + ".",
        *(f"Left out: {name} ({reason})." for name, reason in found["left_out"].items()),
        *report.failures(found["failures"]),
    ]
    return "\n\n".join([*lines, EXPLANATION])


def tables(found: Document) -> str:
    titles = {each["name"]: each["title"] for each in found["systems"]}
    return f"## Targets\n\n{_targets(found, titles)}\n\n## All medians\n\n{_medians(found, titles)}"


def _targets(found: Document, titles: dict[str, str]) -> str:
    rows = {row["key"]: row["title"] for row in found["rows"]}
    names = {**titles, JUICEFS: JUICEFS, STORE: STORE}
    lines = [
        [
            rows[each["row"]],
            titles[each["system"]],
            names[each["baseline"]],
            f"≥ {each['factor']:g}",
            report.number(each["measured"]),
            "reached" if each["measured"] >= each["factor"] else "**missed**",
        ]
        for each in found["targets"]
        if each["measured"] is not None
    ]
    return report.table(["work", "of", "against", "target", "measured", ""], lines, words=3)


def _medians(found: Document, titles: dict[str, str]) -> str:
    columns = {**titles, STORE: "the store itself"}
    columns = {name: title for name, title in columns.items() if any(name in row["samples"] for row in found["rows"])}
    lines = [
        [row["title"], row["unit"], *(report.cell(row["samples"].get(name, [])) for name in columns)]
        for row in found["rows"]
    ]
    return report.table(["work", "unit", *columns.values()], lines, words=2)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    write(json.loads((place / "results.json").read_text()), place)
