"""cowfs cp SRC DST: copies files into a volume, which gets one more version, or out of a version;
without a mount."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output
from cowfs.cli.start import tidy_up_when_terminated
from cowfs.rendering import count, format_size

if TYPE_CHECKING:
    from cowfs.blocking import CopyReport


@click.command("cp")
@click.argument("sources", metavar="SRC...", nargs=-1, required=True, shell_complete=completing.places)
@click.argument("target", metavar="DST", shell_complete=completing.places)
@click.option(
    "-r", "--recursive", is_flag=True, hidden=True, help="Habit of other programs: directories are copied anyway."
)
@output.version_options
@output.progress_option
@output.common_options
def command(
    sources: tuple[str, ...],
    target: str,
    recursive: bool,
    described: output.Described,
    progress_style: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Copy SRC to DST. Each is SOURCE:PATH, LOCATOR/PATH or a local path (./a:b is local). The path
    in LOCATOR/PATH is percent-decoded, as in a URL; after a colon (NAME:PATH, LOCATOR:PATH) it is
    taken literally.

    The contents of a directory go into DST; a file goes into DST if that is a directory or ends in
    "/". Several SRC, and what a pattern ('NAME:images/*.png', in quotes) matches, go into directory
    DST, each under its own name. Missing directories of DST are created.

    For a volume, NAME:PATH, everything is committed as one version, or nothing is; prints its
    locator. If the volume is mounted on this machine, the files go into the mount, and its commit
    publishes them. Permissions, times and links are preserved, owners are not.
    """
    from cowfs.blocking import Store

    tidy_up_when_terminated()
    with output.progress(progress_style) as progress:
        done = Store(store).copy(sources, target, progress=progress, **described)
    said = _said(done)
    said += output.left_out(done.skipped, done.skipped_paths)
    if done.mount_path is not None:
        said += output.into_mount(done.mount_path)
    output.say(as_json, said)
    output.emit(as_json, done, done.locator or "")


def _said(done: CopyReport) -> str:
    if done.is_new is False:
        return f"Nothing has changed: {count(done.files, 'file')}, {format_size(done.bytes)}"
    some = f"{done.files - done.unchanged} of " if done.unchanged else ""
    return f"Copied {some}{count(done.files, 'file')}, {format_size(done.bytes)}"
