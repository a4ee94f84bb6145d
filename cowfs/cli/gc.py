"""cowfs gc: gives back the room of what nothing needs any more. Shows first what goes."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

import click

from cowfs import sizes
from cowfs.cli import output
from cowfs.cli.start import tidy_up_when_terminated
from cowfs.errors import InvalidInputError

if TYPE_CHECKING:
    from cowfs.api.collect_report import GcReport

WAITS = 4


@click.command("gc")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; delete nothing.")
@click.option(
    "--why",
    "why_object",
    metavar="OBJECT",
    help="Say why a version (NAME@TAG, NAME@VERSION) or pack (id or key) is kept.",
)
@click.option("-y", "--yes", "is_agreed", is_flag=True, help="Do not ask.")
@output.common_options
def command(dry_run: bool, why_object: str | None, is_agreed: bool, store: str | None, as_json: bool) -> int:
    """Delete what no volume of the store needs: versions that were pruned, volumes that were
    deleted a week ago or longer, and what failed commits have left. Mounts go on meanwhile.

    What is younger than an hour stays. A mount that does not answer is waited for; if it takes too
    long, the command exits with 4, and the next one goes on."""
    from cowfs.api import collecting

    if why_object is not None:
        found = collecting.why(why_object, store)
        output.emit(as_json, dataclasses.asdict(found), "\n".join(_reasons(found)))
        return 0
    if not (dry_run or is_agreed) and (as_json or not (sys.stdin.isatty() and sys.stderr.isatty())):
        raise InvalidInputError(
            "nobody can be asked whether to delete",
            hint="Add -y to delete without a question, or --dry-run to see what would go.",
        )
    tidy_up_when_terminated()
    prepared = collecting.prepare(store, dry_run=dry_run, say=lambda text: output.say(as_json, text))
    if dry_run:
        output.emit(as_json, record(prepared.report), shown(prepared.report))
        return 0
    if not as_json:
        output.say(as_json, shown(prepared.report))
    if not is_agreed and not prepared.is_empty:
        output.confirm("Delete this?")
    done = prepared.apply(say=lambda text: output.say(as_json, text))
    output.emit(as_json, record(done), f"Freed {sizes.shown(done.freed_bytes)}" if done.is_done else "")
    tell_outcome(done, as_json)
    return 0 if done.is_done else WAITS


def tell_outcome(done: GcReport, as_json: bool) -> None:
    """Which volumes are gone for good, and who it waits for, if it is not done."""
    for name in done.gone:
        output.say(as_json, f"Volume {name} cannot be brought back any more")
    if not done.is_done and not done.waits_for:
        output.say(as_json, "Not done: somebody else is collecting the same, or has added to it. Run it again later.")
    elif not done.is_done:
        names = ", ".join(f"{each.volume} ({each.owner})" for each in done.waits_for)
        output.say(as_json, f"Not done: no answer yet from who writes to {names}. Run it again later; it goes on then.")


def record(report: GcReport) -> dict[str, object]:
    found = dataclasses.asdict(report)
    del found["objects"]
    return {**found, "objects": [{"key": key, "bytes": size} for key, size in report.objects.items()]}


def shown(report: GcReport) -> str:
    rows = [
        (
            "delete",
            sizes.shown(report.freed_bytes + report.written_bytes),
            f"{output.count(report.versions, 'version')}, {output.count(report.packs, 'pack')}",
        ),
    ]
    if report.repacked_packs:
        of_packs = output.count(report.repacked_packs, "pack")
        rows.append(("write", sizes.shown(report.written_bytes), f"what is needed of {of_packs} that go"))
    rows.append(("keep", sizes.shown(report.kept_bytes), f"needed by {output.count(report.kept_versions, 'version')}"))
    if report.young_bytes:
        rows.append(("later", sizes.shown(report.young_bytes), "too young, or a mount may still use it"))
    if report.sparse_bytes:
        rows.append(
            (
                "unused",
                sizes.shown(report.sparse_bytes),
                f"in {output.count(report.sparse_packs, 'pack')} needed in part",
            )
        )
    text = output.table(("", "BYTES", ""), rows)
    gone = "".join(f"\nThen volume {name} cannot be brought back any more" for name in report.gone)
    if not report.deleted:
        return text + gone
    last = output.time(max(each.until_ns for each in report.deleted))
    kept = (
        f"\n{output.count(len(report.deleted), 'deleted volume')} can be brought back until {last}, which takes room: "
    )
    return f"{text}{gone}{kept}cowfs du --stored"


def _reasons(found: object) -> list[str]:
    from cowfs.api.collect_report import WhyReport

    assert isinstance(found, WhyReport)
    if not found.reasons:
        return [f"{found.key}: nothing needs it"]
    lines = [f"{found.key} is needed"]
    for reason in found.reasons:
        by = f"by version {reason.version[:12]}: " if reason.version else "as uploaded by "
        lines.append(f"  {by}{', '.join(reason.kept_by)}")
    return lines
