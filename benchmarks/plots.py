"""Images of a run.

ratios-juicefs, ratios-passthrough_hp    a bar a row on a logarithmic axis, the target as a tick
mount-time                               seconds against the number of files, a line a system
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.targets import JUICEFS, PASSTHROUGH

REACHED, MISSED = "tab:blue", "tab:red"
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
matplotlib.rcParams["svg.hashsalt"] = "cowfs"  # the same results are the same image

Bar = tuple[str, float, float]
"""Label, measured ratio, target."""


def draw(found: dict[str, Any], directory: Path) -> list[str]:
    """The names of the images; none for what was not measured."""
    names = []
    for baseline in (JUICEFS, PASSTHROUGH):
        if bars := _ratios(found, baseline):
            figure = Figure((9, 0.7 + 0.22 * len(bars)), layout="constrained")
            bar_chart(figure.subplots(), f"Times {baseline} (tick: the target)", bars)
            names.append(_save(figure, directory, f"ratios-{baseline.lower()}"))
    if lines := _mount_times(found):
        figure = Figure((9, 3.4), layout="constrained")
        _line_chart(figure.subplots(), "Mount time, seconds, against files in the version", lines)
        names.append(_save(figure, directory, "mount-time"))
    return names


def _save(figure: Figure, directory: Path, name: str) -> str:
    figure.savefig(directory / f"{name}.svg", metadata={"Date": None})
    return name


def _ratios(found: dict[str, Any], baseline: str) -> list[Bar]:
    rows = {row["key"]: row["title"] for row in found["rows"]}
    titles = {each["name"]: each["title"] for each in found["systems"]}
    bars = []
    for each in found["targets"]:
        if each["baseline"] == baseline and each["measured"] is not None:
            of = "" if each["system"] == "cowfs" else f" ({titles[each['system']]})"
            bars.append((rows[each["row"]] + of, each["measured"], each["factor"]))
    return bars


def _mount_times(found: dict[str, Any]) -> dict[str, dict[int, float]]:
    rows = {row["key"]: row["samples"] for row in found["rows"]}
    lines: dict[str, dict[int, float]] = {}
    for files in found["settings"]["mount_counts"]:
        for each in found["systems"]:
            if values := rows.get(f"mount-{files}", {}).get(each["name"]):
                lines.setdefault(each["title"], {})[files] = statistics.median(values)
    return lines


def bar_chart(axes: Axes, title: str, bars: list[Bar]) -> None:
    places = range(len(bars))
    labels, values, targets = zip(*bars, strict=True)
    colors = [REACHED if value >= target else MISSED for _, value, target in bars]
    _scale(axes, title)
    axes.barh(places, [value - 1 for value in values], left=1, color=colors)
    axes.plot(targets, places, "k|", markersize=14)
    for place, value, target in zip(places, values, targets, strict=True):
        axes.annotate(f"{value:.3g}", (max(1, value, target), place), (5, -3), textcoords="offset points")
    axes.axvline(1, color="gray", linewidth=0.8)
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    axes.margins(x=0.1, y=0.01)


def _line_chart(axes: Axes, title: str, lines: dict[str, dict[int, float]]) -> None:
    _scale(axes, title)
    for label, line in lines.items():
        axes.plot(list(line), list(line.values()), "o-", label=label)
    axes.set_ylim(bottom=0)
    axes.grid(color="#ddd")
    axes.legend()


def _scale(axes: Axes, title: str) -> None:
    axes.set_title(title)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.minorticks_off()
