"""cowfs delete NAME: deletes volumes. Refused while somebody writes to one."""

from __future__ import annotations

import sys

import click

from cowfs.cli import completing, output
from cowfs.errors import InvalidInputError


@click.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=completing.volumes)
@click.option("-y", "--yes", "is_agreed", is_flag=True, help="Do not ask.")
@click.option(
    "--force",
    "is_forced",
    is_flag=True,
    help="Also while somebody writes to it, or there is uncommitted work: who writes can publish nothing more.",
)
@output.common_options
def command(names: tuple[str, ...], is_agreed: bool, is_forced: bool, store: str | None, as_json: bool) -> None:
    """Delete volume NAME. `cowfs undelete NAME` brings it back; its forks, and locators of its
    versions, are as before."""
    from cowfs.blocking import Volume

    if not is_agreed:
        if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InvalidInputError(
                "nobody can be asked whether to delete", hint="Add -y to delete without a question."
            )
        click.confirm(f"Delete {', '.join(names)}?", abort=True, err=True)
    for name in names:
        Volume.delete(name, store=store, force=is_forced)
        output.say(as_json, f"Deleted volume {name}; `cowfs undelete {name}` brings it back")
    output.emit(as_json, {"deleted": list(names)}, "")
