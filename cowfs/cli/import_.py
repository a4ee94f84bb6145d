"""cowfs import URL NAME: what is in a bucket, on a web server or in a directory, as the next version
of a volume."""

from __future__ import annotations

import dataclasses
from contextlib import closing

import click

from cowfs import sizes
from cowfs.cli import completing, output
from cowfs.cli.start import tidy_up_when_terminated


@click.command("import")
@click.argument("url", metavar="URL")
@click.argument("name", metavar="NAME", shell_complete=completing.volumes)
@click.option("--delete", is_flag=True, help="Remove what is in the volume and not at URL.")
@click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="As in .gitignore: neither imported nor removed. Repeatable."
)
@click.option("-m", "--message", default="", help="What this version is.")
@output.progress_option
@output.common_options
def command(
    url: str,
    name: str,
    delete: bool,
    exclude: tuple[str, ...],
    message: str,
    progress_style: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Copy what is at URL into volume NAME, as its next version; prints its locator. URL is
    s3://BUCKET/PREFIX, gs://…, az://…, https://HOST/DIR/ (a page that lists files), a directory, or
    what else fsspec opens (zip://…, github://…). The volume is made if it is missing.

    Nothing is copied on this machine. Objects of the same size, ETag and time as in the volume are
    not read. An import that was ended or killed is repeated with the same command: it moves only
    what is missing. Nothing changed: no new version.
    """
    from cowfs.api import importing, stores

    tidy_up_when_terminated()
    with closing(output.ProgressLine(progress_style)) as progress:
        done = importing.import_from(
            url,
            name,
            store=stores.name(store),
            delete=delete,
            exclude=exclude,
            message=message,
            progress=progress if progress.is_shown else None,
        ).report
    said = f"Imported {done.files - done.unchanged} of {done.files} files, {sizes.shown(done.bytes)} in all"
    if done.removed:
        said += f"; removed {done.removed}"
    if done.skipped:
        said += f"; left out what is no file, directory or link: {done.skipped}"
    if not done.is_new:
        said = "Nothing has changed"
    output.say(as_json, said)
    output.emit(as_json, dataclasses.asdict(done), done.locator)
