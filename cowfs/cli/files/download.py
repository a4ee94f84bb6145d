"""cowfs download SOURCE[:PATH] [DIRECTORY]: copies the files of a version into a directory; without
a mount."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output

if TYPE_CHECKING:
    from cowfs.api.transfers.downloading import Overwrite


@click.command("download")
@click.argument("source", shell_complete=completing.volumes, metavar="SOURCE[:PATH]")
@click.argument("directory", metavar="[DIRECTORY]", required=False, shell_complete=completing.directories)
@click.option(
    "--overwrite",
    type=click.Choice(["error", "newer", "always"]),
    default="error",
    show_default=True,
    help="What becomes of files in DIRECTORY.",
)
@output.progress_option
@output.common_options
def command(
    source: str, directory: str | None, overwrite: Overwrite, progress_style: str, store: str | None, as_json: bool
) -> None:
    """Copy the files of a version, or those at PATH, into DIRECTORY, by default volumes/NAME, which
    is made if it is missing. SOURCE is NAME (its last version), NAME@TAG, NAME@VERSION or a
    locator; prints the version's locator.

    Files of the same size and modification time are taken as present. To continue an interrupted or
    killed download, repeat the command; it also continues within a large file. With "error", a file
    that differs stops the command before anything is written; "newer" replaces files that are
    older; "always" rewrites every file, even if it looks the same.
    """
    from cowfs.blocking import Store

    with output.if_interrupted(output.RESUMES), output.progress(progress_style) as progress:
        done = Store(store).download(source, directory, overwrite=overwrite, progress=progress)
    said = output.transferred("Downloaded", done)
    output.say(as_json, said)
    output.emit(as_json, done, done.locator)
