"""cowfs rollback: makes an older version a volume's next version, or the content of the working
copy of a mount."""

from __future__ import annotations

import click

from cowfs.cli import completing, output
from cowfs.cli.start import tidy_up_when_terminated
from cowfs.cli.volumes.restore import tell


@click.command("rollback")
@click.argument("name", shell_complete=completing.volumes)
@click.argument("source")
@click.option("-m", "--message", default="", help="What this version is.")
@click.option("--dry-run", is_flag=True, help="Show what would change; publish nothing.")
@output.common_options
def command(name: str, source: str, message: str, dry_run: bool, store: str | None, as_json: bool) -> None:
    """Make the next version of volume NAME equal to SOURCE (NAME@TAG, NAME@VERSION, NAME@{3} or a
    LOCATOR; @{3} alone means NAME@{3}); prints its locator. The versions in between stay, and no
    content is transferred. If the volume is mounted here, nothing is published: its working copy
    becomes equal to SOURCE, and the next commit publishes it. A mount that is a copy is not rolled
    back: commit and unmount it first."""
    from cowfs.blocking import Store

    tidy_up_when_terminated()
    opened = Store(store)
    version = opened.version(source, of=name)
    tell(opened.rollback(name, version, message=message, dry_run=dry_run), name, dry_run, as_json)
