"""cowfs restore: restores a path of an older version, as a volume's next version or in the working
copy of a mount."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output
from cowfs.cli.start import tidy_up_when_terminated
from cowfs.errors import Command, InvalidInputError
from cowfs.rendering import count

if TYPE_CHECKING:
    from cowfs.blocking import RestoreReport

LETTERS = {"added": "A", "removed": "D", "changed": "M"}


@click.command("restore")
@click.argument("source", metavar="SOURCE[:PATH]", shell_complete=completing.volumes)
@click.argument("target", metavar="[NAME[:PATH]]", required=False, shell_complete=completing.volumes)
@output.version_options
@output.dry_run_option
@output.common_options
def command(
    source: str,
    target: str | None,
    described: output.Described,
    dry_run: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Publish the contents of PATH in SOURCE (NAME@TAG, NAME@VERSION, NAME@{3} or a LOCATOR) as the
    next version of its volume, and remove everything else at PATH there; prints the version's
    locator. No content is transferred. Without PATH, all of SOURCE is restored. NAME is another
    volume that gets the contents, NAME:PATH another path for them ("NAME:" is the root).

    If the volume is mounted here, nothing is published: its working copy is changed, uncommitted
    changes there are lost, and the next commit publishes the result. A mount that is a copy cannot
    be restored into: commit and unmount it first.
    """
    from cowfs.blocking import Store, Volume

    tidy_up_when_terminated()
    if target is not None and target.startswith("@"):
        volume, colon, path = source.partition(":")
        raise InvalidInputError(
            f"{target!r} is a version, and not a volume that gets the contents",
            hint=f"The version belongs to the source: {Command('restore', volume + target + colon + path)}.",
        )
    version = Volume.version(source, store=store)
    into, colon, path = (target or "").partition(":")
    name, to = into or version.name, path or "/" if colon else None
    is_named = store is not None or bool(into)
    where = Store(store) if is_named else Store(version.store_url, located=True)
    done = where.restore(name, version, to=to, dry_run=dry_run, **described)
    return tell(done, name, dry_run, as_json)


def tell(done: RestoreReport, name: str, is_dry: bool, as_json: bool, verb: str = "Restored") -> int:
    """Prints the result for the volume; also for a rollback. verb: what was done. Returns the exit
    code."""
    if is_dry:
        lines = [f"{LETTERS[each.kind]}  {output.name(each.path)}" for each in done.changes]
        lines += [f"… and {done.more} more"] if done.more else []
        if not lines:
            output.say(as_json, _nothing_else(done, name))
        output.emit(as_json, done, "\n".join(lines))
        return output.plan_code(bool(done.changes))
    if done.mount_path is not None:
        said = (
            f"{verb} {count(len(done.changes) + done.more, 'path')} below {done.mount_path}"
            if done.changes
            else _nothing_else(done, name)
        )
        output.say(as_json, f"{said}; publish it: {Command('commit', name)}" if done.changes else said)
        output.emit(as_json, done, done.mount_path)
        return 0
    said = f"{verb} {count(len(done.changes), 'path')} of {name}" if done.is_new else _nothing_else(done, name)
    output.say(as_json, said)
    output.emit(as_json, done, done.locator or "")
    return 0


def _nothing_else(done: RestoreReport, name: str) -> str:
    """A bare NAME means the last version, which cannot bring anything back."""
    if done.mount_path is not None:
        return "Nothing differs there"
    said = f"Nothing differs in volume {name}"
    if done.source_locator == done.locator or done.source_locator.startswith(f"{done.locator}/"):
        said += f": that is its last version. {name}@{{1}} means the one before it"
    return said
