"""cowfs import URL NAME: imports the contents of a bucket, web server or directory as the next
version of a volume."""

from __future__ import annotations

import click

from cowfs.cli import completing, output
from cowfs.errors import InvalidInputError
from cowfs.rendering import count, format_size


@click.command("import")
@click.argument("url", metavar="URL", default="", shell_complete=completing.directories)
@click.argument("name", metavar="NAME", shell_complete=completing.volumes, default="")
@click.option(
    "--link", is_flag=True, help="Copy nothing: files are the objects at URL, as long as these do not change."
)
@click.option("--absorb", "absorbed", metavar="NAME", help="Store what volume NAME links, instead of importing.")
@click.option("--delete", is_flag=True, help="Remove what is in the volume and not at URL.")
@click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="As in .gitignore: neither imported nor removed. Repeatable."
)
@output.version_options
@output.progress_option
@output.common_options
def command(
    url: str,
    name: str,
    link: bool,
    absorbed: str | None,
    delete: bool,
    exclude: tuple[str, ...],
    described: output.Described,
    progress_style: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Copy the files at URL into volume NAME, as its next version; prints its locator. URL is
    s3://BUCKET/PREFIX, gs://…, az://…, https://HOST/DIR/ (a page that lists files), a directory, or
    any other URL that fsspec opens (github://…). The volume is created if it is missing.

    tar://::URL and zip://::URL import the result of unpacking the archive at that URL (or path),
    with permissions, links and empty directories. An archive is read once, and nothing is published
    unless it is valid to its last byte (docs/guide/import.md says which properties each format
    shows).

    Nothing is copied on this machine. Objects of the same size, ETag and time as in the volume are
    not read. To continue an interrupted or killed import, repeat the command: it transfers only the
    missing data. If nothing changed, no version is made, unless you give a message.

    If the volume is mounted on this machine, the files go into the mount, and its commit publishes
    them: no locator is printed. Files of an archive do not: unmount first, or use `tar -x` there.

    With --link only the listing is read. A linked file whose object changes can no longer be read;
    `cowfs import --absorb NAME` stores the contents of linked files.
    """
    from cowfs.blocking import Store

    if absorbed is not None:
        if url or link or delete or exclude:
            raise InvalidInputError("--absorb takes the volume's name alone", hint="cowfs import --absorb NAME")
        _absorb(absorbed, described, progress_style, store, as_json)
        return
    if not name:
        raise InvalidInputError("URL or NAME is missing", hint="cowfs import URL NAME")
    with output.if_interrupted(output.RESUMES), output.progress(progress_style) as progress:
        done = Store(store).import_files(
            url,
            name,
            link=link,
            delete=delete,
            exclude=exclude,
            progress=progress,
            **described,
        )
    said = output.transferred("Linked" if link else "Imported", done)
    if done.mount_path is not None:
        said += output.into_mount(done.mount_path)
    elif not done.is_new:
        said = "Nothing has changed"
    output.say(as_json, said)
    output.emit(as_json, done, done.locator if done.mount_path is None else "")


def _absorb(name: str, described: output.Described, progress_style: str, store: str | None, as_json: bool) -> None:
    from cowfs.blocking import Store

    with output.if_interrupted(output.RESUMES), output.progress(progress_style) as progress:
        done = Store(store).absorb(name, progress=progress, **described)
    said = (
        f"Stored {count(done.files, 'file')}, {format_size(done.bytes)} in all" if done.is_new else "Nothing is linked"
    )
    output.say(as_json, said)
    output.emit(as_json, done, done.locator)
