"""cowfs fork SOURCE NAME: a volume that starts from a version and shares every byte. A taken name is refused.

A volume that is mounted here is committed first, so that the fork has what its files show.
"""

from __future__ import annotations

import click

from cowfs.cli import output


@click.command("fork")
@click.argument("source")
@click.argument("name")
@output.common_options
def command(source: str, name: str, store: str | None, as_json: bool) -> None:
    """Make volume NAME from SOURCE (NAME, NAME@TAG, NAME@VERSION or a LOCATOR). Prints the new name."""
    from cowfs.api import names, sources
    from cowfs.blocking import Volume

    wanted = names.checked(name)
    found = sources.find(source, store)
    if found.is_writable:
        fork = Volume.open(found.volume, store=found.store.url).fork(wanted, strict=True)
    else:
        fork = Volume.from_locator(found.locator()).fork(wanted, strict=True)
    locator = fork.locator
    output.say(as_json, f"Made volume {fork.name} from {source}")
    output.emit(as_json, {"name": fork.name, "locator": locator, "store_url": fork.store_url}, fork.name)
