"""No generator holds a connection between two values: to close an index, all must be back."""

from __future__ import annotations

import ast
from pathlib import Path

import cowfs

PACKAGE = Path(cowfs.__file__).parent


def _is_context_manager(function: ast.FunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "contextmanager" for each in function.decorator_list)


def _holders(source: str) -> list[str]:
    """Functions that yield inside `with ….connection()` and are not context managers."""
    return [
        function.name
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef) and not _is_context_manager(function)
        for block in ast.walk(function)
        if isinstance(block, ast.With) and any(".connection()" in ast.unparse(item) for item in block.items)
        if any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in ast.walk(block))
    ]


def test_no_generator_holds_a_connection() -> None:
    found = {str(path.relative_to(PACKAGE)): _holders(path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}


def test_a_generator_that_holds_one_is_found() -> None:
    body = "(index):\n    with index.connections.connection() as c:\n        yield from c.rows('')\n"
    assert _holders("def rows" + body) == ["rows"]
    assert _holders("@contextmanager\ndef rows" + body) == []
