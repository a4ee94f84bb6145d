"""cowfs restart PATH|--all: replaces the daemon of a supervised mount, for example after an
upgrade."""

from __future__ import annotations

from typing import Any

import click

from cowfs.cli import completing, output
from cowfs.errors import CowfsError, InvalidInputError
from cowfs.rendering import printable


@click.command("restart")
@click.argument("path", required=False, shell_complete=completing.directories)
@click.option("--all", "is_all", is_flag=True, help="Every supervised mount of yours on this machine.")
@output.json_option
def command(path: str | None, is_all: bool, as_json: bool) -> None:
    """Restart the daemon of the supervised mount at PATH with the cowfs that runs this command.

    Programs that use the mount wait meanwhile. If this cowfs cannot go on with the mount, one like
    before does. A mount is supervised if it was made with --supervise.
    """
    from cowfs import mounts

    if (path is None) != is_all:
        raise InvalidInputError("one of PATH and --all must be given", hint="Name the PATH of a mount, or say --all.")
    done: list[dict[str, Any]] = []
    failed: list[CowfsError] = []
    for each in mounts.list_supervised() if path is None else [path]:
        try:
            restarted = mounts.restart(each)
        except CowfsError as error:
            failed.append(error)
            continue
        done.append({"mount_path": restarted.mount_path, "volume": restarted.volume, "pid": restarted.pid})
        output.say(as_json, f"Restarted {printable(restarted.mount_path)} (process {restarted.pid})")
    if failed:
        failed[0].details = {**failed[0].details, "restarted": done}
        raise failed[0]
    if not done:
        output.say(as_json, "No mount is supervised.")
    output.emit(as_json, {"restarted": done}, "")
