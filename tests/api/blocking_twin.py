"""Writes cowfs/blocking.py from the async classes: `python -m tests.api.blocking_twin`; a test holds it current.

Each public method becomes one that runs the async one in the portal's event loop and blocks; each property passes through.
What comes back is wrapped by its annotation: RWVolume and ROVolume become their blocking twins, also in a list.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "cowfs" / "api" / name for name in ("ro_volume.py", "rw_volume.py", "volume.py")]
TARGET = ROOT / "cowfs" / "blocking.py"
TWINS = ("RWVolume", "ROVolume")
RENAMED = {"__aenter__": "__enter__", "__aexit__": "__exit__"}
LEFT_OUT = {"__init__", "__await__", "__aexit__", "__reduce__", "__eq__", "__hash__", "__repr__"}

HEADER = '''"""The blocking twin of cowfs' volumes: the same names and arguments, without await.

Generated from the async classes by `python -m tests.api.blocking_twin`; change those, not this file.
All calls run in one event loop on a thread of its own (`portal`), so this works anywhere: in scripts, in threads,
and inside a running event loop such as a notebook's, which stands still meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cowfs.api import ro_volume, rw_volume
from cowfs.api import volume as volume_module
from cowfs.api.portal import run
from cowfs.format.locator import Locator
from cowfs.format.manifest import Stats

__all__ = ["Locator", "ROVolume", "RWVolume", "Volume", "volume"]
'''

CLASS_MEMBERS = """
    def __init__(self, wrapped: {module}.{name}) -> None:
        self._async = wrapped

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run(self._async.__aexit__, kind, error, traceback)

    def __reduce__(self) -> tuple[Any, ...]:
        return ({name}, (self._async,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, {name}) and other._async == self._async

    def __hash__(self) -> int:
        return hash(self._async)

    def __repr__(self) -> str:
        return f"blocking.{{self._async!r}}"
"""


def render() -> str:
    """The text of cowfs/blocking.py, formatted."""
    parts = [HEADER]
    for source in SOURCES:
        for node in ast.parse(source.read_text()).body:
            if isinstance(node, ast.ClassDef):
                parts.append(_class(node, source.stem))
            elif isinstance(node, ast.FunctionDef) and node.name == "volume":
                parts.append(_function(node, "volume_module.volume"))
    command = [str(Path(sys.executable).with_name("ruff")), "format", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(command, input="\n".join(parts), capture_output=True, text=True, check=True, cwd=ROOT).stdout


def _class(node: ast.ClassDef, module: str) -> str:
    doc = ast.get_docstring(node, clean=False)
    lines = ["", f"class {node.name}:", f'    """{doc}"""']
    if node.name in TWINS:
        lines.append(CLASS_MEMBERS.format(module=module, name=node.name))
    else:
        lines.append(ast.unparse(_named(node, "__init__")))
        lines[-1] = "\n".join("    " + line for line in lines[-1].splitlines())
    for member in node.body:
        if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) and _is_public(member):
            text = _function(member, _callee(member, node.name))
            lines.append("\n".join(f"    {line}" if line else "" for line in text.splitlines()))
    return "\n".join(lines) + "\n"


def _is_public(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    is_special = node.name.startswith("__")
    return node.name not in LEFT_OUT and (is_special or not node.name.startswith("_"))


def _callee(node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str) -> str:
    return f"self._async.{node.name}" if owner in TWINS else f"volume_module.{owner}.{node.name}"


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, callee: str) -> str:
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    returns = ast.unparse(node.returns) if node.returns is not None else "None"
    lines = [f"@{decorator}" for decorator in decorators]
    lines.append(f"def {RENAMED.get(node.name, node.name)}({ast.unparse(node.args)}) -> {returns}:")
    if (doc := ast.get_docstring(node, clean=False)) is not None:
        lines.append(f'    """{doc}"""')
    if "property" in decorators:
        value = callee
    elif isinstance(node, ast.AsyncFunctionDef):
        value = f"run({', '.join([callee, *_arguments(node.args)])})"
    else:
        value = f"{callee}({', '.join(_arguments(node.args))})"
    lines += _result(value, returns)
    return "\n".join(lines) + "\n"


def _arguments(arguments: ast.arguments) -> list[str]:
    names = [argument.arg for argument in arguments.args if argument.arg != "self"]
    return names + [f"{argument.arg}={argument.arg}" for argument in arguments.kwonlyargs]


def _result(value: str, returns: str) -> list[str]:
    if returns == "None":
        return [f"    {value}"]
    if returns == "Self":
        return [f"    {value}", "    return self"]
    if returns in TWINS:
        return [f"    return {returns}({value})"]
    if returns in [f"list[{twin}]" for twin in TWINS]:
        return [f"    return [{returns[5:-1]}(each) for each in {value}]"]
    return [f"    return {value}"]


def _named(node: ast.ClassDef, name: str) -> ast.FunctionDef:
    return next(member for member in node.body if isinstance(member, ast.FunctionDef) and member.name == name)


if __name__ == "__main__":
    TARGET.write_text(render())
