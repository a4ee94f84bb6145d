"""cowfs log SOURCE: a version and its ancestors, newest first, across forks and merges.

For versions that are not in the store, only names are shown, and only the newest of each gap: they
were pruned and collected, or were never copied to a mirror. A column marks versions that are pruned
but still in the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output
from cowfs.errors import InvalidInputError
from cowfs.rendering import format_size, format_time, printable

if TYPE_CHECKING:
    from cowfs.blocking import ROVolume


@click.command("log")
@click.argument("source", shell_complete=completing.volumes)
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Show at most this many.")
@click.option("--graph", is_flag=True, help="Draw how the versions come from each other.")
@output.common_options
def command(source: str, limit: int | None, graph: bool, store: str | None, as_json: bool) -> None:
    """Show the versions of SOURCE (NAME, NAME@TAG, NAME@VERSION or a LOCATOR), newest first: its
    own, those of the volumes that it was forked from, and merged ones. Tags are in parentheses.
    "pruned": a collection may delete it; "not here": it is deleted, or was never in this store;
    after it the versions that the volume still keeps are shown."""
    from cowfs.api import sources
    from cowfs.api.upkeep import pruning
    from cowfs.api.versions import tagging
    from cowfs.blocking import Volume
    from cowfs.cli import versions

    if graph and as_json:
        raise InvalidInputError("--graph is for people", hint="--json has the parents of each version.")
    found = sources.find(source, store)
    past = [] if found.version is None else Volume.from_locator(found.locator()).history(limit)
    if not past:
        output.say(as_json, f"Volume {found.volume} has no version yet")
    tags = tagging.by_version(found.store, found.volume) if past else {}
    here = [each.id for each in past if not each.is_pruned]
    collectable = pruning.collectable(found.store, found.volume, here, tags) if here else set()
    record = {
        "volume": found.volume,
        "versions": [{**versions.record(each), **versions.names(each, tags, collectable)} for each in past],
    }
    output.emit(as_json, record, _text(past, tags, collectable, with_graph=graph) if past else "")


def _text(past: list[ROVolume], tags: dict[str, list[str]], collectable: set[str], *, with_graph: bool) -> str:
    known = [version for version in past if not version.is_pruned]
    has_links = any(version.stats.linked_bytes for version in known)
    has_origins = len({version.made_in for version in known}) > 1
    states = {version.id: "not here" for version in past if version.is_pruned} | dict.fromkeys(collectable, "pruned")
    header = (
        "VERSION",
        "COMMITTED",
        *(("STATE",) if states else ()),
        *(("VOLUME",) if has_origins else ()),
        "FILES",
        "SIZE",
        *(("LINKED",) if has_links else ()),
        "UPLOADED",
        "AUTHOR",
        "MESSAGE",
    )
    rows = [
        _row(version, tags.get(version.id, []), len(header), states, has_origins=has_origins, has_links=has_links)
        for version in past
    ]
    if not with_graph:
        return output.table(header, rows)
    from cowfs.cli.graph import Graph

    drawn, lanes = [], Graph()
    for version, row in zip(past, rows, strict=True):
        first, *others = lanes.lines(version.id, [] if version.is_pruned else version.parents)
        drawn += [(first, *row), *((line, *("",) * len(header)) for line in others)]
    return output.table(("", *header), drawn)


def _row(
    version: ROVolume, tags: list[str], columns: int, states: dict[str, str], *, has_origins: bool, has_links: bool
) -> tuple[str, ...]:
    state = (states.get(version.id, ""),) if states else ()
    named = f"({', '.join(tags)}) " if tags else ""
    if version.is_pruned:
        return (version.id[:12], "", *state, *("",) * (columns - 4), named.strip())
    return (
        version.id[:12],
        format_time(version.created_ns),
        *state,
        *((version.made_in,) if has_origins else ()),
        str(version.stats.files),
        format_size(version.stats.bytes),
        *((format_size(version.stats.linked_bytes),) if has_links else ()),
        format_size(version.stats.stored_bytes_added),
        printable(version.author),
        named + printable(version.message),
    )
