"""cowfs fork SOURCE NAME: creates a volume that starts from a version and shares every byte. A
taken name is refused.

A volume with uncommitted work on this machine is committed first, so that the fork has the current
files. A volume without a version gets a first, empty one. If another writer has overtaken the work,
it moves to the fork instead, and its mount ends. The command reports each of these.
"""

from __future__ import annotations

import click

from cowfs.cli import completing, output
from cowfs.rendering import printable


@click.command("fork")
@click.argument("source", shell_complete=completing.volumes)
@click.argument("name")
@output.common_options
def command(source: str, name: str, store: str | None, as_json: bool) -> None:
    """Create volume NAME from SOURCE (NAME, NAME@TAG, NAME@VERSION or a LOCATOR). Prints the new
    name.

    If SOURCE is a bare NAME, its uncommitted work on this machine is committed first. If another
    writer has the volume or has made a newer version, the work cannot be committed: it moves to
    NAME, not yet in a version, and SOURCE's mount ends.
    """
    from cowfs.blocking import Store

    done = Store(store).fork(source, name)
    for note in done.notes:
        output.say(as_json, printable(note))
    record = {
        "volume": done.name,
        "locator": done.locator,
        "store_url": done.store_url,
        "committed_locator": done.committed_locator,
        "has_uncommitted": done.has_uncommitted,
    }
    output.emit(as_json, record, done.name)
