"""A store on one screen, as `cowfs store` shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cowfs.cli import output
from cowfs.errors import Command
from cowfs.rendering import count, format_size, format_time, printable

if TYPE_CHECKING:
    from cowfs.blocking import GcReport, StoreOverview, VolumeInTree

LEFT_OUT = ("FORKED FROM", "VERSION", "OWNER", "FILES", "CHANGED", "SIZE")
"""Columns that a narrow terminal does without, first the least needed."""


def record(found: StoreOverview) -> dict[str, object]:
    garbage = found.garbage
    return {
        "store_url": found.store_url,
        "store_names": found.store_names,
        "volumes": [_volume_record(each) for each in found.volumes],
        "deleted_volumes": found.deleted_volumes,
        "is_counted": found.is_counted,
        "stored_bytes": found.stored_bytes,
        "freed_bytes": garbage.freed_bytes if garbage is not None else None,
        "freed_versions": garbage.freed_versions if garbage is not None else None,
        "young_bytes": garbage.young_bytes if garbage is not None else None,
        "problems": found.problems,
        "purged_count": found.purged_count,
    }


def _volume_record(each: VolumeInTree) -> dict[str, object]:
    own = {name: value for name, value in output.fields_of(each).items() if name != "volume"}
    return {**output.fields_of(each.volume), **own}


def text(found: StoreOverview) -> str:
    names = f" ({', '.join(found.store_names)})" if found.store_names else ""
    lines = [f"store    {found.store_url}{names}", f"volumes  {len(found.volumes)}"]
    if found.stored_bytes is not None:
        lines.append(f"stored   {format_size(found.stored_bytes)}")
    if found.purged_count:
        lines.append(f"purged   {count(found.purged_count, 'version')}")
    if found.garbage is not None:
        lines.append(f"garbage  {_garbage(found.garbage)}")
    return "\n".join([*lines, *(["", _tree(found)] if found.volumes or found.deleted_volumes else [])])


def _garbage(report: GcReport) -> str:
    young = f"; {format_size(report.young_bytes)} too young, or a mount may still use it" if report.young_bytes else ""
    alarms = f"; {count(len(report.alarms), 'alarm')}, see {Command('gc', '--dry-run')}" if report.alarms else ""
    if not report.freed_bytes:
        return f"nothing to free{young}{alarms}"
    said = f"{format_size(report.freed_bytes)}, {count(report.freed_versions, 'version')}: {Command('gc')} frees it"
    return f"{said}{young}{alarms}"


def _tree(found: StoreOverview) -> str:
    lanes = _lanes([each.depth for each in found.volumes])
    counts = ("STORED", "UNIQUE") if found.is_counted else ()
    header = ("NAME", "SIZE", "FILES", *counts, "OWNER", "CHANGED", "VERSION", "FORKED FROM", "WRITER")
    rows = [(lane + each.volume.name, *_cells(each, found)) for lane, each in zip(lanes, found.volumes, strict=True)]
    nothing = ("",) * (len(header) - 5)
    rows += [
        (f"{each.group} (deleted)", "", "", format_size(each.stored_bytes), format_size(each.unique_bytes), *nothing)
        for each in found.deleted_volumes
    ]
    return output.table(header, rows, without=LEFT_OUT, is_cut=True)


def _cells(each: VolumeInTree, found: StoreOverview) -> tuple[str, ...]:
    volume = each.volume
    counts = (format_size(each.stored_bytes or 0), format_size(each.unique_bytes or 0)) if found.is_counted else ()
    source, _, version = (each.forked_from or "").partition("@")
    mark = "" if volume.problem is None else "damaged" if not volume.is_newer else "of a newer cowfs"
    return (
        format_size(volume.bytes),
        str(volume.files),
        *counts,
        printable(volume.owner),
        format_time(volume.changed_ns) if volume.head_number else "-",
        mark or (volume.version or "-")[:12],
        f"{'' if each.depth else source}@{version[:12]}" if source else "",  # the tree shows the volume
        printable(volume.writer or ""),
    )


def _lanes(depths: list[int]) -> list[str]:
    """The lines of a tree beside its entries, each of which stands before those below it."""
    lanes = []
    for at, depth in enumerate(depths):
        later = depths[at + 1 :]
        goes_on = [_goes_on(later, level) for level in range(1, depth + 1)]
        lanes.append(
            "".join("│  " if more else "   " for more in goes_on[:-1]) + ("├─ " if goes_on[-1] else "└─ ")
            if depth
            else ""
        )
    return lanes


def _goes_on(later: list[int], level: int) -> bool:
    """Whether another entry of this level follows before one of a level above."""
    return next((depth == level for depth in later if depth <= level), False)
