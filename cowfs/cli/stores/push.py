"""cowfs push: copies versions to another store, under the same ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output
from cowfs.rendering import count, format_size

if TYPE_CHECKING:
    from cowfs.blocking import PushReport


@click.command("push")
@click.argument("source", metavar="SOURCE", shell_complete=completing.volumes)
@click.argument("target", metavar="STORE", shell_complete=completing.stores)
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
    """Copy the version that SOURCE names (NAME, NAME@TAG, NAME@VERSION or a LOCATOR) to another
    STORE, and make it the last version of the volume there; prints its locator. STORE is created if
    it does not exist. A version that is already there, before a later one, is left as it is.
    Nothing is inserted before existing versions: an earlier version that STORE lacks is refused.
    Version ids stay the same. Only data that STORE lacks is transferred, so an interrupted push can
    be repeated, and repeated pushes maintain a mirror. Written data is read back; the record of a
    version that is damaged there is written again. Uncommitted work is not copied, and the command
    says so."""
    from cowfs.blocking import Store

    copy(
        lambda heard: Store(store).push(source, target, name=name, all_versions=all_versions, progress=heard),
        progress_style,
        as_json,
    )


def copy(run: Callable[[output.ProgressLine | None], PushReport], progress_style: str, as_json: bool) -> None:
    """Runs a push or a pull, and shows its progress and result."""
    with output.if_interrupted(output.RESUMES), output.progress(progress_style) as line:
        done = run(line)
    moved = f"{done.put_packs} of {count(done.packs, 'pack')} ({format_size(done.put_bytes)})"
    new = count(len(done.version_ids), "new version") if done.is_new else "The version was there already"
    tagged = f", {count(len(done.tag_names), 'tag')}" if done.tag_names else ""
    made = f", into a new store at {done.made_store_url}" if done.made_store_url is not None else ""
    records = count(len(done.mended_version_ids), "damaged version record")
    mended = f"; {records} put there again" if done.mended_version_ids else ""
    output.say(as_json, f"{new}{tagged}; {moved} copied{mended}{made}")
    output.emit(as_json, done, done.locator)
