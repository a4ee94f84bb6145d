"""cowfs create NAME: creates a volume without versions, and the store if it does not exist. A taken
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
@click.option(
    "--no-compress",
    is_flag=True,
    help="Store contents of files as they are: how well they compress tells of them who sees the sizes of an encrypted store.",
)
@click.option(
    "--new-store",
    is_flag=True,
    help="Make a store also where this machine has used one that is not there now.",
)
@output.common_options
def command(
    name: str,
    store: str | None,
    as_json: bool,
    accept_unsafe_store: bool,
    encrypt: bool,
    no_compress: bool,
    new_store: bool,
) -> None:
    """Make volume NAME. Prints the name."""
    from cowfs.blocking import Store

    asked = Store(storage=_requires_encryption(store)) if encrypt else Store(store)
    volume = asked.create(name, compress=not no_compress, accept_unsafe_store=accept_unsafe_store, new_store=new_store)
    if note := Store(store).endpoint_note:
        output.say(as_json, note)
    output.say(as_json, f"Made volume {volume.name} in {volume.store_url}")
    output.emit(as_json, {"volume": volume.name, "store_url": volume.store_url}, volume.name)


def _requires_encryption(store: str | None) -> Storage:
    from cowfs import storage

    key = storage.key_of_environment()
    return storage.encrypted(store, output.new_passphrase() if key is None else key)
