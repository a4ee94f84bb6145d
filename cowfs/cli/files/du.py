"""cowfs du: the size of the files below each directory of SOURCE[:PATH], without a mount; or the
bytes of the store that versions and volumes need."""

from __future__ import annotations

import click

from cowfs.cli import completing, output
from cowfs.errors import InvalidInputError
from cowfs.rendering import count, format_size, printable

SHOWN_ID = 12


@click.command("du")
@click.argument("place", metavar="[SOURCE[:PATH]]", required=False, shell_complete=completing.volumes)
@click.option("-s", "--summarize", is_flag=True, help="Only the sum.")
@click.option("--stored", is_flag=True, help="What the store keeps for versions or volumes, and for nothing else.")
@click.option(
    "--by",
    type=click.Choice(["version", "volume", "owner", "store"]),
    help="With --stored: for each of these; default: versions of SOURCE, else volumes.",
)
@output.common_options
def command(place: str | None, summarize: bool, stored: bool, by: str | None, store: str | None, as_json: bool) -> None:
    """Show size and number of the files below each directory of PATH in SOURCE (NAME, NAME@TAG,
    NAME@VERSION or a LOCATOR). Sizes are as programs read them; the store holds less. A file
    with two names counts twice here, and once in the sums of `cowfs ls` and `cowfs log`, where
    links count as well.

    With --stored, show instead how many bytes of the store each version of SOURCE, or each volume
    of the store, needs, and how many of these nothing else needs. Deleted volumes occupy the store
    as long as they can be restored.
    """
    if stored:
        if summarize:
            raise InvalidInputError("--summarize is about directories", hint="Use --by store for the sum.")
        _show_stored(place, by, store, as_json)
    elif place is None or by is not None:
        raise InvalidInputError(
            "a SOURCE is missing" if place is None else "--by needs --stored", hint="Give SOURCE, or --stored."
        )
    else:
        _show_files(place, summarize, store, as_json)


def _show_files(place: str, summarize: bool, store: str | None, as_json: bool) -> None:
    from cowfs.blocking import Store

    found = Store(store).usage(place)
    shown = found.directories[-1:] if summarize else found.directories
    header = ("SIZE", "FILES", "PATH")
    rows = [(format_size(each.bytes), str(each.files), output.name(each.path)) for each in shown]
    record = {"locator": found.locator, "usage": shown}
    output.emit(as_json, record, output.table(header, rows, without=("FILES",)))


def _show_stored(place: str | None, by: str | None, store: str | None, as_json: bool) -> None:
    from cowfs.blocking import Store

    found = Store(store).stored_bytes(place, by=by)  # type: ignore[arg-type]  # click has checked it
    rows = [
        (
            format_size(each.stored_bytes),
            format_size(each.unique_bytes),
            format_size(each.shared_bytes),
            *(() if found.by == "version" else (str(each.version_count),)),
            printable(each.group[:SHOWN_ID] if found.by == "version" else each.group)
            + (" (deleted)" if each.is_deleted else "")
            + _mark_purged(each.purged_count, found.by),
        )
        for each in found.groups
    ]
    header = ("STORED", "UNIQUE", "SHARED", *(() if found.by == "version" else ("VERSIONS",)), found.by.upper())
    output.emit(as_json, found, output.table(header, rows, without=("VERSIONS", "SHARED")))


def _mark_purged(versions: int, by: str) -> str:
    if not versions:
        return ""
    return " (purged)" if by == "version" else f" ({count(versions, 'version')} purged)"
