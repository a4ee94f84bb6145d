"""cowfs apply: compares a file's declarations with stores and this machine, shows the plan, asks,
and applies it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cowfs.cli import output, plans

if TYPE_CHECKING:
    from cowfs.api.declared.declared import Declared
    from cowfs.api.declared.emitting import Kind


@click.command("apply")
@click.option("-f", "--file", type=click.Path(), help="What is declared. [the nearest cowfs.toml or *.cowfs.yml]")
@click.option("-y", "--yes", "is_agreed", is_flag=True, help="Do not ask.")
@output.dry_run_option
@click.option(
    "--prune", is_flag=True, help="Unmount and forget what is declared no more; delete such volumes that apply created."
)
@click.option("--no-mount", is_flag=True, help="Leave mounts alone.")
@click.option(
    "--emit",
    type=click.Choice(["sh", "k8s", "systemd"]),
    help="Do nothing; print a script, a manifest or a service that mounts what is declared.",
)
@output.progress_option
@output.json_option
def command(
    file: str | None,
    is_agreed: bool,
    dry_run: bool,
    prune: bool,
    no_mount: bool,
    emit: Kind | None,
    progress_style: str,
    as_json: bool,
) -> int:
    """Make stores and this machine match a file's declarations: create or register its volumes, and
    mount them.

    Applied again, it does nothing. `cowfs undelete` restores a volume that --prune deletes.
    """
    from cowfs.blocking import Declared

    declared = Declared.load(file)
    if emit is not None:
        _emit(declared, emit, as_json=as_json)
        return 0
    plan = declared.plan(prune=prune, mounts=not no_mount)
    return plans.carry_out(plan, dry_run=dry_run, is_agreed=is_agreed, progress_style=progress_style, as_json=as_json)


def _emit(declared: Declared, kind: Kind, *, as_json: bool) -> None:
    text = declared.emit(kind)
    output.emit(as_json, {"file": str(declared.file), "emitted": text}, text.rstrip("\n"))
