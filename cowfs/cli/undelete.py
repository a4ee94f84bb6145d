"""cowfs undelete NAME: brings a deleted volume back."""

from __future__ import annotations

import click

from cowfs.cli import output


@click.command("undelete")
@click.argument("name")
@output.common_options
def command(name: str, store: str | None, as_json: bool) -> None:
    """Bring volume NAME back, with all its versions. `cowfs ls --deleted` lists what was deleted.
    One that is not deleted stays as it is. Prints the name."""
    from cowfs.api import deleting, names, stores

    name = names.checked(name)
    was_deleted = deleting.undelete(name, stores.name(store))
    output.say(as_json, f"Volume {name} is {'there again' if was_deleted else 'not deleted: there is nothing to do'}")
    output.emit(as_json, {"name": name}, name)
