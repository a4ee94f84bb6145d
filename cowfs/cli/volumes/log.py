"""cowfs log SOURCE[:PATH]: a version and its ancestors, newest first, across forks and merges, or
those of them that changed a path.

For versions that are not in the store, only names are shown, and only the newest of each gap: they
were pruned and collected, or were never copied to a mirror. A column marks versions that are pruned
but still in the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output
from cowfs.errors import InvalidInputError
from cowfs.rendering import count, first_line, format_size, format_time, printable

if TYPE_CHECKING:
    from cowfs.blocking import Change, ROVolume, VersionLog, VersionNames

LEFT_OUT = ("UPLOADED", "FILES", "AUTHOR", "LINKED", "SIZE", "VOLUME")
"""Columns that a narrow terminal does without, first the least needed."""


@click.command("log")
@click.argument("source", metavar="SOURCE[:PATH]", shell_complete=completing.volumes)
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Show at most this many.")
@click.option("--graph", is_flag=True, help="Draw how the versions come from each other; then not by time.")
@click.option(
    "--label",
    "conditions",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only versions with this label; several: with all. Also 'KEY<NUMBER', <=, > and >=, in quotes.",
)
@output.common_options
def command(
    source: str, limit: int | None, conditions: tuple[str, ...], graph: bool, store: str | None, as_json: bool
) -> None:
    """Show the versions of SOURCE (NAME, NAME@TAG, NAME@VERSION or a LOCATOR), newest first: its
    own, those of the volumes that it was forked from, and merged ones. Tags are in parentheses.
    "purged": its files are gone; "pruned": a collection may delete it; "not here": it is deleted,
    or was never in this store; after it the versions that the volume still keeps are shown. Of a
    message, the first line is shown, as far as the terminal has room; `cowfs show` has all of it. A
    narrow terminal does without some columns.

    With --graph, the first parents of a version are one line, and each other parent of a merge
    begins a line to the right. FROM names a parent that is not in the line below.

    SOURCE:PATH shows the versions that changed PATH or anything below it, also under the names that
    it had before it was moved, and what each of them changed."""
    from cowfs.blocking import Store
    from cowfs.cli import versions

    if graph and as_json:
        raise InvalidInputError("--graph is for people", hint="--json has the parents of each version.")
    found = Store(store).log(source, labels=conditions or None, limit=limit)
    if graph and (found.changes or conditions):
        raise InvalidInputError(
            "the log of a path, or with --label, has gaps", hint="Leave out --graph, or the path and --label."
        )
    if not found.versions:
        none = (
            f"No version of {found.volume} has these labels"
            if conditions
            else f"Volume {found.volume} has no version yet"
        )
        output.say(as_json, none)
    record = {
        "volume": found.volume,
        "versions": [versions.record_named(each, found.names[each.id]) for each in found.versions],
        "changes_by_version": found.changes,
    }
    text = _text(found, with_graph=graph) if found.versions else ""
    output.emit(as_json, record, text)


def _describe(changes: list[Change]) -> str:
    """What a version changed at a path, in a few words."""
    if len(changes) > 1:
        return count(len(changes), "path")
    return "".join(
        f"renamed from {printable(each.old_path or '')}" if each.kind == "renamed" else each.kind for each in changes
    )


def _text(found: VersionLog, *, with_graph: bool) -> str:
    past = found.versions
    known = [version for version in past if not version.is_pruned]
    has_links = any(version.stats.linked_bytes for version in known)
    has_origins = any(version.made_in != found.volume for version in known)
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
        *(("CHANGE",) if found.changes else ()),
        "MESSAGE",
    )
    rows = [
        _row(
            version,
            found.names[version.id].tag_names,
            len(header),
            (states[version.id],) if has_states else (),
            has_origins=has_origins,
            has_links=has_links,
            change=(_describe(found.changes[version.id]),) if found.changes else (),
        )
        for version in past
    ]
    if not with_graph:
        return output.table(header, rows, without=LEFT_OUT, is_cut=True)
    from cowfs.rendering import draw_graph

    row_of = {version.id: row for version, row in zip(past, rows, strict=True)}
    lines = draw_graph({version.id: [] if version.is_pruned else version.parents for version in past})
    others = [", ".join(parent[:12] for parent in each.others) for each in lines]
    has_others = any(others)
    drawn = [
        (each.lanes, *row_of[each.version][:1], *((other,) if has_others else ()), *row_of[each.version][1:])
        for each, other in zip(lines, others, strict=True)
    ]
    whole = ("", header[0], *(("FROM",) if has_others else ()), *header[1:])
    return output.table(whole, drawn, without=LEFT_OUT, is_cut=True)


def _state(version: ROVolume, names: VersionNames) -> str:
    if version.is_pruned:
        return "not here"
    return "purged" if names.is_purged else "pruned" if names.is_collectable else ""


def _row(
    version: ROVolume,
    tags: list[str],
    columns: int,
    state: tuple[str, ...],
    *,
    has_origins: bool,
    has_links: bool,
    change: tuple[str, ...],
) -> tuple[str, ...]:
    named = f"({', '.join(tags)})" if tags else ""
    if version.is_pruned:
        return (version.id[:12], "", *state, *("",) * (columns - 4), named)
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
        *change,
        " ".join(filter(None, (named, first_line(version.message)))),
    )
