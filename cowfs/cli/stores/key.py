"""cowfs key list | add | remove: manages the secrets that open an encrypted store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cowfs.cli import output
from cowfs.errors import Command, InvalidInputError
from cowfs.rendering import format_time, printable

if TYPE_CHECKING:
    from cowfs.storage import EncryptionKey


@click.command("key")
@click.argument("action", type=click.Choice(["list", "add", "remove"]))
@click.argument("id", required=False)
@click.option("--key-file", metavar="FILE", help="Add what is in FILE: 32 random bytes or more.")
@click.option("--key-command", metavar="COMMAND", help="Add what COMMAND prints: such a key.")
@click.option("--label", default="", help="Of what is added; for people, not encrypted.")
@output.common_options
def command(
    action: str,
    id: str | None,
    key_file: str | None,
    key_command: str | None,
    label: str,
    store: str | None,
    as_json: bool,
) -> None:
    """List the secrets that open an encrypted store (list), add a passphrase, key file or command
    (add), or remove one (remove ID). Each of them opens the store.

    Without an option, add asks for a passphrase, or reads it from standard input, which must
    contain that line alone. A removed secret no longer opens the store, but still opens mirrors
    that were pushed before. A user who opened the store earlier may have kept the store's own key.
    add and remove print the ID.
    """
    if (id is None) == (action == "remove"):
        raise InvalidInputError(
            "remove takes one ID, list and add take none", hint=f"{Command('key', 'list')} shows the ID of each."
        )
    if action != "add" and (key_file is not None or key_command is not None or label):
        raise InvalidInputError(f"{action} takes no key and no label", hint=f"They are for {Command('key', 'add')}.")
    changed = id
    if id is not None:
        _remove(id, store, as_json=as_json)
    elif action == "add":
        changed = _add(key_file, key_command, label, store, as_json=as_json)
    _print(changed, store, as_json=as_json)


def _add(key_file: str | None, key_command: str | None, label: str, store: str | None, *, as_json: bool) -> str:
    from cowfs import storage

    if key_file is not None and key_command is not None:
        raise InvalidInputError("one key is added at a time", hint="Give --key-file or --key-command.")
    storage.list_keys(store)  # first: it asks for the passphrase that opens the store
    added = storage.add_key(_new_key(key_file, key_command), store, label=label)
    output.say(as_json, f"Added {added.kind} {added.id}")
    return added.id


def _remove(id: str, store: str | None, *, as_json: bool) -> None:
    from cowfs import storage

    storage.remove_key(id, store)
    output.say(as_json, f"Removed {id}")


def _print(changed: str | None, store: str | None, *, as_json: bool) -> None:
    """The ID of the changed secret; else all secrets."""
    from cowfs import storage

    found = storage.list_keys(store)
    rows = [(each.id, each.kind, format_time(each.created_ns), printable(each.label)) for each in found]
    text = output.table(("ID", "KIND", "ADDED", "LABEL"), rows)
    output.emit(as_json, {"key_id": changed, "keys": found}, changed or text)


def _new_key(key_file: str | None, key_command: str | None) -> EncryptionKey:
    from cowfs.storage import KeyCommand, KeyFile

    if key_file is not None:
        return KeyFile(key_file)
    return KeyCommand(key_command) if key_command is not None else output.new_passphrase()
