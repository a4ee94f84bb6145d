"""cowfs rm: removes files and directories of a volume, which gets one more version; without a
mount."""

from __future__ import annotations

import click

from cowfs.cli import completing, edits, output
from cowfs.cli.start import tidy_up_when_terminated
from cowfs.rendering import count


@click.command("rm")
@click.argument("places", metavar="NAME:PATH...", nargs=-1, required=True, shell_complete=completing.places)
@click.option("-r", "-R", "--recursive", is_flag=True, help="Directories, too, with everything in them.")
@click.option("-f", "--force", is_flag=True, help="A path or pattern that names nothing is no error.")
@output.dry_run_option
@output.version_options
@output.common_options
def command(
    places: tuple[str, ...],
    recursive: bool,
    force: bool,
    dry_run: bool,
    described: output.Described,
    store: str | None,
    as_json: bool,
) -> int:
    """Remove the files, links and directories at each PATH of volume NAME, and commit that as one
    version; prints its locator. PATH may be a pattern ('NAME:logs/*.txt', in quotes). If one of
    the paths cannot be removed, nothing is. Earlier versions keep what is removed.

    If the volume is mounted on this machine, the paths are removed in the mount, and its commit
    publishes that. `cowfs delete` deletes a volume.
    """
    from cowfs.blocking import Store

    tidy_up_when_terminated()
    done = Store(store).remove(
        places,
        recursive=recursive,
        missing_ok=force,
        dry_run=dry_run,
        **described,
    )
    said = f"Removed {count(len(done.paths), 'path')} of {done.volume}" if done.paths else "There is nothing to remove"
    return edits.tell(done, said, is_dry=dry_run, as_json=as_json)
