"""cowfs mv: renames files and directories of a volume, which gets one more version; without a
mount."""

from __future__ import annotations

import click

from cowfs.cli import completing, edits, output
from cowfs.cli.start import tidy_up_when_terminated
from cowfs.rendering import count


@click.command("mv")
@click.argument("sources", metavar="NAME:PATH...", nargs=-1, required=True, shell_complete=completing.places)
@click.argument("target", metavar="NAME:PATH", shell_complete=completing.places)
@click.option("-f", "--force", is_flag=True, hidden=True, help="Habit of other programs: files are replaced anyway.")
@output.dry_run_option
@output.version_options
@output.common_options
def command(
    sources: tuple[str, ...],
    target: str,
    force: bool,
    dry_run: bool,
    described: output.Described,
    store: str | None,
    as_json: bool,
) -> int:
    """Move each PATH of volume NAME to the last one, and commit that as one version; prints its
    locator. No content is transferred.

    If the target is a directory or ends in "/", or if there are several sources or a pattern
    ('NAME:raw/*.png', in quotes), they go into the target under their own names. Missing
    directories of the target are created. A file or link at the target is replaced.

    If the volume is mounted on this machine, the paths are moved in the mount, and its commit
    publishes that.
    """
    from cowfs.blocking import Store

    tidy_up_when_terminated()
    done = Store(store).move(sources, target, dry_run=dry_run, **described)
    return edits.tell(done, f"Moved {count(len(done.paths), 'path')} of {done.volume}", is_dry=dry_run, as_json=as_json)
