"""What the layout of the package looks like: imports, circles, siblings, private members.

imports(module)      modules of cowfs that a module imports, those inside functions too; names under
                     `TYPE_CHECKING` do not count
circles()            groups of modules that import each other, directly or not
siblings()           modules and packages of each folder
foreign_private()    (module, name) of private members that are used outside of their module
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import cowfs

PACKAGE = Path(cowfs.__file__).parent
STANDARD = frozenset({"_repr_html_", "_asdict", "_exit", "_getframe", "_replace"})
"""Public in spite of their names: of `os`, `sys`, named tuples and IPython."""


@cache
def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("cowfs", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text())


def _statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from _statements(other)
            continue
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        yield from _statements(child)


@cache
def imports(module: str) -> frozenset[str]:
    found = set()
    for statement in _statements(tree(module)):
        if isinstance(statement, ast.Import):
            found |= {each.name for each in statement.names}
        elif statement.module is not None:
            for each in statement.names:
                below = f"{statement.module}.{each.name}"
                found.add(below if below in modules() else statement.module)
    return frozenset((found & modules().keys()) - {module})


def circles() -> list[list[str]]:
    """Tarjan's strongly connected components that have more than one module."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        numbers[module] = lowest[module] = len(numbers)
        stack.append(module)
        for other in sorted(imports(module)):
            if other not in numbers:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], numbers[other])
        if lowest[module] == numbers[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for module in modules():
        if module not in numbers:
            visit(module)
    return found


def siblings() -> dict[str, set[str]]:
    """`__init__` and `__main__` are not counted."""
    found: dict[str, set[str]] = defaultdict(set)
    for module in modules():
        above, _, name = module.rpartition(".")
        if above and name != "__main__":
            found[above].add(name)
    return found


def foreign_private() -> set[tuple[str, str]]:
    """Private names that one module of cowfs defines and another reads from an object."""
    own = {module: _members(tree(module)) for module in modules()}
    every = frozenset().union(*own.values())
    return {
        (module, node.attr)
        for module in modules()
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Attribute) and node.attr in every - own[module] - STANDARD
    }


def _members(source: ast.Module) -> frozenset[str]:
    """Private functions, classes and variables of a module, and attributes that it sets or reads on
    `self` or `cls`."""
    found = set()
    for node in ast.walk(source):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}:
            found.add(node.attr)
    return frozenset(name for name in found if name.startswith("_") and not name.endswith("__"))
