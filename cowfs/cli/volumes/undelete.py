"""cowfs undelete NAME: restores a deleted volume."""

from __future__ import annotations

import click

from cowfs.cli import output


@click.command("undelete")
@click.argument("name")
@output.common_options
def command(name: str, store: str | None, as_json: bool) -> None:
    """Restore volume NAME, with all its versions. `cowfs ls --deleted` lists the deleted volumes. A
    volume that is not deleted stays as it is. Prints the name."""
    from cowfs.blocking import Store

    name = name.removeprefix("/")
    was_deleted = Store(store).undelete(name)
    output.say(as_json, f"Volume {name} is {'there again' if was_deleted else 'not deleted: there is nothing to do'}")
    output.emit(as_json, {"volume": name}, name)
