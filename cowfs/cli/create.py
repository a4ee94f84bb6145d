"""cowfs create NAME: makes a volume without versions, and the store when there is none. A taken
name is refused."""

from __future__ import annotations

import click

from cowfs.cli import output


@click.command("create")
@click.argument("name")
@click.option(
    "--accept-unsafe-store", is_flag=True, help="Use a store on which two writers may lose each other's work."
)
@output.common_options
def command(name: str, store: str | None, as_json: bool, accept_unsafe_store: bool) -> None:
    """Make volume NAME. Prints the name."""
    from cowfs.api import stores
    from cowfs.blocking import Volume

    volume = Volume.new(name, store=store, strict=True)
    volume.resolve(accept_unsafe_store=accept_unsafe_store)
    if note := stores.endpoint_note(store):
        output.say(as_json, note)
    output.say(as_json, f"Made volume {volume.name} in {volume.store_url}")
    output.emit(as_json, {"name": volume.name, "store_url": volume.store_url}, volume.name)
