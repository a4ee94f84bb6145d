"""Hints help who reads them, at a shell or in a program: what is an option on the command line is
named as the argument, too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
OF_OTHERS = {"--device", "--cap-add"}  # of docker


def hints() -> Iterator[tuple[str, str]]:
    """(place, text) of every hint outside the command line; what is filled in stands as {}."""
    for path in sorted((ROOT / "cowfs").rglob("*.py")):
        if path.relative_to(ROOT / "cowfs").parts[0] in ("cli", "bench", "web"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                yield f"{path.name}:{node.value.lineno}", _text(node.value)


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(value) if isinstance(value, ast.Constant) else "{}" for value in node.values)
    return ""


def test_options_are_named_as_arguments_too() -> None:
    found = list(hints())
    assert len(found) > 100, "the search finds too little"
    for place, text in found:
        for option in set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) - OF_OTHERS:
            if re.search(rf"`cowfs [^`]*{option}[^`]*`", text):
                continue  # a whole command, which needs another way beside it: below
            argument = option[2:].replace("-", "_")
            assert re.search(rf"(?<![\w-]){argument}\b", text), f"{place}: {option} without {argument}="


def test_commands_about_volumes_have_a_python_way_beside_them() -> None:
    for place, text in hints():
        for command in re.findall(r"cowfs (ls|log|create|commit|mount|unmount|fork)\b", text):
            assert re.search(r"\bVolume\b|\(\)", text), f"{place}: `cowfs {command}` alone: {text}"
