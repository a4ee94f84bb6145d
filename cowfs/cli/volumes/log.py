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
    from cowfs.blocking import ROVolume, VersionLog, VersionNames


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
    from cowfs.blocking import Store
    from cowfs.cli import versions

    if graph and as_json:
        raise InvalidInputError("--graph is for people", hint="--json has the parents of each version.")
    found = Store(store).log(source, limit=limit)
    if not found.versions:
        output.say(as_json, f"Volume {found.volume} has no version yet")
    record = {
        "volume": found.volume,
        "versions": [versions.record_named(each, found.names[each.id]) for each in found.versions],
    }
    output.emit(as_json, record, _text(found, with_graph=graph) if found.versions else "")


def _text(found: VersionLog, *, with_graph: bool) -> str:
    past = found.versions
    known = [version for version in past if not version.is_pruned]
    has_links = any(version.stats.linked_bytes for version in known)
    has_origins = len({version.made_in for version in known}) > 1
    states = {each.id: _state(each, found.names[each.id]) for each in past}
    has_states = any(states.values())
    header = (
        "VERSION",
        "COMMITTED",
        *(("STATE",) if has_states else ()),
        *(("VOLUME",) if has_origins else ()),
        "FILES",
        "SIZE",
        *(("LINKED",) if has_links else ()),
        "UPLOADED",
        "AUTHOR",
        "MESSAGE",
    )
    rows = [
        _row(
            version,
            found.names[version.id].tags,
            len(header),
            (states[version.id],) if has_states else (),
            has_origins=has_origins,
            has_links=has_links,
        )
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


def _state(version: ROVolume, names: VersionNames) -> str:
    return "not here" if version.is_pruned else "pruned" if names.is_collectable else ""


def _row(
    version: ROVolume, tags: list[str], columns: int, state: tuple[str, ...], *, has_origins: bool, has_links: bool
) -> tuple[str, ...]:
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
