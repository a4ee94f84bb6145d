"""cowfs undelete NAME: brings a deleted volume back."""

from __future__ import annotations

import click

from cowfs.cli import output


@click.command("undelete")
@click.argument("name")
@output.common_options
def command(name: str, store: str | None, as_json: bool) -> None:
    """Bring volume NAME back, with all its versions. `cowfs ls --deleted` lists what was deleted.
    Prints the name."""
    from cowfs.blocking import Volume

    volume = Volume.undelete(name, store=store)
    output.say(as_json, f"Volume {name} is there again")
    output.emit(as_json, {"name": volume.name}, volume.name)
