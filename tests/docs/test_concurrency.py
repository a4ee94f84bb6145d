"""docs/concurrency.md names every thread: each one that cowfs starts has a name, and the page has
it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cowfs.session.residency.fetching import Fetchers

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
PACKAGES = ("control", "daemon", "index", "session", "store", "version")
POOLS = {"Thread": "name", "Threads": "name", "Helpers": "name"}
NAMERS = {
    ("keeper.py", "_run"): 0,
    ("during_opening.py", "_repeat"): 0,
    ("acquiring.py", "try_cleanup"): 0,
    ("opening.py", "try_cleanup"): 0,
    ("publishing.py", "try_cleanup"): 0,
}
"""Functions that start a thread of the name they are given, and which argument that is."""


def python_names() -> Iterator[str]:
    for package in PACKAGES:
        for path in sorted((ROOT / "cowfs" / package).rglob("*.py")):
            yield from _names_in(ast.parse(path.read_text()), path.name, owner="")


def _names_in(node: ast.AST, file: str, owner: str) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef):
        owner = node.name
    if isinstance(node, ast.Call):
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        place = f"{file}:{node.lineno}"
        if called in POOLS:
            name = next((keyword.value for keyword in node.keywords if keyword.arg == POOLS[called]), None)
            assert name is not None, f"{place} starts a thread without a name"
            if (text := _text(name)) is not None:
                yield text
            else:
                assert (file, owner) in NAMERS or file == "fetching.py", f"{place}: who gives this thread its name?"
        elif (file, called) in NAMERS:
            text = _text(node.args[NAMERS[file, called]])
            assert text is not None, f"{place}: the name is to be found by reading"
            yield text
        elif called == "Fetchers" and node.args:
            yield _text(node.args[0]) or ""
    for child in ast.iter_child_nodes(node):
        yield from _names_in(child, file, owner)


def _text(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def native_names() -> Iterator[str]:
    for path in sorted((ROOT / "native").glob("*/src/**/*.rs")):
        text = path.read_text().split("#[cfg(test)]")[0]
        builders = re.split(r"thread::Builder::new\(\)", text)[1:]
        for builder in builders:
            named = re.match(r'\s*\.name\("([^"]+)"', builder)
            assert named is not None, f"{path.name} starts a thread without a name"
            yield named[1]
        assert "thread::spawn(" not in text, f"{path.name} starts a thread without a name"


def test_the_page_has_every_thread() -> None:
    page = (ROOT / "docs" / "concurrency.md").read_text()
    default = inspect.signature(Fetchers).parameters["name"].default
    names = [default, *python_names(), *native_names()]
    assert {"lane", "lane-load", "watch", "remove the pin", "control"} <= set(names), "the search finds too little"
    assert [name for name in names if f"`{name}`" not in page and f"`{name}-N`" not in page] == []
