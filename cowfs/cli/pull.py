"""cowfs pull: versions copied from another store, under the same ids."""

from __future__ import annotations

import click

from cowfs.cli import completing, output, push


@click.command("pull")
@click.argument("source", metavar="SOURCE")
@click.argument("origin", metavar="STORE", shell_complete=completing.directories)
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
    """Copy the version that SOURCE means in STORE (NAME, NAME@TAG, NAME@VERSION, or a LOCATOR of
    it) to the default store, or the one that --store names, as `cowfs push` does the other way."""
    from cowfs.blocking import Volume

    push.copy(
        lambda heard: Volume.pull(source, origin, store=store, name=name, all_versions=all_versions, progress=heard),
        progress_style,
        as_json,
    )
