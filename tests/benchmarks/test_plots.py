"""docs/benchmarks is what the code makes of the results stored there; plots show missed targets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from benchmarks import page, plots

pytestmark = pytest.mark.quick

PUBLISHED = Path(__file__).parents[2] / "docs" / "benchmarks"


def test_the_published_page_is_of_the_published_results(tmp_path: Path) -> None:
    page.write(json.loads((PUBLISHED / "results.json").read_text()), tmp_path)
    assert (tmp_path / "README.md").read_text() == (PUBLISHED / "README.md").read_text()
    drawn = {image.name for image in tmp_path.glob("*.svg")}
    assert drawn == {image.name for image in PUBLISHED.glob("*.svg")}


def test_bars_show_who_missed_the_target() -> None:
    figure = Figure()
    axes = figure.subplots()
    plots.bar_chart(axes, "t", [("reached", 6.0, 5.0), ("missed", 0.5, 1.0)])
    colors = [bar.get_facecolor() for bar in axes.patches]
    assert colors == [to_rgba(plots.REACHED), to_rgba(plots.MISSED)]
