"""Plans of declared volumes at a shell: shows a plan, asks, applies it and reports the result."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from cowfs.cli import output
from cowfs.errors import InvalidInputError
from cowfs.rendering import count, printable

if TYPE_CHECKING:
    from cowfs.api.declared.mounting import Outcome
    from cowfs.api.declared.plan import Plan, Step

SIGNS = {
    "create": "+",
    "register": "+",
    "change": "~",
    "mount": "+",
    "delete": "-",
    "forget": "-",
    "keep": " ",
    "skip": "!",
}


def carry_out(
    plan: Plan,
    *,
    dry_run: bool = False,
    is_agreed: bool,
    is_forced: bool = False,
    progress_style: str = "auto",
    as_json: bool,
) -> int:
    """The exit code."""
    from cowfs.cli.start import tidy_up_when_terminated

    if not plan.has_changes and not dry_run:
        plan.apply()  # a concurrent process may have changed the state since
    _show(plan, as_json=as_json)
    done: list[dict[str, Any]] = []
    if plan.has_changes and not dry_run:
        _ask(plan, is_agreed=is_agreed, as_json=as_json)
        tidy_up_when_terminated()

        def hears(step: Step, outcome: Outcome | None) -> None:
            done.append({"action": step.action, **(output.outcome(outcome) if outcome is not None else _place(step))})
            output.say(as_json, _say(step, outcome))

        with output.progress(progress_style) as progress:
            plan.apply(progress=progress, hears=hears, force=is_forced)
    record = {
        "file": str(plan.declared.file),
        "has_changes": plan.has_changes,
        "is_applied": plan.has_changes and not dry_run,
        "steps": [_record(step) for step in plan.steps],
        "outcomes": done,
        "notes": list(plan.notes),
    }
    output.emit(as_json, record, "")
    return output.plan_code(plan.has_changes) if dry_run else 0


def _show(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        return
    rows = [
        (f"{SIGNS[step.action]} {step.action}", step.volume, step.mount_path, step.store_url, printable(step.reason))
        for step in plan.steps
    ]
    if rows:
        click.echo(output.table(("ACTION", "VOLUME", "PATH", "STORE", "WHY"), rows))
    for note in plan.notes:
        output.say(as_json, f"Note: {printable(note)}")
    if not plan.has_changes:
        output.say(as_json, "Nothing to do.")


def _ask(plan: Plan, *, is_agreed: bool, as_json: bool) -> None:
    if is_agreed:
        return
    if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidInputError("nobody can be asked whether to apply this plan", hint="Add -y to apply it.")
    output.confirm(f"Apply {count(sum(step.is_change for step in plan.steps), 'step')}?")


def _say(step: Step, outcome: Outcome | None) -> str:
    if outcome is not None and outcome.state != "done":
        return output.outcome_line(outcome)
    said = {
        "create": "Created",
        "register": "Registered",
        "change": "Changed",
        "delete": "Deleted",
        "forget": "Forgot",
    }[step.action]
    kept = "; uncommitted work is kept" if outcome is not None and outcome.has_uncommitted else ""
    return f"{said} {step.volume} ({step.mount_path}){kept}"


def _place(step: Step) -> dict[str, Any]:
    return {
        "state": "done",
        "volume": step.volume,
        "mount_path": step.mount_path,
        "has_uncommitted": False,
        "error": None,
    }


def _record(step: Step) -> dict[str, Any]:
    return {
        "action": step.action,
        "volume": step.volume,
        "store_url": step.store_url,
        "mount_path": step.mount_path,
        "reason": step.reason,
    }
