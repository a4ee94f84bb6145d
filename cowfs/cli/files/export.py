"""cowfs export SOURCE[:PATH] URL: writes the files of a version as objects of a bucket."""

from __future__ import annotations

import click

from cowfs.cli import completing, output
from cowfs.cli.start import tidy_up_when_terminated


@click.command("export")
@click.argument("source", shell_complete=completing.volumes, metavar="SOURCE[:PATH]")
@click.argument("url", metavar="URL", shell_complete=completing.directories)
@click.option(
    "--delete",
    is_flag=True,
    help="Delete objects below URL that are not in what is exported, whoever made them; beside a single file, none.",
)
@click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="As in .gitignore: neither exported nor deleted. Repeatable."
)
@output.progress_option
@output.common_options
def command(
    source: str,
    url: str,
    delete: bool,
    exclude: tuple[str, ...],
    progress_style: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Write the files of a version, or those at PATH, as objects below URL, each under its path.
    SOURCE is NAME (its last version), NAME@TAG, NAME@VERSION or a locator; URL is
    s3://BUCKET/PREFIX, gs://… or az://…. Prints the version's locator.

    Objects that an earlier export wrote and that have not been replaced since are skipped. To
    continue an interrupted export, repeat the command. After a kill, the objects of its last 30 s
    are written again. Links to files become objects; other links are refused.
    """
    from cowfs.blocking import Store

    tidy_up_when_terminated()
    with output.progress(progress_style) as progress:
        done = Store(store).export(source, url, delete=delete, exclude=exclude, progress=progress)
    said = output.transferred("Exported", done, removed="deleted")
    output.say(as_json, said)
    output.emit(as_json, done, done.locator)
