"""cowfs clean: deletes volumes that were not used for as long as a file declares."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from cowfs.cli import output
from cowfs.errors import InvalidInputError
from cowfs.rendering import count, format_time, printable

if TYPE_CHECKING:
    from cowfs.api.declared.cleaning import CleanPlan, CleanStep


@click.command("clean")
@click.option("-f", "--file", type=click.Path(), help="What is declared. [the nearest cowfs.toml or *.cowfs.yml]")
@click.option("-y", "--yes", "is_agreed", is_flag=True, help="Do not ask.")
@output.dry_run_option
@output.json_option
def command(file: str | None, is_agreed: bool, dry_run: bool, as_json: bool) -> int:
    """Delete the volumes that a file declares with `idle_delete` and that were not used for that
    long.

    A use is a commit, a writer, or a mount, as far as the store and this machine show. Volumes that
    have a tag, a mount, a writer, or uncommitted work are kept. `cowfs undelete` restores a volume
    until `cowfs gc` closes it, a week later.
    """
    from cowfs.blocking import Declared

    declared = Declared.load(file)
    plan = declared.plan_clean()
    if not as_json:
        _show(plan)
    done: list[CleanStep] = []
    if plan.has_changes and not dry_run:
        _ask(plan, is_agreed=is_agreed, as_json=as_json)
        done = plan.apply(hears=lambda step: output.say(as_json, _say(step)))
    record = {
        "file": str(declared.file),
        "has_changes": plan.has_changes,
        "is_applied": plan.has_changes and not dry_run,
        "steps": [_record(step) for step in plan.steps],
        "done": [_record(step) for step in done],
    }
    output.emit(as_json, record, "")
    return output.plan_code(plan.has_changes) if dry_run else 0


def _show(plan: CleanPlan) -> None:
    rows = [
        (
            step.action,
            step.volume,
            format_time(step.last_used_ns) if step.last_used_ns is not None else "",
            printable(", ".join(step.why)),
        )
        for step in plan.steps
    ]
    if rows:
        click.echo(output.table(("ACTION", "VOLUME", "LAST USED", "WHY"), rows))
    if not plan.has_changes:
        output.say(False, "Nothing to do.")


def _ask(plan: CleanPlan, *, is_agreed: bool, as_json: bool) -> None:
    if is_agreed:
        return
    if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidInputError("nobody can be asked whether to apply this plan", hint="Add -y to apply it.")
    output.confirm(f"Delete {count(sum(step.action == 'delete' for step in plan.steps), 'volume')}?")


def _say(step: CleanStep) -> str:
    if step.action == "delete":
        return f"Deleted {step.volume}"
    return f"Kept {step.volume}: {printable(', '.join(step.why))}"


def _record(step: CleanStep) -> dict[str, Any]:
    return {
        "action": step.action,
        "volume": step.volume,
        "store_url": step.store_url,
        "idle_delete_s": step.idle_delete_s,
        "last_used_ns": step.last_used_ns,
        "why": list(step.why),
    }
