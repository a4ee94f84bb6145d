"""cowfs allow FILE: lets FILE count as named where it is found, until it changes."""

from __future__ import annotations

import click

from cowfs.cli import output


@click.command("allow")
@click.argument("file", type=click.Path())
@output.json_option
def command(file: str, as_json: bool) -> None:
    """Allow FILE, which declares volumes, to do on discovery what otherwise only a named file may
    do: mount outside of its own directory, and open stores elsewhere.

    Read it first. The permission ends when the file changes. Prints the file's path.
    """
    from cowfs.blocking import Declared

    declared = Declared.load(file)
    content = declared.allow()
    paths = [each.mount_path for each in declared.volumes]
    output.say(as_json, f"Allowed; it mounts at: {', '.join(paths)}" if paths else "Allowed; it declares no volumes")
    output.emit(as_json, {"file": str(declared.file), "content": content, "mount_paths": paths}, str(declared.file))
