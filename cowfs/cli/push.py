"""cowfs push: versions copied to another store, under the same ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from cowfs import sizes
from cowfs.cli import completing, output

if TYPE_CHECKING:
    from cowfs.blocking import PushReport


@click.command("push")
@click.argument("source", metavar="SOURCE", shell_complete=completing.volumes)
@click.argument("target", metavar="STORE", shell_complete=completing.directories)
@click.option("--as", "name", metavar="NAME", help="The volume at the target; default: the same name.")
@click.option(
    "--all-versions",
    is_flag=True,
    help="Also the volume's earlier versions, and its tags; says what STORE cannot get any more.",
)
@output.progress_option
@output.common_options
def command(
    source: str,
    target: str,
    name: str | None,
    all_versions: bool,
    progress_style: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Copy the version that SOURCE means (NAME, NAME@TAG, NAME@VERSION or a LOCATOR) to another
    STORE, which is made if there is none, and make it the last one of the volume there, unless it
    is there already, before a later one; prints its locator. Nothing is put below a version that is
    there: an earlier one that STORE has not is refused. Version ids stay the same. Only what STORE
    has not travels, so a push that was interrupted is repeated, and a mirror is kept by repeating
    it. What was put is read back; the record of a version that is damaged there is put again.
    Uncommitted work stays here, and that is said."""
    from cowfs.blocking import Volume

    copy(
        lambda heard: Volume.push(source, target, store=store, name=name, all_versions=all_versions, progress=heard),
        progress_style,
        as_json,
    )


def copy(run: Callable[[output.ProgressLine | None], PushReport], progress_style: str, as_json: bool) -> None:
    """Runs a push or a pull, shows how far it is, and what it has done."""
    with output.if_interrupted(output.RESUMES), output.progress(progress_style) as line:
        done = run(line)
    moved = f"{done.put_packs} of {output.count(done.packs, 'pack')} ({sizes.shown(done.put_bytes)})"
    new = output.count(len(done.versions), "new version") if done.is_new else "The version was there already"
    tagged = f", {output.count(len(done.tags), 'tag')}" if done.tags else ""
    made = f", into a new store at {done.made_store}" if done.made_store is not None else ""
    count = output.count(len(done.mended), "damaged version record")
    mended = f"; {count} put there again" if done.mended else ""
    output.say(as_json, f"{new}{tagged}; {moved} copied{mended}{made}")
    output.emit(as_json, dataclasses.asdict(done), done.locator)
