"""Prose in docstrings has lines of at most 100 columns; tables, diagrams and commands may be
wider."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
COLUMNS = 100
NO_PROSE = ("  ", "─", "│", "python -m", "make bench")


def docstring_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(line number, line) of every docstring, also of those behind a field. A line that is indented
    further than its docstring is one of a table."""
    text = path.read_text()
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                line = lines[number - 1]
                if not line[node.col_offset :].startswith(" "):
                    yield number, line


@pytest.mark.parametrize("folder", ["cowfs", "tests", "benchmarks"])
def test_prose_is_no_wider_than_a_reader_likes(folder: str) -> None:
    wide = []
    seen = 0
    for path in sorted((ROOT / folder).rglob("*.py*")):
        if path.suffix in (".py", ".pyi"):
            for number, line in docstring_lines(path):
                seen += 1
                if len(line) > COLUMNS and not any(mark in line.strip() for mark in NO_PROSE):
                    wide.append(f"{path.relative_to(ROOT)}:{number}: {line}")
    assert seen > 300, "the search finds too little"
    assert "\n".join(wide) == ""
