"""cowfs upload DIR [NAME[:PATH]]: publishes the contents of a directory as the next version of a
volume; without a mount."""

from __future__ import annotations

import click

from cowfs.cli import completing, output


@click.command("upload")
@click.argument("source", metavar="DIR", shell_complete=completing.directories)
@click.argument("target", metavar="[NAME[:PATH]]", shell_complete=completing.volumes, default="")
@click.option("--delete", is_flag=True, help="Remove what is in the volume, below PATH, and not in DIR.")
@click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="As in .gitignore: neither uploaded nor removed. Repeatable."
)
@click.option("--checksum", is_flag=True, help="Read every file, whatever its size and times.")
@output.version_options
@output.progress_option
@output.common_options
def command(
    source: str,
    target: str,
    delete: bool,
    exclude: tuple[str, ...],
    checksum: bool,
    described: output.Described,
    progress_style: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Publish the contents of DIR as the next version of volume NAME, below PATH; prints its
    locator. Without NAME, the directory's own name is used. The volume is created if it is missing.

    Nothing is copied on this machine. Files of the same size and modification time as in the volume
    are not read, unless their inode number or change time differs from this machine's last upload.
    To continue an interrupted or killed upload, repeat the command: it transfers only the missing
    data. If nothing changed, no version is made, unless you give a message.

    If the volume is mounted on this machine, the files go into the mount, and its commit publishes
    them: no locator is printed.
    """
    from cowfs.blocking import Store

    with output.if_interrupted(output.RESUMES), output.progress(progress_style) as progress:
        done = Store(store).upload(
            source,
            target,
            delete=delete,
            exclude=exclude,
            checksum=checksum,
            progress=progress,
            **described,
        )
    said = output.transferred("Uploaded", done)
    if done.mount_path is not None:
        said += output.into_mount(done.mount_path)
    elif not done.is_new:
        said = "Nothing has changed" + output.left_out(done.skipped, done.skipped_paths)
    output.say(as_json, said)
    output.emit(as_json, done, done.locator if done.mount_path is None else "")
