"""cowfs delete NAME..., or -f FILE: deletes volumes. Refused while a volume has a writer."""

from __future__ import annotations

import sys

import click

from cowfs.cli import completing, output, plans
from cowfs.errors import Command, InvalidInputError


@click.command("delete")
@click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=completing.volumes)
@click.option(
    "-f",
    "--file",
    type=click.Path(),
    help="What `cowfs apply` of FILE has created; volumes that were there before are only forgotten.",
)
@click.option("-y", "--yes", "is_agreed", is_flag=True, help="Do not ask.")
@click.option(
    "--force",
    "is_forced",
    is_flag=True,
    help="Also while somebody writes to it, or there is uncommitted work: who writes can publish nothing more.",
)
@output.common_options
def command(
    names: tuple[str, ...], file: str | None, is_agreed: bool, is_forced: bool, store: str | None, as_json: bool
) -> int:
    """Delete volume NAME. `cowfs undelete NAME` restores it. Its forks and locators of its versions
    keep working."""
    if (file is not None) == bool(names):
        raise InvalidInputError(
            "name volumes, or a file that declares them",
            hint=f"{Command('delete', 'NAME')}, or {Command('delete', '-f', 'FILE')}.",
        )
    if file is not None:
        from cowfs.blocking import Declared

        if store is not None:
            raise InvalidInputError("a file says itself in which stores its volumes lie", hint="Leave --store out.")
        plan = Declared.load(file).plan_deletion()
        return plans.carry_out(plan, is_agreed=is_agreed, is_forced=is_forced, as_json=as_json)
    _delete(names, store, is_agreed=is_agreed, is_forced=is_forced, as_json=as_json)
    return 0


def _delete(names: tuple[str, ...], store: str | None, *, is_agreed: bool, is_forced: bool, as_json: bool) -> None:
    from cowfs.blocking import Store

    if not is_agreed:
        for name in names:
            Store(store).volume(name).resolve()
        if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InvalidInputError(
                "nobody can be asked whether to delete", hint="Add -y to delete without a question."
            )
        output.confirm(f"Delete {', '.join(names)}?")
    for name in names:
        Store(store).delete(name, force=is_forced)
        output.say(as_json, f"Deleted volume {name}; {Command('undelete', name)} brings it back")
    output.emit(as_json, {"volume_names": names}, "")
