"""Writes docs/reference/commands.md and api.md from the code: `python -m tests.docs.reference`; a
test holds them current.

docs/reference/settings.md is written by hand; the test checks that it names every environment
variable that cowfs reads.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click

from cowfs import blocking, errors, mounts, rendering, storage
from cowfs.api import asynchronous
from cowfs.api.declared.locking import LockedVersion, LockReport, ReleasedTag
from cowfs.api.declared.model import Declaration
from cowfs.api.declared.mounting import Outcome
from cowfs.api.declared.plan import Plan, Step
from cowfs.blocking import Declared, DeclaredStore, DeclaredVolume
from cowfs.cli.commands import COMMANDS, GROUPS, module_of
from cowfs.cli.main import cowfs
from cowfs.control import MountOptions
from tests.docs.json_page import DOCUMENTS, WITHOUT_DOCUMENT

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "docs" / "reference"
BAR = "\\|"
CLASSES = (blocking.Store, blocking.Volume, blocking.RWVolume, blocking.ROVolume, blocking.ROFiles, blocking.RWFiles)


def commands() -> str:
    """Every command's help, as `cowfs COMMAND --help` prints it at 100 columns."""
    parts = [
        "# Commands\n\nGenerated from the code by `python -m tests.docs.reference`.\n",
        "Results go to stdout, progress and messages to stderr. `--json` prints one JSON document; a failure prints",
        '`{"error": {"kind", "message", "hint", "details"}}` and exits with the code of its kind.\n',
        "Names and paths in results are written byte for byte into a pipe or a file, whatever they hold. On a terminal what",
        "cannot be printed is shown as a space. A name may hold tabs and ends of lines: scripts use `-0` or `--json`.\n",
        _block(cowfs.get_help(_context())),
        *_table(),
    ]
    for name in COMMANDS:
        command = importlib.import_module(module_of(name)).command
        command._help_option = None  # click keeps that of the first context, perhaps of another test
        parts.append(f"\n## cowfs {name}\n\n{_block(command.get_help(_context(command, name)))}")
    return "\n".join(parts) + "\n"


def _table() -> Iterator[str]:
    yield "\n## Arguments and JSON documents\n"
    yield "A source comes first and the target last; options name the store. The last column has the fields of"
    yield "what the command prints with `--json`, which `json.md` explains.\n"
    yield "| group | command | what it does | arguments | JSON document |\n|---|---|---|---|---|"
    for group, commands in GROUPS.items():
        for name, summary in commands.items():
            command = importlib.import_module(module_of(name)).command
            context = _context(command, name)
            arguments = [each.make_metavar(context) for each in command.params if isinstance(each, click.Argument)]
            cells = (
                group,
                f"[`{name}`](#cowfs-{name})",
                summary,
                f"`{' '.join(arguments)}`" if arguments else "",
                "; ".join(_documents(name)),
            )
            yield f"| {' | '.join(each.replace('|', BAR) for each in cells)} |"


def _documents(command: str) -> Iterator[str]:
    """The JSON documents of a command, with their fields."""
    if command in WITHOUT_DOCUMENT:
        yield WITHOUT_DOCUMENT[command]
    for title, records in DOCUMENTS.items():
        if title.split()[0] == command:
            anchor = re.sub(r"[^a-z0-9 -]", "", f"cowfs {title}".lower()).replace(" ", "-")
            yield f"[`{title}`](json.md#{anchor}): {', '.join(f'`{field}`' for field in records[''])}"


def api() -> str:
    """The public classes, as the blocking ones have them, the mount options and the errors."""
    parts = [
        "# Python\n\nGenerated from the code by `python -m tests.docs.reference`.\n",
        "`from cowfs import Store, Volume, volume` gives the async classes, for asyncio and trio. Their methods are",
        "awaited, except `Volume.new`, `Volume.open`, `Store.volume` and `volume`, which do no I/O.",
        "`from cowfs.blocking import ...` gives the same names without `await`.\n",
        _iterators(),
        "A call that is cancelled still runs to its end: its caller sees the cancellation when it is",
        "over. What the end of an `async with` block has to do is done for a cancelled caller, too.\n",
        "Objects of both kinds compare equal, and unpickle as what they were. Both raise the errors of `cowfs.errors`.\n",
        f"## list_twins\n\n{inspect.getdoc(blocking.list_twins)}",
        f"\n## run_program\n\n{_block('run_program' + _short(str(inspect.signature(blocking.run_program))))}\n",
        f"{inspect.getdoc(blocking.run_program)}",
        *(
            f"\n## {each.__name__}\n\n{_block(each.__name__ + _short(str(inspect.signature(each))))}\n\n{inspect.getdoc(each)}"
            for each in (blocking.task, blocking.current, blocking.checkpoints, blocking.map)
        ),
    ]
    for owner in CLASSES:
        parts.append(f"\n## {owner.__name__}\n\n{inspect.getdoc(owner)}")
        twin = getattr(asynchronous, owner.__name__)  # what that has not is of the blocking ones' own use
        parts += [f"\n### {title}\n\n{text}" for title, text in _members(owner) if hasattr(twin, title.strip("`"))]
    parts.append(f"\n## Checkpoints\n\n{inspect.getdoc(blocking.Checkpoints)}")
    parts += [f"\n### {title}\n\n{text}" for title, text in _members(blocking.Checkpoints)]
    parts += _reports()
    parts += _storage()
    parts += _module(mounts)
    parts += _module(rendering)
    parts += _declared()
    parts.append(f"\n## Mount options\n\n{_block(inspect.getdoc(MountOptions) or '')}")
    parts.append("\n## Errors\n\n`cowfs.errors`; each has `message`, `hint`, `details` and a stable `kind`.\n")
    parts.append("| kind | class | exit code | what to do |\n|---|---|---|---|")
    for kind, each in sorted(errors.BY_KIND.items()):
        meaning = (inspect.getdoc(each) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        parts.append(f"| `{kind}` | `{each.__name__}` | {each.exit_code} | {meaning} |")
    return "\n".join(parts) + "\n"


def _iterators() -> str:
    """Says which methods of the async classes are not awaited."""
    names = {
        name: None
        for owner in CLASSES
        for name, member in vars(getattr(asynchronous, owner.__name__)).items()
        if inspect.isfunction(member) and str(member.__annotations__.get("return")).startswith("AsyncIterator")
    }
    listed = ", ".join(f"`{name}`" for name in names)
    return (
        f"Async methods that return an `Iterator` below ({listed}) are not awaited. They return async\n"
        "iterators: `async for change in version.diff(other)`.\n"
    )


def _storage() -> Iterator[str]:
    yield f"\n## cowfs.storage\n\n{inspect.getdoc(storage)}"
    for made in (storage.Storage, *storage.PRESETS.values()):
        said = _short(str(inspect.signature(made)))
        yield f"\n### `{made.__name__}`\n\n{_block(made.__name__ + said)}\n\n{inspect.getdoc(made)}"
    yield f"\n### `Objects`\n\n{inspect.getdoc(storage.Objects)}"
    for title, text in _members(storage.Objects):
        yield f"\n#### {title}\n\n{text}"
    for each in (
        storage.KeyFile,
        storage.KeyCommand,
        storage.list_keys,
        storage.add_key,
        storage.remove_key,
        storage.accept_store,
        storage.add_store,
        storage.list_stores,
        storage.remove_store,
        storage.encrypted,
        storage.key_of_environment,
        storage.protocols,
        storage.trust_server,
        storage.use_passphrase,
    ):
        said = _short(str(inspect.signature(each)))
        yield f"\n### `{each.__name__}`\n\n{_block(each.__name__ + said)}\n\n{inspect.getdoc(each)}"


def _reports() -> Iterator[str]:
    yield "\n## Results\n\nValues that the methods above return."
    for name in sorted(blocking.__all__):
        owner = getattr(blocking, name)
        if (
            isinstance(owner, type)
            and owner.__module__.startswith(("cowfs.api", "cowfs.maintain"))
            and (dataclasses.is_dataclass(owner) or name in ("Changes", "GcPlan", "PurgePlan", "VolumeChanges"))
        ):
            yield f"\n### `{name}`\n\n{_block(inspect.getdoc(owner) or '')}"
            for title, text in _members(owner):
                yield f"\n#### {title}\n\n{text}"


def _module(module: ModuleType) -> Iterator[str]:
    yield f"\n## {module.__name__}\n\n{_block(inspect.getdoc(module) or '')}"
    for name in module.__all__:
        each = getattr(module, name)
        if inspect.isfunction(each):
            yield f"\n### `{name}`\n\n{_block(name + _short(str(inspect.signature(each))))}\n\n{inspect.getdoc(each)}"
        else:
            yield f"\n### `{name}`\n\n{_block(inspect.getdoc(each) or '')}"
            for title, text in _members(each):
                yield f"\n#### {title}\n\n{text}"


def _declared() -> Iterator[str]:
    yield (
        "\n## Declared\n\n`cowfs.blocking.Declared`; `docs/guide/declared.md` explains it. Of `cowfs.Declared`, the async twin,\n"
        "all methods but `emit` are awaited, and a plan's `apply`.\n\n"
        f"{inspect.getdoc(Declared)}"
    )
    for title, text in (*_members(Declaration), *_members(Declared)):
        if title.strip("`") in (
            "file",
            "load",
            "load_manifest",
            "lock",
            "find_misfits",
            "release_lock",
            "warm",
            "find",
            "allow",
            "allow_content",
            "plan",
            "plan_deletion",
            "emit",
            "up",
            "down",
            "unmount",
        ):
            yield f"\n### {title}\n\n{text}"
    for owner in (DeclaredVolume, DeclaredStore, Plan, Step, Outcome, LockReport, LockedVersion, ReleasedTag):
        yield f"\n### `{owner.__name__}`\n\n{_block(inspect.getdoc(owner) or '')}"


def variables() -> set[str]:
    """Every COWFS_ variable that the installed package reads."""
    sources = [*(ROOT / "cowfs").rglob("*.py"), *(ROOT / "native").glob("*/src/**/*.rs")]
    return {name for path in sources for name in re.findall(r"\bCOWFS_[A-Z_]+\b", path.read_text())}


def _context(command: click.Command | None = None, name: str = "") -> click.Context:
    """As `main` makes it, but for the width."""
    group = click.Context(cowfs, info_name="cowfs", **{**cowfs.context_settings, "terminal_width": 100})
    return group if command is None else click.Context(command, parent=group, info_name=name)


def _members(owner: type) -> Iterator[tuple[str, str]]:
    for name, member in vars(owner).items():
        text = inspect.getdoc(getattr(owner, name)) or ""
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"`{name}`", text
        elif callable(getattr(owner, name)):
            said = str(inspect.signature(getattr(owner, name))).replace("(self, ", "(").replace("(self)", "()")
            yield f"`{name}`", f"{_block(name + _short(said))}\n\n{text}"


def _short(said: str) -> str:
    """Without the modules of annotations and without quotes around them, one argument a line where
    it is long."""
    said = re.sub(r"""(: |-> )(['"])(.*?)\2""", r"\1\3", said)
    said = re.sub(r"\b(?:cowfs|collections|pathlib|typing|os)(?:\.\w+)*\.(\w)", r"\1", said)
    if len(said) <= 90:
        return said
    inside, _, returns = said.rpartition(") -> ")
    lines = re.split(r", (?=\w+:|\*,|\w+=)", inside.removeprefix("("))
    return "(\n    " + ",\n    ".join(lines) + f",\n) -> {returns}"


def _block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"


FILES = {"commands.md": commands, "api.md": api}

if __name__ == "__main__":
    for file, render in FILES.items():
        (PLACE / file).write_text(render())
