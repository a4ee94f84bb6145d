"""SVG images of a run, written by hand: three kinds of marks do not need a plotting library.

ratios-juicefs, ratios-passthrough_hp    a bar a row on a logarithmic axis, the target as a tick
mount-time                               seconds against the number of files, a line a system
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from cowfs.bench.results import Results
from cowfs.bench.rows import JUICEFS

WIDTH = 900
LABEL_WIDTH = 385
ROW_HEIGHT = 20
TOP = 44
COLORS = ("#2a6fbb", "#c8553d", "#4b8f4b", "#8a5fb0", "#b08a2e")

Bar = tuple[str, float, float]
"""Label, measured ratio, target."""
Line = tuple[str, list[tuple[float, float]]]


def draw(results: Results) -> dict[str, str]:
    """Images by name; none for what was not measured."""
    images = {}
    for name, baseline in (("ratios-juicefs", JUICEFS), ("ratios-passthrough_hp", "passthrough_hp")):
        if bars := _ratios(results, baseline):
            images[name] = bar_chart(f"Times {baseline} (tick: the target)", bars)
    if lines := _mount_times(results):
        images["mount-time"] = line_chart("Mount time, seconds, against files in the version", lines)
    return images


def _ratios(results: Results, baseline: str) -> list[Bar]:
    bars = []
    for row in results.rows:
        for target in row.targets:
            if target.baseline == baseline and (ratio := results.ratio(row, target)) is not None:
                shown = row.title if target.system == "cowfs" else f"{row.title} ({results.titles[target.system]})"
                bars.append((shown, ratio, target.factor))
    return bars


def _mount_times(results: Results) -> list[Line]:
    counts = results.settings["mount_counts"]
    lines = []
    for name, title in results.titles.items():
        cells = [(files, results.cell(f"mount-{files}", name)) for files in counts]
        points = [(float(files), cell.median) for files, cell in cells if cell is not None]
        if len(points) > 1:
            lines.append((title, points))
    return lines


def bar_chart(title: str, bars: Sequence[Bar]) -> str:
    values = [value for _, *pair in bars for value in pair]
    low, high = _decades(min(values), max(values))
    height = TOP + ROW_HEIGHT * len(bars) + 30

    def x(value: float) -> float:
        return LABEL_WIDTH + (WIDTH - LABEL_WIDTH - 60) * (math.log10(value) - low) / (high - low)

    parts = [_text(10, 20, title, size=15)]
    for decade in range(low, high + 1):
        parts += [_line(x(10**decade), TOP - 8, x(10**decade), height - 24, "#ccc")]
        parts.append(_text(x(10**decade), height - 8, f"{10.0**decade:g}", anchor="middle"))
    parts.append(_line(x(1), TOP - 8, x(1), height - 24, "#888"))
    for index, (label, value, target) in enumerate(bars):
        y = TOP + ROW_HEIGHT * index
        color = COLORS[0] if value >= target else COLORS[1]
        left, right = sorted((x(1), x(value)))
        parts.append(_text(LABEL_WIDTH - 8, y + 13, label, anchor="end"))
        parts.append(f'<rect x="{left:.1f}" y="{y + 3}" width="{right - left:.1f}" height="13" fill="{color}"/>')
        parts.append(_line(x(target), y, x(target), y + 18, "#000"))
        parts.append(_text(max(right, x(target)) + 5, y + 13, f"{value:.3g}"))
    return _svg(height, parts)


def line_chart(title: str, lines: Sequence[Line]) -> str:
    height, bottom = 340, 300
    points = [point for _, line in lines for point in line]
    left, right = _decades(min(x for x, _ in points), max(x for x, _ in points))
    top = max(y for _, y in points) * 1.1

    def at(point: tuple[float, float]) -> tuple[float, float]:
        share = (math.log10(point[0]) - left) / (right - left)
        return 60 + (WIDTH - 320) * share, bottom - (bottom - TOP) * point[1] / top

    parts = [_text(10, 20, title, size=15)]
    for decade in range(left, right + 1):
        x, _ = at((10.0**decade, 0))
        parts += [_line(x, TOP, x, bottom, "#ddd"), _text(x, bottom + 18, f"{10**decade:,}", anchor="middle")]
    for step in range(5):
        _, y = at((1.0, top * step / 4))
        parts += [_line(60, y, WIDTH - 260, y, "#ddd"), _text(54, y + 4, f"{top * step / 4:.2f}", anchor="end")]
    for index, (label, line) in enumerate(lines):
        color = COLORS[index % len(COLORS)]
        spots = [at(point) for point in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in spots]
        parts.append(_text(WIDTH - 240, TOP + 18 * index + 10, label, color=color))
    return _svg(height, parts)


def _decades(low: float, high: float) -> tuple[int, int]:
    """Powers of ten around the values, and around 1."""
    first = math.floor(math.log10(min(low, 1.0)))
    return first, max(math.ceil(math.log10(max(high, 1.0))), first + 1)


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, color: str = "#222") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{color}">{escape(text)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, color: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"/>'


def _svg(height: int, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>', *parts, "</svg>"]) + "\n"
