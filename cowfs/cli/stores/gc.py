"""cowfs gc: deletes data that no version references. Shows the plan first."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from cowfs.cli import output
from cowfs.cli.start import tidy_up_when_terminated
from cowfs.errors import InvalidInputError
from cowfs.rendering import count, format_size, format_time, printable

if TYPE_CHECKING:
    from cowfs.blocking import GcReport

WAITS = 4


@click.command("gc")
@output.dry_run_option
@click.option(
    "--why",
    "why_object",
    metavar="OBJECT",
    help="Say why a version (NAME@TAG, NAME@VERSION) or pack (id or key) is kept.",
)
@click.option("-y", "--yes", "is_agreed", is_flag=True, help="Do not ask.")
@click.option(
    "--accept-loss",
    metavar="PLAN-ID",
    default="",
    help="Carry this plan out although the store does not show all that should be there.",
)
@output.common_options
def command(
    dry_run: bool, why_object: str | None, is_agreed: bool, accept_loss: str, store: str | None, as_json: bool
) -> int:
    """Delete data that no volume of the store needs: versions that were pruned, volumes that were
    deleted a week ago or longer, and leftovers of failed commits. Mounts can stay in use meanwhile.

    Nothing is deleted if the store does not show everything that should be there: a volume that the
    last collection saw, any head, a folder. The command then lists the missing parts and the id of
    the plan.

    Data younger than an hour is kept. The command waits for a mount that does not answer. If that
    takes too long, the command exits with 4, and the next one continues.
    """
    from cowfs.blocking import Store

    if why_object is not None:
        found = Store(store).why(why_object)
        output.emit(as_json, found, "\n".join(found.lines))
        return 0
    if not (dry_run or is_agreed) and (as_json or not (sys.stdin.isatty() and sys.stderr.isatty())):
        raise InvalidInputError(
            "nobody can be asked whether to delete",
            hint="Add -y to delete without a question, or --dry-run to see what would go.",
        )
    tidy_up_when_terminated()
    prepared = Store(store).plan_gc(dry_run=dry_run, say=lambda text: output.say(as_json, text))
    if dry_run:
        output.emit(as_json, record(prepared.report), shown(prepared.report))
        return output.plan_code(has_work(prepared.report))
    if not as_json:
        output.say(as_json, shown(prepared.report))
    if not is_agreed and not prepared.is_empty and prepared.is_allowed(accept_loss):
        output.confirm("Delete this?")
    done = prepared.apply(accept_loss=accept_loss, say=lambda text: output.say(as_json, text))
    output.emit(as_json, record(done), f"Freed {format_size(done.freed_bytes)}" if done.is_done else "")
    for line in done.outcome:
        output.say(as_json, line)
    return 0 if done.is_done else WAITS


def has_work(report: GcReport) -> bool:
    """Whether the plan deletes or replaces anything, or is held up."""
    return bool(report.objects or report.gone or report.repacked_packs or report.alarms)


def record(report: GcReport) -> dict[str, object]:
    objects = [{"key": key, "bytes": size} for key, size in report.objects.items()]
    return {**output.fields_of(report), "objects": objects}


def shown(report: GcReport) -> str:
    rows = [(each.action, format_size(each.bytes), each.what) for each in report.shares]
    lines = [output.table(("", "BYTES", ""), rows), *map(printable, report.warnings)]
    if report.deleted_volumes:
        last = format_time(max(each.until_ns for each in report.deleted_volumes))
        volumes = count(len(report.deleted_volumes), "deleted volume")
        lines.append(f"{volumes} can be brought back until {last}, which takes room: cowfs du --stored")
    return "\n".join(lines)
