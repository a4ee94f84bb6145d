"""Writes cowfs/api/asynchronous.py and cowfs/api/declared/asynchronous.py from the blocking
classes: `python -m tests.api.async_twin`; a test holds them current. Declarations have a file of
their own, since they load pydantic.

Each public method becomes the declaration of an async one, and each property its own, without a
body: `cowfs.api.twins` says what they do. Functions in `WITHOUT_IO` stay plain functions, and an
iterator becomes an async one.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [
    ROOT / "cowfs" / "api" / name for name in ("files.py", "ro_volume.py", "rw_volume.py", "store.py", "volume.py")
]
TARGET = ROOT / "cowfs" / "api" / "asynchronous.py"
DECLARED_SOURCES = {"Declared": ("model.Declaration", "declared.Declared"), "Plan": ("plan.Plan",)}
"""The blocking classes whose members, together, a twin has; the last one has its description."""
DECLARED_TARGET = ROOT / "cowfs" / "api" / "declared" / "asynchronous.py"
TWINS = ("RWVolume", "ROVolume")
WITHOUT_IO = {"new", "open", "volume"}
"""Of `Volume`, and `volume`."""
STORE_WITHOUT_IO = {"volume"}
DECLARED_WITHOUT_IO = {"emit", "is_named"}
AT_ONCE = {"walk": 1}
"""Iterators whose items the caller may change before the next one is made."""
LEFT_OUT = {"made", "live", "leave_work", "owns_mount", "mounted_here", "to_compare", "to_read", "to_upload", "keys_at"}
"""Of this process' own objects, for the command line and for the checks of a declaration."""

HEADER = '''"""The async twins of the public classes: the same names and arguments, awaited; under asyncio and
trio alike.

Generated from the blocking classes by `python -m tests.api.async_twin`; change those, not this
file. Every call runs in a worker thread (`cowfs.api.twins`), so that the event loop goes on. A
cancelled call still runs to its end there, and its caller waits for it: nothing is left half done.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Self, Unpack

import anyio

from cowfs.api import files, ro_volume, rw_volume
from cowfs.api import store as store_module
from cowfs.api import volume as volume_module
from cowfs.api.files import Entry, FilePath
from cowfs.api.mounts.overview import VolumeSummary
from cowfs.api.mounts.summaries import MountSummary, WorkingCopySummary
from cowfs.api.options import shows_options
from cowfs.api.storage.definition import Storage
from cowfs.api.threads import iterated
from cowfs.api.transfers.downloading import Overwrite
from cowfs.api.transfers.transfer_report import TransferReport
from cowfs.api.transfers.warming import WarmReport
from cowfs.api.twins import Twin, VolumeTwin
from cowfs.api.upkeep.collect_report import GcReport
from cowfs.api.upkeep.counting import By
from cowfs.api.upkeep.pruning import PlannedVersion, PrunePlan
from cowfs.api.versions.changes import Change, Located
from cowfs.api.versions.details import VolumeDetails
from cowfs.api.versions.merge_report import MergeReport, Strategy
from cowfs.api.versions.restoring import RestoreReport
from cowfs.api.versions.tagging import Tag
from cowfs.control import MountOptions
from cowfs.control.options import CACHE_DEFAULTS, ReadOptions, WriteOptions
from cowfs.format.locator import Locator
from cowfs.format.manifest import Stats
from cowfs.maintain.check.verify_report import VerifyReport
from cowfs.maintain.copy.push_report import PushReport
from cowfs.maintain.repairs.repair_plan import RepairPlan
from cowfs.maintain.stored_report import StoredBytes
from cowfs.version.commit import ProgressListener
from cowfs.version.retention.retention import KeepRules, Rules

__all__ = ["ROFiles", "ROVolume", "RWFiles", "RWVolume", "Store", "Volume", "volume"]
'''

STORE_INIT = """
    def __init__(self, url_or_name: str | os.PathLike[str] | None = None, *, storage: Storage | None = None) -> None:
        super().__init__(store_module.Store(url_or_name, storage=storage))
"""

DECLARED_HEADER = '''"""The async twins of `Declared` and its `Plan`: the same names and arguments, awaited; under
asyncio and trio alike.

Generated from the blocking classes by `python -m tests.api.async_twin`; change those, not this
file. What each call does is as in `cowfs.api.asynchronous`.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cowfs.api.declared import declared
from cowfs.api.declared import plan as plan_module
from cowfs.api.declared.declared_store import AnyStore, DeclaredStore
from cowfs.api.declared.model import Declaration, DeclaredVolume
from cowfs.api.storage.definition import Storage
from cowfs.api.twins import Twin
from cowfs.machine.applied import Applied
from cowfs.version.commit import ProgressListener

if TYPE_CHECKING:
    from cowfs.api.declared.applying import Hears
    from cowfs.api.declared.emitting import Kind
    from cowfs.api.declared.mounting import Outcome
    from cowfs.api.declared.plan import Step

__all__ = ["Declared", "Plan"]
'''

DECLARED_INIT = """
    def __init__(
        self,
        *,
        volumes: Sequence[DeclaredVolume | Mapping[str, Any]] = (),
        stores: Mapping[str, DeclaredStore | Storage | Mapping[str, Any] | str] | None = None,
    ) -> None:
        super().__init__(declared.Declared(volumes=volumes, stores={} if stores is None else stores))
"""


def files() -> dict[Path, str]:
    """The text of each generated file."""
    return {TARGET: render(), DECLARED_TARGET: render_declared()}


def render_declared() -> str:
    """The text of cowfs/api/declared/asynchronous.py, formatted."""
    parts = [DECLARED_HEADER]
    for sources in DECLARED_SOURCES.values():
        *parents, node = map(_class_of, sources)
        node.body[1:1] = [member for parent in parents for member in parent.body[1:]]
        parts.append(_declared(node))
    return _formatted("\n".join(parts), DECLARED_TARGET)


def _class_of(source: str) -> ast.ClassDef:
    module, name = source.split(".")
    body = ast.parse((DECLARED_TARGET.parent / f"{module}.py").read_text()).body
    return next(each for each in body if isinstance(each, ast.ClassDef) and each.name == name)


def _declared(node: ast.ClassDef) -> str:
    blocking = "declared.Declared" if node.name == "Declared" else "plan_module.Plan"
    lines = _head(node, "Twin", blocking)
    if node.name == "Declared":
        lines.append(DECLARED_INIT)
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and not (name := ast.unparse(member.target)).startswith("_"):
            lines.append(_indented(_field(name, member.annotation)))
        elif isinstance(member, ast.FunctionDef) and _is_public(member, node.name):
            lines.append(_indented(_function(member, f"self._blocking.{member.name}", DECLARED_WITHOUT_IO)))
    return "\n".join(lines) + "\n"


def _field(name: str, annotation: ast.expr) -> str:
    """A property. Checks of a field are of the blocking class."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        assert isinstance(annotation.slice, ast.Tuple)
        annotation = annotation.slice.elts[0]
    return f"@property\ndef {name}(self) -> {ast.unparse(annotation)}: ...\n"


def render() -> str:
    """The text of cowfs/api/asynchronous.py, formatted."""
    parts = [HEADER]
    for source in SOURCES:
        for node in ast.parse(source.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name != "Entry":
                parts.append(_class(node, source.stem))
            elif isinstance(node, ast.FunctionDef) and node.name == "volume":
                parts.append(_function(node, "volume_module.volume"))
    return _formatted("\n".join(parts), TARGET)


def _formatted(text: str, target: Path) -> str:
    command = [str(Path(sys.executable).with_name("ruff")), "format", "--stdin-filename", str(target), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def _class(node: ast.ClassDef, module: str) -> str:
    module = {"Store": "store_module", "Volume": "volume_module"}.get(node.name, module)
    base = "VolumeTwin" if node.name in TWINS else ", ".join(map(ast.unparse, node.bases)) or "Twin"
    lines = _head(node, base, f"{module}.{node.name}")
    if node.name == "Volume":
        init = next(member for member in node.body if isinstance(member, ast.FunctionDef) and member.name == "__init__")
        lines.append(_indented(ast.unparse(init)))
    elif node.name == "Store":
        lines.append(STORE_INIT)
    plain = STORE_WITHOUT_IO if node.name == "Store" else ()
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and _is_public(member, node.name):
            owner = "volume_module.Volume" if node.name == "Volume" else "self._blocking"
            lines.append(_indented(_function(member, f"{owner}.{member.name}", plain)))
    return "\n".join(lines) + "\n"


def _head(node: ast.ClassDef, base: str, blocking: str) -> list[str]:
    doc = _docstring(node)
    return ["", f"class {node.name}({base}, of={blocking}):", f'    """{doc}"""', f"\n    _blocking: {blocking}\n"]


def _docstring(node: ast.ClassDef | ast.FunctionDef) -> str | None:
    """As it stands between the quotes."""
    doc = ast.get_docstring(node, clean=False)
    return doc.replace("\\", "\\\\") if doc is not None else None


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())


def _is_public(node: ast.FunctionDef, owner: str) -> bool:
    """Class methods of the twins make objects; `Volume` does that for callers."""
    is_maker = owner in TWINS and "classmethod" in {ast.unparse(each) for each in node.decorator_list}
    return not node.name.startswith("_") and node.name not in LEFT_OUT and not is_maker


def _function(node: ast.FunctionDef, callee: str, plain: Collection[str] = ()) -> str:
    """plain: more names that wait for nothing."""
    decorators = [text for each in node.decorator_list if (text := ast.unparse(each)) != "names_locator"]
    returns = ast.unparse(node.returns) if node.returns is not None else "None"
    if returns.startswith("Iterator["):
        return _iterating(node, callee, f"Async{returns}")
    if returns == "BinaryIO":
        returns = "anyio.AsyncFile[bytes]"
    has_io = node.name not in plain and (node.name not in WITHOUT_IO or callee.startswith("self."))
    waits = "property" not in decorators and has_io
    lines = [f"@{decorator}" for decorator in decorators]
    lines.append(f"{'async ' if waits else ''}def {node.name}({ast.unparse(node.args)}) -> {returns}:")
    doc = _docstring(node)
    lines.append(f'    """{doc}"""' if doc is not None else "    ...")
    if has_io or "property" in decorators:
        return "\n".join(lines) + "\n"
    call = f"{callee}({', '.join(_arguments(node.args))})"
    lines.append(f"    return {f'{returns}({call})' if returns in TWINS else call}")
    return "\n".join(lines) + "\n"


def _iterating(node: ast.FunctionDef, callee: str, returns: str) -> str:
    lines = [f"def {node.name}({ast.unparse(node.args)}) -> {returns}:"]
    lines.append(f'    """{_docstring(node)}"""')
    at_once = f", {AT_ONCE[node.name]}" if node.name in AT_ONCE else ""
    given = ", ".join([callee, *_arguments(node.args)])
    lines.append(f"    return iterated(partial({given}){at_once})")
    return "\n".join(lines) + "\n"


def _arguments(arguments: ast.arguments) -> list[str]:
    names = [argument.arg for argument in arguments.args if argument.arg != "self"]
    named = [f"{argument.arg}={argument.arg}" for argument in arguments.kwonlyargs]
    return names + named + ([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
