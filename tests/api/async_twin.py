"""Writes cowfs/api/asynchronous.py from the blocking classes: `python -m tests.api.async_twin`; a
test holds it current.

Each public method becomes one that runs the blocking one in a worker thread; each property passes
through, since none of them waits for anything but, at most, one manifest. Functions in `WITHOUT_IO`
stay plain functions. What comes back is wrapped by its annotation: RWVolume and ROVolume become
their async twins, also in a list; an iterator becomes an async one, and an open file that of anyio.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "cowfs" / "api" / name for name in ("files.py", "ro_volume.py", "rw_volume.py", "volume.py")]
TARGET = ROOT / "cowfs" / "api" / "asynchronous.py"
TWINS = ("RWVolume", "ROVolume")
FILES = ("ROFiles", "RWFiles")
WITHOUT_IO = {"new", "open", "volume"}
"""Of `Volume`, and `volume`."""
AT_ONCE = {"walk": 1}
"""Iterators whose items the caller may change before the next one is made."""
LEFT_OUT = {"made", "live", "leave_work", "owns_mount", "mounted_here", "to_compare", "to_read", "to_upload"}
"""Of this process' own objects, for the command line."""

HEADER = '''"""The async twins of the public classes: the same names and arguments, awaited; under asyncio and trio alike.

Generated from the blocking classes by `python -m tests.api.async_twin`; change those, not this file.
Every call runs in a worker thread, so that the event loop goes on. A cancelled call still runs to its end there: nothing
is left half done.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

import anyio

from cowfs.api import files, ro_volume, rw_volume
from cowfs.api import volume as volume_module
from cowfs.api.changes import Change, Located
from cowfs.api.collect_report import GcReport
from cowfs.api.counting import By
from cowfs.api.details import VolumeDetails
from cowfs.api.downloading import Overwrite
from cowfs.api.files import Entry, FilePath
from cowfs.api.merge_report import MergeReport, Strategy
from cowfs.api.options import shows_options
from cowfs.api.overview import MountSummary, VolumeSummary, WorkingCopySummary
from cowfs.api.pruning import PlannedVersion, PrunePlan
from cowfs.api.restoring import RestoreReport
from cowfs.api.storage.storage import Storage
from cowfs.api.tagging import Tag
from cowfs.api.threads import in_thread, iterated
from cowfs.api.transfer_report import TransferReport
from cowfs.api.warming import WarmReport
from cowfs.control import MountOptions
from cowfs.control.options import CACHE_DEFAULT_S, ReadOptions, WriteOptions
from cowfs.format.locator import Locator
from cowfs.format.manifest import Stats
from cowfs.maintain.push_report import PushReport
from cowfs.maintain.repair_plan import RepairPlan
from cowfs.maintain.stored_report import StoredBytes
from cowfs.maintain.verify_report import VerifyReport
from cowfs.version.commit import ProgressListener

__all__ = ["ROFiles", "ROVolume", "RWFiles", "RWVolume", "Volume", "volume"]
'''

CLASS_MEMBERS = """
    def __init__(self, blocking: {module}.{name}) -> None:
        self._blocking = blocking

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.resolve().__await__()

    async def __aenter__(self) -> Self:
        try:
            await in_thread(self._blocking.__enter__)
        except anyio.get_cancelled_exc_class() as error:  # it may have been mounted all the same
            if self._blocking.owns_mount:
                await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await in_thread(self._blocking.__exit__, kind, error, traceback)

    def __fspath__(self) -> str:
        return os.fspath(self._blocking)

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self._blocking / name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, {name}) and other._blocking == self._blocking

    def __hash__(self) -> int:
        return hash(self._blocking)

    def __reduce__(self) -> tuple[Any, ...]:
        return ({name}, (self._blocking,))

    def __repr__(self) -> str:
        return repr(self._blocking)
"""


FILES_MEMBERS = """
    _blocking: {module}.{name}

    def __init__(self, blocking: {module}.{name}) -> None:
        self._blocking = blocking
"""


def render() -> str:
    """The text of cowfs/api/asynchronous.py, formatted."""
    parts = [HEADER]
    for source in SOURCES:
        for node in ast.parse(source.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name != "Entry":
                parts.append(_class(node, source.stem))
            elif isinstance(node, ast.FunctionDef) and node.name == "volume":
                parts.append(_function(node, "volume_module.volume"))
    command = [str(Path(sys.executable).with_name("ruff")), "format", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(command, input="\n".join(parts), capture_output=True, text=True, check=True, cwd=ROOT).stdout


def _class(node: ast.ClassDef, module: str) -> str:
    bases = ", ".join(map(ast.unparse, node.bases))
    lines = ["", f"class {node.name}({bases}):", f'    """{ast.get_docstring(node, clean=False)}"""']
    if node.name in TWINS:
        lines.append(CLASS_MEMBERS.format(module=module, name=node.name))
    elif node.name in FILES:
        lines.append(FILES_MEMBERS.format(module=module, name=node.name))
    else:
        init = next(member for member in node.body if isinstance(member, ast.FunctionDef) and member.name == "__init__")
        lines.append(_indented(ast.unparse(init)))
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and _is_public(member, node.name):
            owner = "volume_module.Volume" if node.name == "Volume" else "self._blocking"
            callee = f"{owner}.{member.name}"
            lines.append(_indented(_function(member, callee)))
    return "\n".join(lines) + "\n"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())


def _is_public(node: ast.FunctionDef, owner: str) -> bool:
    """Class methods of the twins make objects; `Volume` does that for callers."""
    is_maker = owner in TWINS and "classmethod" in {ast.unparse(each) for each in node.decorator_list}
    return not node.name.startswith("_") and node.name not in LEFT_OUT and not is_maker


def _function(node: ast.FunctionDef, callee: str) -> str:
    decorators = [text for each in node.decorator_list if (text := ast.unparse(each)) != "names_locator"]
    returns = ast.unparse(node.returns) if node.returns is not None else "None"
    if returns.startswith("Iterator["):
        return _iterating(node, callee, f"Async{returns}")
    if returns == "BinaryIO":
        returns = "anyio.AsyncFile[bytes]"
    has_io = node.name not in WITHOUT_IO or callee.startswith("self.")
    waits = "property" not in decorators and has_io
    lines = [f"@{decorator}" for decorator in decorators]
    lines.append(f"{'async ' if waits else ''}def {node.name}({ast.unparse(node.args)}) -> {returns}:")
    if (doc := ast.get_docstring(node, clean=False)) is not None:
        lines.append(f'    """{doc}"""')
    if waits:
        lines += _result(f"await in_thread({_call(callee, node.args)})", returns)
    elif "property" in decorators:
        lines += _result(callee, returns)
    else:
        lines += _result(f"{callee}({', '.join(_arguments(node.args))})", returns)
    return "\n".join(lines) + "\n"


def _iterating(node: ast.FunctionDef, callee: str, returns: str) -> str:
    lines = [f"def {node.name}({ast.unparse(node.args)}) -> {returns}:"]
    lines.append(f'    """{ast.get_docstring(node, clean=False)}"""')
    at_once = f", {AT_ONCE[node.name]}" if node.name in AT_ONCE else ""
    lines.append(f"    return iterated({_call(callee, node.args)}{at_once})")
    return "\n".join(lines) + "\n"


def _call(callee: str, arguments: ast.arguments) -> str:
    given = _arguments(arguments)
    if not given:
        return callee
    return f"partial({', '.join([callee, *given])})"


def _arguments(arguments: ast.arguments) -> list[str]:
    names = [argument.arg for argument in arguments.args if argument.arg != "self"]
    named = [f"{argument.arg}={argument.arg}" for argument in arguments.kwonlyargs]
    return names + named + ([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])


def _result(value: str, returns: str) -> list[str]:
    if returns == "None":
        return [f"    {value}"]
    if returns == "Self":
        return [f"    {value}", "    return self"]
    if returns == "anyio.AsyncFile[bytes]":
        return [f"    return anyio.wrap_file({value})"]
    if returns in (*TWINS, *FILES):
        return [f"    return {returns}({value})"]
    if returns in [f"{twin} | None" for twin in TWINS]:
        return [
            f"    found = {value}",
            f"    return {returns.removesuffix(' | None')}(found) if found is not None else None",
        ]
    if returns in [f"list[{twin}]" for twin in TWINS]:
        return [f"    return [{returns[5:-1]}(each) for each in {value}]"]
    return [f"    return {value}"]


if __name__ == "__main__":
    TARGET.write_text(render())
