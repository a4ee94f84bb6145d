"""cowfs pull: copies versions from another store, under the same ids."""

from __future__ import annotations

import click

from cowfs.cli import completing, output
from cowfs.cli.stores import push


@click.command("pull")
@click.argument("source", metavar="SOURCE")
@click.argument("origin", metavar="STORE", shell_complete=completing.stores)
@click.option("--as", "name", metavar="NAME", help="The volume here; default: the same name.")
@click.option(
    "--all-versions",
    is_flag=True,
    help="Also the volume's earlier versions, and its tags; says what cannot be had any more.",
)
@output.progress_option
@output.common_options
def command(
    source: str,
    origin: str,
    name: str | None,
    all_versions: bool,
    progress_style: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Copy the version that SOURCE names in STORE (NAME, NAME@TAG, NAME@VERSION, or a LOCATOR of
    it) to the default store, or the store given with --store. `cowfs push` copies the other way."""
    from cowfs.blocking import Store

    push.copy(
        lambda heard: Store(store).pull(source, origin, name=name, all_versions=all_versions, progress=heard),
        progress_style,
        as_json,
    )
