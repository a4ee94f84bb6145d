"""cowfs rollback: makes an older version a volume's next version, or the content of the working
copy of a mount."""

from __future__ import annotations

import click

from cowfs.cli import completing, output
from cowfs.cli.start import tidy_up_when_terminated
from cowfs.cli.volumes.restore import tell


@click.command("rollback")
@click.argument("source", shell_complete=completing.volumes)
@click.argument("name", metavar="[NAME]", required=False, shell_complete=completing.volumes)
@output.version_options
@output.dry_run_option
@output.common_options
def command(
    source: str, name: str | None, described: output.Described, dry_run: bool, store: str | None, as_json: bool
) -> int:
    """Make the next version of a volume equal to SOURCE (NAME@TAG, NAME@VERSION, NAME@{3} or a
    LOCATOR); prints its locator. The volume is that of SOURCE, or NAME. The versions in between
    stay, and no content is transferred.

    If the volume is mounted here, nothing is published: its working copy becomes equal to SOURCE,
    and the next commit publishes it. A mount that is a copy is not rolled back: commit and unmount
    it first."""
    from cowfs.blocking import Store, Volume

    tidy_up_when_terminated()
    if name is None:
        version = Volume.version(source, store=store)
        name, opened = version.name, Store(store) if store is not None else Store(version.store_url, located=True)
    else:
        opened = Store(store)
        version = opened.version(source, of=name)
    done = opened.rollback(name, version, dry_run=dry_run, **described)
    return tell(done, name, dry_run, as_json, "Rolled back")
