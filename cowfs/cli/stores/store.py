"""cowfs store: shows a store. cowfs store add | ls | remove | accept: manages names of stores on
this machine, and accepts a store that has changed since this machine last saw it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output, store_screen
from cowfs.errors import Command, InvalidInputError
from cowfs.rendering import printable

if TYPE_CHECKING:
    from cowfs.storage import NamedStore

_TAKES = {"add": 2, "ls": 0, "remove": 1, "accept": 0}


@click.command("store")
@click.argument("action", type=click.Choice(list(_TAKES)), required=False)
@click.argument("name", required=False)
@click.argument("url", required=False, shell_complete=completing.directories)
@click.option("--read-only", is_flag=True, help="With add: nothing on this machine writes to the store.")
@click.option(
    "--volume", metavar="VOLUME", help="With accept: of this volume alone.", shell_complete=completing.volumes
)
@click.option("--full", is_flag=True, help="Without an action: count bytes, however long that takes.")
@output.progress_option
@output.common_options
def command(
    action: str | None,
    name: str | None,
    url: str | None,
    read_only: bool,
    volume: str | None,
    full: bool,
    progress_style: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Show the store: its volumes as a tree of forks, who writes to them, the bytes that each takes
    and takes alone (UNIQUE), and what `cowfs gc` would free. Counting bytes takes the index of each
    version that the store keeps; it is left out where that is not quick, unless --full is given.

    Or name a store on this machine (add NAME URL), list the stores that have a name (ls), remove a
    name (remove NAME), or accept a store that has changed (accept).

    A name can be used wherever a store is expected: --store NAME, `cowfs push X NAME`. NAME/VOLUME
    is a volume of that store wherever a version is read. No request is made, and the store itself
    does not change.

    accept: the store differs from the one seen by this machine, or has another key, or is gone; or
    its volumes and tags were reset to an earlier state, or are gone. Prints the known and the
    current state. First find the reason for the change: newer data is lost once others continue
    from the current state.
    """
    if action is None:
        if read_only or volume is not None:
            raise InvalidInputError("an action is missing", hint=f"{Command('store', '--help')} lists them.")
        _show(store, full=full, progress_style=progress_style, as_json=as_json)
        return
    if full:
        raise InvalidInputError(f"{action} takes no --full", hint=f"It is for {Command('store')} alone.")
    if sum(each is not None for each in (name, url)) != _TAKES[action]:
        raise InvalidInputError(
            "add takes NAME and URL, remove takes NAME, ls and accept take none",
            hint=f"{Command('store', '--help')} shows how.",
        )
    if read_only and action != "add":
        raise InvalidInputError(f"{action} takes no --read-only", hint=f"It is for {Command('store', 'add')}.")
    if action == "accept":
        _accept(store, volume, as_json=as_json)
        return
    if volume is not None or store is not None:
        raise InvalidInputError(
            f"{action} takes neither --store nor --volume", hint=f"They are for {Command('store', 'accept')}."
        )
    _name(action, name, url, read_only=read_only, as_json=as_json)


def _name(action: str, name: str | None, url: str | None, *, read_only: bool, as_json: bool) -> None:
    from cowfs import storage

    if action == "ls":
        found = storage.list_stores()
        rows = [(each.name, each.url, "read-only" if each.read_only else "") for each in found]
        if not rows:
            output.say(as_json, f"No store has a name: {Command('store', 'add', 'NAME', 'URL')} names one")
        text = output.table(("NAME", "URL", "ACCESS"), rows) if rows else ""
        output.emit(as_json, {"stores": [_record(each) for each in found]}, text)
        return
    assert name is not None
    changed = storage.add_store(name, url, read_only=read_only) if url is not None else storage.remove_store(name)
    output.say(as_json, f"{name} is {changed.url}" if url is not None else f"{name} is no longer a store's name")
    output.emit(as_json, _record(changed), changed.url)


def _record(named: NamedStore) -> dict[str, object]:
    return {"store_name": named.name, "store_url": named.url, "is_read_only": named.read_only}


def _show(store: str | None, *, full: bool, progress_style: str, as_json: bool) -> None:
    from cowfs.blocking import Store

    with output.progress(progress_style) as progress:
        found = Store(store).overview(count_bytes=True if full else None, progress=progress)
    output.emit(as_json, store_screen.record(found), store_screen.text(found))
    for problem in found.problems:
        output.say(as_json, printable(problem))
    if not found.is_counted and not found.problems:
        output.say(
            as_json,
            f"Bytes are not counted, as that takes the indexes of all versions: {Command('store', '--full')} counts them",
        )


def _accept(store: str | None, volume: str | None, *, as_json: bool) -> None:
    from cowfs import storage

    found = storage.accept_store(store, volume=volume)
    rows = [(each.subject, each.known, each.now) for each in found]
    if not found:
        output.say(as_json, "The store is as this machine has seen it")
    output.emit(
        as_json,
        {"accepted": found},
        output.table(("WHAT", "KNOWN", "NOW"), rows) if found else "",
    )
