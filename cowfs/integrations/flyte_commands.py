"""`flyte cowfs show` and `flyte cowfs explore`: the versions among the results of a run. Flyte's
command line loads them by the entry point `flyte.plugins.cli.commands`.

Results are searched as text, so that volumes in lists, models and dataclasses are found, too.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from cowfs.blocking import Volume
from cowfs.errors import CowfsError
from cowfs.rendering import count, format_size

OUTPUTS = "outputs.pb"
_LOCATOR = re.compile(r"""cowfs\+[^\s'"]+?@[0-9a-f]{64}(?:/[^\s'",\])}]+)?""")


class Result(NamedTuple):
    action: str
    output: str  # the name that Flyte gives it: o0, o1, …; empty where Flyte's text does not tell
    locator: str


@click.group()
def cowfs() -> None:
    """Volumes in the results of runs."""


@cowfs.command()
@click.argument("run")
@click.argument("action", required=False)
def show(run: str, action: str | None) -> None:
    """Show the versions among the results of RUN, or of one ACTION of it.

    RUN is the name of a run, or the path of an outputs.pb or of its directory. Local runs have a
    name that is kept if Flyte records them (flyte.init(local_persistence=True)). Other names are
    looked up on the server that Flyte is configured for.
    """
    found = {(each.action, each.locator) for each in _find(run, action)}
    for name, locator in sorted(found):
        click.echo(f"{name}  {locator}\n    {_describe(locator)}")
    if not found:
        click.echo("No volumes are among the results.", err=True)


@cowfs.command()
@click.argument("run")
@click.argument("action", required=False)
@click.option("--output", metavar="NAME", help="The result with this name: o0, o1, …")
def explore(run: str, action: str | None, output: str | None) -> None:
    """Look at a version among the results of RUN, or of one ACTION of it, in the terminal.

    RUN and ACTION are those of `flyte cowfs show`. If several versions are among the results, they
    are listed, and ACTION or --output has to choose one. The keys are those of `cowfs explore`,
    which needs cowfs-volumes[tui].
    """
    found = [each for each in _find(run, action) if output in (None, each.output)]
    locators = sorted({each.locator for each in found})
    if len(locators) > 1:
        listed = "\n".join(f"  {each.action} --output {each.output or '?'}  {each.locator}" for each in found)
        raise click.ClickException(f"{len(locators)} versions are among the results; choose one:\n{listed}")
    if not locators:
        raise click.ClickException("no volumes are among these results; `flyte cowfs show RUN` lists all of a run")
    os.execv(sys.executable, [sys.executable, "-m", "cowfs", "explore", locators[0]])


def _find(run: str, action: str | None) -> list[Result]:
    """Without duplicates, in Flyte's order."""
    found = [
        Result(name, output, locator)
        for name, text in _results(run, action)
        for output, value in _outputs(text)
        for locator in _LOCATOR.findall(value)
    ]
    return list(dict.fromkeys(found))


def _outputs(text: str) -> list[tuple[str, str]]:
    """(name of the output, its value as text). Flyte writes results as a dict of Python."""
    try:
        outputs = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return [("", text)]
    return [(str(name), str(value)) for name, value in outputs.items()] if isinstance(outputs, dict) else [("", text)]


def _describe(locator: str) -> str:
    try:
        version = Volume.from_locator(locator).resolve()
    except CowfsError as error:
        return f"cannot be read: {error.message}"
    parts = [count(version.stats.files, "file"), format_size(version.stats.bytes)]
    if parents := version.parents:
        parts.append(f"made from {', '.join(each[:12] for each in parents)}")
    if origin := version.produced_by:
        told = [f"{key} {origin[key]}" for key in ("run", "action", "output") if key in origin]
        parts.append(f"by {', '.join(told) or origin['host']}")
    return ", ".join(parts)


def _results(run: str, action: str | None) -> Iterator[tuple[str, str]]:
    """(name of the action, its results as text)."""
    path = Path(run) / OUTPUTS if Path(run).is_dir() else Path(run)
    if path.is_file():
        return iter([(path.parent.name, _read(path))])
    return iter(_local_results(run, action) or _remote_results(run, action))


def _read(path: Path) -> str:
    from flyte.types import literal_string_repr
    from flyteidl2.task import common_pb2
    from google.protobuf.message import DecodeError

    try:
        return str(literal_string_repr(common_pb2.Outputs.FromString(path.read_bytes())))
    except DecodeError as error:
        raise click.ClickException(f"{path} holds no results of an action") from error


def _local_results(run: str, action: str | None) -> list[tuple[str, str]]:
    """Empty: Flyte has recorded no such run here."""
    from flyte._persistence._run_store import RunStore

    store: Any = RunStore
    store.initialize_sync()
    return [
        (each.short_name or each.action_name, each.outputs or "")
        for each in store.list_actions_for_run_sync(run)
        if action in (None, each.action_name, each.short_name)
    ]


def _remote_results(run: str, action: str | None) -> list[tuple[str, str]]:
    import flyte.errors
    from flyte.remote import ActionDetails
    from flyte.syncify import syncify
    from flyte.types import literal_string_repr
    from flyteidl2.core import literals_pb2

    name = action or "a0"

    async def fetch() -> Any:
        details = await ActionDetails.get.aio(run_name=run, name=name)
        return await details.output_literals()

    try:
        flyte.init_from_config()
        found = syncify(fetch)()
    except flyte.errors.BaseRuntimeError as error:
        raise click.ClickException(
            f"{run} is no file, and no local run that Flyte has recorded; and Flyte's server: {error}"
        ) from error
    return [(name, str(literal_string_repr(literals_pb2.LiteralMap(literals=found))))]
