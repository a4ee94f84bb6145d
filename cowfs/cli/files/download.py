"""cowfs download SOURCE[:PATH]: copies the files of a version into a directory; without a mount."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output

if TYPE_CHECKING:
    from cowfs.api.transfers.downloading import Overwrite


@click.command("download")
@click.argument("source", shell_complete=completing.volumes, metavar="SOURCE[:PATH]")
@click.option(
    "--download-dir",
    metavar="DIR",
    shell_complete=completing.directories,
    help="Where to; made if it is missing. Default: volumes/NAME.",
)
@click.option(
    "--overwrite",
    type=click.Choice(["error", "newer", "always"]),
    default="error",
    show_default=True,
    help="What becomes of files in DIR.",
)
@output.progress_option
@output.common_options
def command(
    source: str, download_dir: str | None, overwrite: Overwrite, progress_style: str, store: str | None, as_json: bool
) -> None:
    """Copy the files of a version, or those at PATH, into a directory. SOURCE is NAME (its last
    version), NAME@TAG, NAME@VERSION or a locator; prints the version's locator.

    Files of the same size and modification time are taken as present. To continue an interrupted or
    killed download, repeat the command; it also continues within a large file. With "error", a file
    that differs stops the command before anything is written; "newer" replaces files that are
    older; "always" rewrites every file, even if it looks the same.
    """
    from cowfs.blocking import Store

    with output.if_interrupted(output.RESUMES), output.progress(progress_style) as progress:
        done = Store(store).download(source, download_dir, overwrite=overwrite, progress=progress)
    said = output.transferred("Downloaded", done)
    output.say(as_json, said)
    output.emit(as_json, dataclasses.asdict(done), done.locator)
