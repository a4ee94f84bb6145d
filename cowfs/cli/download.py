"""cowfs download SOURCE[:PATH]: the files of a version into a directory; without a mount."""

from __future__ import annotations

import dataclasses

import click

from cowfs.cli import completing, output


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
    source: str, download_dir: str | None, overwrite: str, progress_style: str, store: str | None, as_json: bool
) -> None:
    """Copy the files of a version, or what is at PATH of it, into a directory. SOURCE is NAME (its
    last version), NAME@TAG, NAME@VERSION or a locator; prints the version's locator.

    Files of the same size and time of modification are there already: a download that was ended or
    killed is repeated with the same command, and goes on where it was, also within a large file.
    With "error", a file that differs ends it before anything is written; "newer" replaces those
    that are older; "always" writes every file anew, also one that looks the same.
    """
    from cowfs.api import downloading

    with output.if_interrupted(output.RESUMES), output.progress(progress_style) as progress:
        done = downloading.download_from(
            source,
            download_dir,
            store=store,
            overwrite=overwrite,
            progress=progress,
        )
    said = output.transferred("Downloaded", done)
    output.say(as_json, said)
    output.emit(as_json, dataclasses.asdict(done), done.locator)
