"""cowfs maintain: prunes the volumes of a store by their saved rules, then collects garbage."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from cowfs.cli import output
from cowfs.cli.start import tidy_up_when_terminated
from cowfs.cli.stores import gc, prune
from cowfs.errors import InvalidInputError
from cowfs.rendering import count, format_size, printable

if TYPE_CHECKING:
    from cowfs.blocking import GcPlan, PrunePlan


@click.command("maintain")
@output.dry_run_option
@click.option("-y", "--yes", "is_agreed", is_flag=True, help="Do not ask.")
@output.common_options
def command(dry_run: bool, is_agreed: bool, store: str | None, as_json: bool) -> int:
    """Prune every volume of the store that has saved rules (`cowfs prune NAME --keep-daily 7
    --save`), then delete unneeded data, as `cowfs gc` does. Shows both plans first, and asks.

    With --dry-run, show the result of both, including data that only the versions to prune need.
    Exits with 4 while a mount does not answer; the next run continues.
    """
    from cowfs.blocking import Store

    if not (dry_run or is_agreed) and (as_json or not (sys.stdin.isatty() and sys.stderr.isatty())):
        raise InvalidInputError(
            "nobody can be asked whether to delete",
            hint="Add -y to delete without a question, or --dry-run to see what would go.",
        )
    tidy_up_when_terminated()
    plans = Store(store).plan_maintain()
    _tell(plans, as_json=as_json)
    if dry_run:
        foreseen = Store(store).gc(dry_run=True, pruned=plans)
        volumes = [{**output.fields_of(plan), "pruned_version_ids": []} for plan in plans]
        record = {"store_url": foreseen.store_url, "volumes": volumes, "gc": gc.record(foreseen)}
        output.emit(as_json, record, gc.shown(foreseen))
        return output.plan_code(bool(_going(plans) or gc.has_work(foreseen)))
    pruned = _print_pruning(plans, store, is_agreed=is_agreed)
    prepared = Store(store).plan_gc(say=lambda text: output.say(as_json, text))
    report, code = _print_collection(prepared, is_agreed=is_agreed, as_json=as_json)
    volumes = [{**output.fields_of(plan), "pruned_version_ids": ids} for plan, ids in zip(plans, pruned, strict=True)]
    output.emit(as_json, {"store_url": prepared.report.store_url, "volumes": volumes, "gc": report}, "")
    return code


def _tell(plans: list[PrunePlan], *, as_json: bool) -> None:
    if as_json:
        return
    for plan in plans:
        click.echo(f"Volume {printable(plan.volume)}: {prune.told(plan.rules)}")
        click.echo(prune.table(plan))
    output.say(as_json, f"To prune: {count(_going(plans), 'version')} of {count(len(plans), 'volume')}")


def _going(plans: list[PrunePlan]) -> int:
    return sum(len(plan.pruned) for plan in plans)


def _print_pruning(plans: list[PrunePlan], store: str | None, *, is_agreed: bool) -> list[list[str]]:
    from cowfs.blocking import Store

    going = _going(plans)
    if not going:
        return [[] for _ in plans]
    if not is_agreed:
        output.confirm(f"Prune {count(going, 'version')}?")
    return [[each.version for each in Store(store).prune(plan)] if plan.pruned else [] for plan in plans]


def _print_collection(prepared: GcPlan, *, is_agreed: bool, as_json: bool) -> tuple[dict[str, Any], int]:
    """The report, and the exit code."""
    if not as_json:
        click.echo(gc.shown(prepared.report))
    if not is_agreed and not prepared.is_empty and prepared.is_allowed():
        output.confirm("Delete this?")
    done = prepared.apply(say=lambda text: output.say(as_json, text))
    if done.is_done and not as_json:
        click.echo(f"Freed {format_size(done.freed_bytes)}")
    for line in done.outcome:
        output.say(as_json, line)
    return gc.record(done), 0 if done.is_done else gc.WAITS
