"""cowfs create NAME: makes a volume without versions, and the store when there is none. A taken
name is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cowfs.cli import output

if TYPE_CHECKING:
    from cowfs.storage import Storage


@click.command("create")
@click.argument("name")
@click.option(
    "--accept-unsafe-store", is_flag=True, help="Use a store on which two writers may lose each other's work."
)
@click.option(
    "--encrypt",
    is_flag=True,
    help="Make an encrypted store; one that is there must be encrypted. The key comes from COWFS_ENCRYPTION_PASSPHRASE, "
    "_KEY_FILE or _KEY_COMMAND, or a passphrase is asked for.",
)
@output.common_options
def command(name: str, store: str | None, as_json: bool, accept_unsafe_store: bool, encrypt: bool) -> None:
    """Make volume NAME. Prints the name."""
    from cowfs.api import stores
    from cowfs.blocking import Volume

    volume = Volume.new(name, store=_encrypted(store) if encrypt else store, strict=True)
    volume.resolve(accept_unsafe_store=accept_unsafe_store)
    if note := stores.endpoint_note(store):
        output.say(as_json, note)
    output.say(as_json, f"Made volume {volume.name} in {volume.store_url}")
    output.emit(as_json, {"name": volume.name, "store_url": volume.store_url}, volume.name)


def _encrypted(store: str | None) -> Storage:
    from cowfs.api import encryption

    key = encryption.key_of_environment()
    return encryption.encrypted(store, output.new_passphrase() if key is None else key)
