"""The results as text: the machine, the amounts, and every median with its range."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from cowfs.bench.results import Results
from cowfs.bench.runner import DIRECTORY, LOCAL

EXPLANATION = """\
Cells are medians, with the lowest and the highest value where there was more than one.
The ratio is above 1 where the directory is better than the local disk.
Every workload's result was checked: contents, counts, digests."""


def text(results: Results) -> str:
    lines = [*describe_run(results.machine, results.settings)]
    kinds = results.settings["file_systems"]
    lines.append(f"{results.titles[DIRECTORY]} is {kinds[DIRECTORY]}; the local disk is {kinds[LOCAL]}.")
    lines += failures(results.failures)
    return "\n\n".join([*lines, EXPLANATION, _medians(results)])


def describe_run(machine: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """Paragraphs: the machine, the amounts."""
    facts = [
        f"{machine['cores']} cores ({machine['processor']})",
        machine["memory"],
        f"kernel {machine['kernel']}",
        f"Python {machine['python']}",
        f"load {machine['load_at_start']:.1f} at the start",
    ]
    amounts = [
        f"{settings['rounds']} rounds at most",
        f"{settings['large_bytes'] >> 20} MiB in the large file",
        f"{settings['directories']} directories of {settings['per_directory']} files of {settings['small_bytes']} bytes",
        f"{settings['random_reads']:,} random reads and {settings['random_writes']:,} writes",
        f"{settings['transactions']:,} transactions",
    ]
    lines = [f"{machine['date']}, on `{machine['host']}`: {', '.join(facts)}.", f"{', '.join(amounts)}."]
    if not machine["drops_caches"]:
        lines.append(
            "Kernel caches could not be dropped (only root may): `cold` is warm, unless there was a new mount."
        )
    return lines


def failures(found: Iterable[dict[str, str]]) -> list[str]:
    return [f"**Failed: {each['system']}, {each['group']}: {each['message']}**" for each in found]


def _medians(results: Results) -> str:
    lines = []
    for row in results.rows:
        ratio = results.ratio(row, DIRECTORY, LOCAL)
        cells = [cell(results.values(row.key, name)) for name in results.titles]
        if any(cells):
            lines.append([row.title, row.unit, *cells, "" if ratio is None else number(ratio)])
    return table(["work", "unit", *results.titles.values(), "ratio"], lines, words=2)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, words: int) -> str:
    """A Markdown table. The columns after the first `words` are numbers, aligned right."""
    rule = "|" + "---|" * words + "--:|" * (len(header) - words)
    return "\n".join([_line(header), rule, *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def cell(values: Sequence[float]) -> str:
    if not values:
        return ""
    spread = f" ({number(min(values))} to {number(max(values))})" if len(values) > 1 else ""
    return number(statistics.median(values)) + spread


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
