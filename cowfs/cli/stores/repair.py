"""cowfs repair: searches for the lost data of damaged packs, shows a plan, and restores the data
found."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cowfs.cli import completing, output
from cowfs.cli.stores.verify import broken_line, record_line, say_advice
from cowfs.errors import Command, InvalidInputError
from cowfs.rendering import count, printable

if TYPE_CHECKING:
    from cowfs.blocking import RepairPlan, VerifyReport


@click.command("repair")
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="STORE|DIRECTORY",
    shell_complete=completing.stores,
    help="Also look there: another store that has the versions, or a directory that has their files. Repeatable.",
)
@click.option(
    "--report",
    "report_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What `verify --json` has printed: only the packs that it names are read.",
)
@output.dry_run_option
@click.option("-y", "--yes", "is_agreed", is_flag=True, help="Do not ask.")
@output.progress_option
@output.common_options
def command(
    sources: tuple[str, ...],
    report_file: Path | None,
    dry_run: bool,
    is_agreed: bool,
    progress_style: str,
    store: str | None,
    as_json: bool,
) -> int:
    """Read the whole store as `cowfs verify` does and search for lost data: in this machine's
    cache, in copies of its volumes, in the sources given with --from, and in the store's other
    packs. Show the result, and restore the data found. Versions and locators stay as they are, and
    nothing is deleted. Exits with 1 if some data stays lost, and names the paths; --dry-run exits
    with 0."""
    from cowfs.blocking import Store

    if as_json and not (dry_run or is_agreed):
        raise InvalidInputError("nobody can be asked", hint="Add -y, or --dry-run.")
    line = output.ProgressLine(progress_style)
    hear = line if line.is_shown else None
    try:
        asked = Store(store)
        plan = asked.plan_repair(sources=sources, report=_report(report_file), progress=hear)
        line.close()
        if plan.work is not None and not dry_run:
            if not is_agreed:
                _ask(plan)
            plan = asked.repair(plan, progress=hear)
    finally:
        line.close()
    output.emit(as_json, _record(plan), _text(plan))
    say_advice(as_json, plan)
    if dry_run:
        return output.plan_code(plan.work is not None or not plan.is_sound)
    return 0 if plan.is_sound else 1


def _ask(plan: RepairPlan) -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidInputError("nobody can be asked whether to repair", hint="Add -y, or --dry-run.")
    output.talk(_text(plan))
    output.confirm("Write this?")


def _record(plan: RepairPlan) -> dict[str, Any]:
    return {
        "is_sound": plan.is_sound,
        "is_applied": plan.is_applied,
        "store_url": plan.store_url,
        "damaged": plan.packs,
        "found_in": plan.found,
        "broken": plan.broken,
        "records": plan.records,
    }


def _text(plan: RepairPlan) -> str:
    lines = [record_line(each) for each in plan.records]
    lines += [
        f"{pack.key}  ({printable(pack.problem)}): {pack.kept_blobs} blobs kept, {pack.found_blobs} found, {pack.lost_blobs} lost"
        for pack in plan.packs
    ]
    lines += [f"{count(blobs, 'blob')} found in {printable(title)}" for title, blobs in sorted(plan.found.items())]
    lines += [broken_line(each) for each in plan.broken]
    moved = sum(pack.new_pack is not None for pack in plan.packs)
    is_whole = not (plan.broken or any(pack.lost_blobs for pack in plan.packs))
    if not plan.packs and not plan.records:
        lines.append("Nothing is damaged that a version needs")
    elif plan.is_applied:
        lines.append(f"Repaired {count(moved, 'pack')}" + ("" if is_whole else "; some of it stays lost"))
    elif plan.packs and plan.work is None:
        lines.append("Everything is read from elsewhere already" if is_whole else "Nothing of it was found")
    return "\n".join(lines)


def _report(file: Path | None) -> VerifyReport | None:
    from cowfs.blocking import BrokenPath, DamagedPack, DamagedRecord, VerifyReport

    if file is None:
        return None
    try:
        given = json.loads(file.read_text(encoding="utf-8"))
        given = {field.name: given[field.name] for field in dataclasses.fields(VerifyReport) if field.name in given}
        given["damaged"] = [DamagedPack(**each) for each in given["damaged"]]
        given["records"] = [DamagedRecord(**each) for each in given.get("records", [])]
        given["broken"] = [BrokenPath(**each) for each in given["broken"]]
        return VerifyReport(**given)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(
            f"{file} is no report of a verification: {error}",
            hint=f"Write one: {Command('verify', '--json', into='FILE')}.",
        ) from error
