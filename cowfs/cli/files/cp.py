"""cowfs cp SRC DST: copies files into a volume, which gets one more version, or out of a version;
without a mount."""

from __future__ import annotations

import dataclasses

import click

from cowfs.cli import completing, output
from cowfs.cli.start import tidy_up_when_terminated
from cowfs.rendering import count, format_size


@click.command("cp")
@click.argument("source", metavar="SRC", shell_complete=completing.places)
@click.argument("target", metavar="DST", shell_complete=completing.places)
@click.option(
    "-r", "--recursive", is_flag=True, hidden=True, help="Habit of other programs: directories are copied anyway."
)
@click.option("-m", "--message", default="", help="To a volume: what this version is.")
@output.progress_option
@output.common_options
def command(
    source: str, target: str, recursive: bool, message: str, progress_style: str, store: str | None, as_json: bool
) -> None:
    """Copy SRC to DST. Each is SOURCE:PATH, LOCATOR/PATH or a local path (./a:b is local). The path
    in LOCATOR/PATH is percent-decoded, as in a URL; after a colon (NAME:PATH, LOCATOR:PATH) it is
    taken literally.

    The contents of a directory go into DST; a file goes into DST if that is a directory or ends in
    "/". Missing directories of DST are created. For a volume, NAME:PATH, everything is committed as
    one version, or nothing is; prints its locator. If the volume is mounted on this machine, the
    files go into the mount, and its commit publishes them. Permissions, times and links are
    preserved, owners are not.
    """
    from cowfs.api.transfers import transfer

    tidy_up_when_terminated()
    with output.progress(progress_style) as progress:
        done = transfer.copy(source, target, store=store, message=message, progress=progress)
    copied = done.copied
    said = f"Copied {count(copied.files, 'file')}, {format_size(copied.bytes)}"
    said += output.left_out(copied.skipped, copied.skipped_paths)
    if done.mount_path is not None:
        said += output.into_mount(done.mount_path)
    output.say(as_json, said)
    locator = done.version.locator if done.version is not None else None
    is_new = done.version.is_new if done.version is not None else None
    record = {**dataclasses.asdict(copied), "locator": locator, "is_new": is_new, "mount_path": done.mount_path}
    output.emit(as_json, record, locator or "")
