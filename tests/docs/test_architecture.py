"""The drawing of the house in docs/architecture.md: its numbers of lines are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
NOT_SOURCE = {"tests", "target"}


def drawing() -> str:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return text.partition("## The house, floor by floor")[2].partition("```text\n")[2].partition("```")[0]


def lines_of(directory: Path, pattern: str) -> int:
    files = [path for path in directory.rglob(pattern) if not NOT_SOURCE & set(path.relative_to(ROOT).parts)]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def test_every_package_stands_in_the_drawing() -> None:
    packages = {path.parent.name for path in (ROOT / "cowfs").glob("*/__init__.py")}
    assert packages <= set(re.findall(r"\w+", drawing()))


def test_lines_are_within_a_tenth_of_what_is_said() -> None:
    said = {name: float(number) for name, number in re.findall(r"\b([a-z]+) (\d+\.\d)k\b", drawing())}
    assert len(said) >= 13
    for name, thousands in said.items():
        assert lines_of(ROOT / "cowfs" / name, "*.py") == pytest.approx(thousands * 1000, rel=0.1, abs=100), name
    (native,) = re.findall(r"\b(\d+)k\b", drawing().splitlines()[-1])
    assert lines_of(ROOT / "native", "*.rs") == pytest.approx(int(native) * 1000, rel=0.1), "native"
