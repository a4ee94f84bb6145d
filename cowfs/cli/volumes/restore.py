"""cowfs restore: restores a path of an older version, as a volume's next version or in the working
copy of a mount."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output
from cowfs.cli.start import tidy_up_when_terminated
from cowfs.errors import Command
from cowfs.rendering import count

if TYPE_CHECKING:
    from cowfs.blocking import RestoreReport

LETTERS = {"added": "A", "removed": "D", "changed": "M"}


@click.command("restore")
@click.argument("source", metavar="SOURCE[:PATH]", shell_complete=completing.volumes)
@click.option("--into", metavar="NAME", help="The volume that gets it; default: that of SOURCE.")
@click.option("--to", metavar="PATH", help="Where it is put; default: where it was.")
@click.option("-m", "--message", default="", help="What this version is.")
@click.option("--dry-run", is_flag=True, help="Show what would change; publish nothing.")
@output.common_options
def command(
    source: str, into: str | None, to: str | None, message: str, dry_run: bool, store: str | None, as_json: bool
) -> None:
    """Publish the contents of PATH in SOURCE (NAME@TAG, NAME@VERSION, NAME@{3} or a LOCATOR) as the
    next version of its volume, and remove everything else at PATH there; prints the version's
    locator. No content is transferred. Without PATH, all of SOURCE is restored.

    If the volume is mounted here, nothing is published: its working copy is changed, uncommitted
    changes there are lost, and the next commit publishes the result. A mount that is a copy cannot
    be restored into: commit and unmount it first.
    """
    from cowfs.blocking import Store, Volume

    tidy_up_when_terminated()
    version = Volume.version(source, store=store)
    name = into or version.name
    is_named = store is not None or into is not None
    where = Store(store) if is_named else Store(version.store_url, located=True)
    tell(where.restore(name, version, to=to, message=message, dry_run=dry_run), name, dry_run, as_json)


def tell(done: RestoreReport, name: str, is_dry: bool, as_json: bool) -> None:
    """Prints the result for the volume; also for a rollback."""
    if is_dry:
        lines = [f"{LETTERS[each.kind]}  {output.name(each.path)}" for each in done.paths]
        lines += [f"… and {done.more} more"] if done.more else []
        if not lines:
            output.say(as_json, _nothing_else(done, name))
        output.emit(as_json, dataclasses.asdict(done), "\n".join(lines))
        return
    if done.mount_path is not None:
        said = (
            f"Restored {count(len(done.paths) + done.more, 'path')} below {done.mount_path}"
            if done.paths
            else _nothing_else(done, name)
        )
        output.say(as_json, f"{said}; publish it: {Command('commit', name)}" if done.paths else said)
        output.emit(as_json, dataclasses.asdict(done), done.mount_path)
        return
    said = f"Restored {count(len(done.paths), 'path')} of {name}" if done.is_new else _nothing_else(done, name)
    output.say(as_json, said)
    output.emit(as_json, dataclasses.asdict(done), done.locator or "")


def _nothing_else(done: RestoreReport, name: str) -> str:
    return "Nothing else is there" if done.mount_path is not None else f"Volume {name} has nothing else there"
