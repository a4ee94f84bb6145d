"""cowfs verify: reads a version's or a store's packs again, and reports damage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output
from cowfs.errors import Command, InvalidInputError
from cowfs.rendering import count, format_size, name_store, printable

if TYPE_CHECKING:
    from cowfs.blocking import BrokenPath, DamagedPack, DamagedRecord, RepairPlan, VerifyReport

SHOWN_VERSIONS = 3


@click.command("verify")
@click.argument("source", metavar="[SOURCE]", required=False, shell_complete=completing.volumes)
@click.option("--sample", metavar="PERCENT", help="Read only that part of the packs, chosen by chance: 5%.")
@click.option("--all", "is_all", is_flag=True, help="Read every pack; the default.")
@click.option("--resume", is_flag=True, help="Leave out what an interrupted run has read.")
@output.progress_option
@output.common_options
def command(
    source: str | None,
    sample: str | None,
    is_all: bool,
    resume: bool,
    progress_style: str,
    store: str | None,
    as_json: bool,
) -> int:
    """Read the packs of SOURCE (NAME, NAME@TAG, NAME@VERSION or a LOCATOR) or of the whole store
    again and check every byte. Show the unreadable paths of each version, damaged heads, tags,
    leases and volume records, and missing heads. Exits with 1 if there are any; `cowfs repair`
    searches for lost data. Linked files are not read: only size and ETag (or time) of their objects
    are checked."""
    from cowfs.blocking import Store

    if sample is not None and is_all:
        raise InvalidInputError("--sample and --all exclude each other", hint="Leave one out.")
    with output.progress(progress_style) as progress:
        done = Store(store).verify(source, sample=_share(sample), resume=resume, progress=progress)
    output.emit(as_json, {"is_sound": done.is_sound, **output.fields_of(done)}, _text(done))
    say_advice(as_json, done)
    if done.broken or any(pack.lost_blobs for pack in done.damaged):
        output.say(as_json, name_store(f"{Command('repair')} looks for what was lost", done.store_url))
    return 0 if done.is_sound else 1


def _share(text: str | None) -> float:
    if text is None:
        return 1.0
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = 0
    if not 0 < percent <= 100:
        raise InvalidInputError(
            f"{text!r} is no part of a whole", hint="Give a percentage, more than 0 and at most 100: --sample 5%."
        )
    return percent / 100


def _text(done: VerifyReport) -> str:
    lines = [record_line(record) for record in done.records]
    lines += [damaged_line(pack) for pack in done.damaged]
    lines += [broken_line(each) for each in done.broken]
    lines += [broken_line(each, "purged ") for each in done.purged]
    lines += [printable(note) for note in done.notes]
    read = f"{done.checked_packs} of {count(done.packs, 'pack')} ({format_size(done.read_bytes)})"
    linked = f", {count(done.links, 'linked object')}" if done.links else ""
    lost = sum(pack.lost_bytes for pack in done.damaged)
    bad = len({each.path for each in done.broken})
    found = [f"{count(bad, 'path')} cannot be read, {format_size(lost)} are lost"] if bad or lost else []
    if done.records:
        found.append(f"{count(len(done.records), 'record')} cannot be read")
    verdict = ", ".join(found) if found else "all right"
    return "\n".join([*lines, f"{count(done.checked_versions, 'version')}, {read}{linked}: {verdict}"])


def say_advice(as_json: bool, found: VerifyReport | RepairPlan) -> None:
    for said in found.advice:
        output.say(as_json, said)


def record_line(record: DamagedRecord) -> str:
    return f"damaged  {record.key}  ({printable(record.problem)})"


def damaged_line(pack: DamagedPack) -> str:
    meaning = "repaired" if pack.is_repaired else f"{pack.lost_blobs} blobs lost" if pack.lost_blobs else "nothing lost"
    return f"damaged  {pack.key}  ({printable(pack.problem)}; {meaning})"


def broken_line(each: BrokenPath, what: str = "broken ") -> str:
    ids = [version[:12] for version in each.version_ids]
    more = f" and {len(ids) - SHOWN_VERSIONS} more" if len(ids) > SHOWN_VERSIONS else ""
    where = f"{', '.join(each.volume_names)}@{', '.join(ids[:SHOWN_VERSIONS])}{more}"
    path = printable(each.path) if each.path is not None else "(the version)"
    return f"{what}  {path}  in {where}  ({printable(each.problem)})"
