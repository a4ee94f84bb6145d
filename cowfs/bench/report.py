"""The results as a page for people: what was measured where, the targets, every median with its range, the plots.

`write` leaves results.json, README.md and SVG files in a directory; they are always of one and the same run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import plots
from benchmarks.workloads.commits import STORE
from cowfs.bench.results import Measured, Results
from cowfs.bench.rows import JUICEFS

EXPLANATION = """\
Ratios are of medians in this run and above 1 where cowfs is better. The two modes of JuiceFS count as one baseline: the
better of them, row by row. Cells are medians, with the lowest and the highest value where there was more than one.
Every workload's result was checked: contents, counts, digests (of the do-nothing server only amounts). What `cold` means in
each row stands in `cowfs/bench/workloads/`. JuiceFS ran with `--writeback` and 60 s caches; as root it gives itself the
highest priority (nice -19), which shows where the machine is busy. The do-nothing server answers with constants from
cowfs' own device loop: what FUSE costs in this design, as far as one run can tell. Where it is slower than cowfs, the noise is
larger than the difference, or its constants do not fit the row. passthrough_hp is a whole file system without
versions."""


def write(results: Results, directory: Path, *, command: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "results.json").write_text(json.dumps(results.to_json(), indent=1) + "\n")
    drawn = plots.draw(results)
    for name, image in drawn.items():
        (directory / f"{name}.svg").write_text(image)
    images = "\n".join(f"![{name}]({name}.svg)\n" for name in drawn)
    text = f"# Benchmarks\n\n{about(results, command)}\n\n{images}\n{tables(results)}\n"
    (directory / "README.md").write_text(text)


def about(results: Results, command: str) -> str:
    machine, settings = results.machine, results.settings
    versions = [(results.titles[name], version) for name, version in results.versions.items() if name in results.titles]
    lines = [
        f"`{command}`, {machine['date']}, on `{machine['host']}`: " + ", ".join(_machine(machine)) + ".",
        ", ".join(_sizes(settings)) + ".",
        ", ".join(f"{title} {version}" for title, version in versions if version) + ".",
    ]
    if settings["note"]:
        lines.insert(0, f"**{settings['note']}**")
    if not machine["drops_caches"]:
        lines.append("Kernel caches could not be dropped here: `cold` is a new mount, and the local disk's is warm.")
    lines += [f"Left out: {name} ({reason})." for name, reason in results.left_out.items()]
    lines += [f"**Failed: {each['system']}, {each['group']}: {each['message']}**" for each in results.failures]
    return "\n\n".join([*lines, EXPLANATION])


def _machine(machine: dict[str, Any]) -> list[str]:
    cores = f"{machine['cores']} cores ({machine['processor']})"
    load = f"load {machine['load_at_start']:.1f} at the start"
    kernel, python = f"kernel {machine['kernel']}", f"Python {machine['python']}"
    return [cores, machine["memory"], kernel, machine["file_system"], python, load]


def _sizes(settings: dict[str, Any]) -> list[str]:
    return [
        f"{settings['rounds']} rounds at most",
        f"{settings['large_bytes'] >> 20} MiB in the large file",
        f"{settings['directories']} directories of {settings['per_directory']} files of {settings['small_bytes']} bytes",
        f"{settings['random_reads']:,} random reads and {settings['random_writes']:,} writes",
        f"{settings['transactions']:,} transactions",
        f"store: {settings['store']}",
    ]


def tables(results: Results) -> str:
    return f"## Targets\n\n{_targets(results)}\n\n## All medians\n\n{_medians(results)}"


def _targets(results: Results) -> str:
    lines = ["| work | of | against | target | measured | |", "|---|---|---|--:|--:|---|"]
    for row in results.rows:
        for target in row.targets:
            ratio = results.ratio(row, target)
            if ratio is None:
                continue
            baseline = target.baseline if target.baseline in (JUICEFS, STORE) else results.titles[target.baseline]
            verdict = "reached" if ratio >= target.factor else "**missed**"
            system = results.titles[target.system]
            lines.append(
                f"| {row.title} | {system} | {baseline} | ≥ {target.factor:g} | {_number(ratio)} | {verdict} |"
            )
    return "\n".join(lines)


def _medians(results: Results) -> str:
    names = [name for name in [*results.titles, STORE] if any(name in each for each in results.samples.values())]
    titles = [results.titles.get(name, "the store itself") for name in names]
    lines = ["| work | unit | " + " | ".join(titles) + " |", "|---|---|" + "--:|" * len(names)]
    for row in results.rows:
        if row.key in results.samples:
            cells = [_cell(results.cell(row.key, name)) for name in names]
            lines.append(f"| {row.title} | {row.unit} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(cell: Measured | None) -> str:
    if cell is None:
        return ""
    spread = f" ({_number(cell.low)} to {_number(cell.high)})" if cell.count > 1 else ""
    return _number(cell.median) + spread


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
