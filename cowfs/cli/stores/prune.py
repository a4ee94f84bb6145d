"""cowfs prune: shows which versions of a volume rules keep, and prunes the others; or saves the
rules."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from cowfs.cli import completing, output
from cowfs.errors import Command, InvalidInputError
from cowfs.rendering import count, format_time, printable

if TYPE_CHECKING:
    from cowfs.blocking import PrunePlan

_COUNT = click.IntRange(min=1)


@click.command("prune")
@click.argument("name", shell_complete=completing.volumes)
@click.option("--keep-last", "last", type=_COUNT, metavar="N", help="The last N versions.")
@click.option("--keep-within", "within", metavar="TIME", help="Those made at most TIME (30d) before the last one.")
@click.option("--keep-hourly", "hourly", type=_COUNT, metavar="N", help="The last one of each of N hours.")
@click.option("--keep-daily", "daily", type=_COUNT, metavar="N", help="Of each of N days.")
@click.option("--keep-weekly", "weekly", type=_COUNT, metavar="N", help="Of each of N weeks.")
@click.option("--keep-monthly", "monthly", type=_COUNT, metavar="N", help="Of each of N months.")
@click.option("--keep-yearly", "yearly", type=_COUNT, metavar="N", help="Of each of N years.")
@click.option("--save", is_flag=True, help="Save these rules in the volume's record; prune nothing now.")
@click.option("--forget", is_flag=True, help="Remove the saved rules; prune nothing.")
@output.dry_run_option
@click.option("-y", "--yes", "is_agreed", is_flag=True, help="Do not ask.")
@output.common_options
def command(
    name: str, store: str | None, as_json: bool, save: bool, forget: bool, dry_run: bool, is_agreed: bool, **rules: Any
) -> int:
    """Prune the versions of volume NAME that no rule keeps. The volume loses them, and a collection
    may delete data that only they need. Shows the plan first, and asks.

    Some versions are always kept: the last one, tagged ones, and the base of a mount (of a
    read-only mount only if it is on this machine), of uncommitted work or of a fork. Hours to years
    are those of UTC that have versions.

    Without rules, the rules saved with --save are used, as `cowfs maintain` does for all volumes of
    a store.
    """
    from cowfs.blocking import Store, Volume

    is_given = any(rule is not None for rule in rules.values())
    if forget and (save or is_given):
        raise InvalidInputError("--forget takes no rules", hint="Save other rules with --save instead.")
    if save and not is_given:
        raise InvalidInputError(
            "no rule was given to save", hint="Give some (--keep-last 10), or --forget those saved."
        )
    if forget:
        Store(store).set_retention(name)
        output.say(as_json, f"Volume {name} has no rules any more; nothing is pruned")
        url = Volume.open(name, store=store).resolve().store_url
        nothing: dict[str, Any] = {
            "volume": name,
            "store_url": url,
            "versions": [],
            "rules": {},
            "pruned_version_ids": [],
        }
        output.emit(as_json, nothing, "")
        return 0
    if save and not dry_run:
        Store(store).set_retention(name, **rules)
        output.say(as_json, f"Saved: {told(Store(store).plan_prune(name).rules)}. {Command('maintain')} goes by it")
    plan = Store(store).plan_prune(name, **rules)
    going = plan.pruned
    if not as_json:
        click.echo(table(plan))
        if not is_given:
            output.say(as_json, f"By the saved rules: {told(plan.rules)}")
        output.say(as_json, f"To prune: {len(going)} of {count(len(plan.versions), 'version')}")
    gone = []
    if going and not dry_run and not save:
        _ask(len(going), is_agreed=is_agreed, as_json=as_json)
        gone = Store(store).prune(plan)
        kept = f"; {len(going) - len(gone)} are held now, and stay" if len(gone) < len(going) else ""
        output.say(as_json, f"Pruned {count(len(gone), 'version')} of {name}{kept}; {Command('gc')} deletes them")
    record = {**output.fields_of(plan), "pruned_version_ids": [each.version for each in gone]}
    output.emit(as_json, record, "")
    return output.plan_code(bool(going)) if dry_run else 0


def told(rules: Mapping[str, int]) -> str:
    """Rules, for people."""
    return "keep " + ", ".join(
        f"within {timedelta(seconds=number)}" if name == "within_s" else f"{name} {number}"
        for name, number in rules.items()
    )


def table(plan: PrunePlan) -> str:
    rows = [
        (
            "keep" if each.is_kept else "prune",
            each.version[:12],
            format_time(each.published_ns),
            ", ".join(each.kept_by),
        )
        for each in plan.versions
    ]
    shown = [tuple(map(printable, row)) for row in rows]
    return output.table(("PLAN", "VERSION", "COMMITTED", "WHY"), shown, is_cut=True)


def _ask(going: int, *, is_agreed: bool, as_json: bool) -> None:
    if is_agreed:
        return
    if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidInputError(
            "nobody can be asked whether to prune", hint="Add -y to prune, or --dry-run to only see the plan."
        )
    output.confirm(f"Prune {count(going, 'version')}?")
