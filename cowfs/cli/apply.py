"""cowfs apply: compares what a file declares with stores and this machine, shows the plan, asks, and does
it.

Exit codes: with --dry-run 0 when nothing is to be done, CHANGES when something is; else as everywhere.
"""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from cowfs.cli import output
from cowfs.errors import InvalidInputError

if TYPE_CHECKING:
    from cowfs.api.declared.emitting import Kind
    from cowfs.api.declared.model import Declared
    from cowfs.api.declared.mounting import Outcome
    from cowfs.api.declared.plan import Plan, Step

CHANGES = 2
SIGNS = {"create": "+", "register": "+", "change": "~", "mount": "+", "delete": "-", "keep": " ", "skip": "!"}


@click.command("apply")
@click.option("-f", "--file", type=click.Path(), help="What is declared. [the nearest cowfs.toml or *.cowfs.yml]")
@click.option("-y", "--yes", "is_agreed", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show the plan; exit code 2 when there is something to do.")
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
    """Make stores and this machine as a file declares: create or register its volumes, and mount them.

    Applied once more, it does nothing. A volume that --prune deletes is brought back by `cowfs
    undelete`.
    """
    from cowfs import Declared
    from cowfs.cli.start import tidy_up_when_terminated

    declared = Declared.load(file)
    if emit is not None:
        _emit(declared, emit, as_json=as_json)
        return 0
    plan = declared.plan(prune=prune, mounts=not no_mount)
    _show(plan, as_json=as_json)
    done: list[dict[str, Any]] = []
    if plan.has_changes and not dry_run:
        _ask(plan, is_agreed=is_agreed, as_json=as_json)
        tidy_up_when_terminated()

        def hears(step: Step, outcome: Outcome | None) -> None:
            done.append({"action": step.action, **(output.outcome(outcome) if outcome is not None else _place(step))})
            output.say(as_json, _said(step, outcome))

        with closing(output.ProgressLine(progress_style)) as progress:
            plan.apply(progress=progress, hears=hears)
    record = {
        "file": str(declared.file),
        "has_changes": plan.has_changes,
        "is_applied": plan.has_changes and not dry_run,
        "steps": [_record(step) for step in plan.steps],
        "done": done,
        "notes": list(plan.notes),
    }
    output.emit(as_json, record, "")
    return CHANGES if dry_run and plan.has_changes else 0


def _emit(declared: Declared, kind: Kind, *, as_json: bool) -> None:
    text = declared.emit(kind)
    output.emit(as_json, {"file": str(declared.file), "emitted": text}, text.rstrip("\n"))


def _show(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        return
    rows = [
        (f"{SIGNS[step.action]} {step.action}", step.volume, step.path, step.store_url, output.printable(step.details))
        for step in plan.steps
    ]
    if rows:
        click.echo(output.table(("ACTION", "VOLUME", "PATH", "STORE", "WHY"), rows))
    for note in plan.notes:
        output.say(as_json, f"Note: {output.printable(note)}")
    if not plan.has_changes:
        output.say(as_json, "Nothing to do.")


def _ask(plan: Plan, *, is_agreed: bool, as_json: bool) -> None:
    if is_agreed:
        return
    if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidInputError(
            "nobody can be asked whether to apply this plan", hint="Add -y to apply it, or --dry-run to only see it."
        )
    count = sum(step.is_change for step in plan.steps)
    click.confirm(f"Apply {count} step{'s' if count != 1 else ''}?", abort=True, err=True)


def _said(step: Step, outcome: Outcome | None) -> str:
    if outcome is not None:
        return output.outcome_line(outcome)
    said = {
        "create": "Created",
        "register": "Registered",
        "change": "Changed",
        "delete": "Deleted" if step.is_destroyed else "Forgot",
    }[step.action]
    return f"{said} {step.volume} ({step.path})"


def _place(step: Step) -> dict[str, Any]:
    return {"what": "done", "volume": step.volume, "mount_path": step.path, "uncommitted": False, "error": None}


def _record(step: Step) -> dict[str, Any]:
    return {
        "action": step.action,
        "volume": step.volume,
        "store_url": step.store_url,
        "path": step.path,
        "details": step.details,
    }
