"""cowfs mkdir: makes directories of a volume, which gets one more version; without a mount."""

from __future__ import annotations

import click

from cowfs.cli import completing, edits, output
from cowfs.cli.start import tidy_up_when_terminated


@click.command("mkdir")
@click.argument("places", metavar="NAME:PATH...", nargs=-1, required=True, shell_complete=completing.places)
@click.option("-p", "--parents", is_flag=True, help="Missing parents, too; an existing directory is no error.")
@output.version_options
@output.common_options
def command(
    places: tuple[str, ...],
    parents: bool,
    described: output.Described,
    store: str | None,
    as_json: bool,
) -> None:
    """Make a directory at each PATH of volume NAME, and commit that as one version; prints its
    locator. `cowfs create` makes a volume.

    If the volume is mounted on this machine, the directories are made in the mount, and its commit
    publishes them.
    """
    from cowfs.blocking import Store

    tidy_up_when_terminated()
    done = Store(store).mkdir(places, parents=parents, **described)
    made = f"{len(done.paths)} {'directory' if len(done.paths) == 1 else 'directories'}"
    said = f"Made {made} in {done.volume}" if done.paths else "All of it is there already"
    edits.tell(done, said, is_dry=False, as_json=as_json)
