"""cowfs status: mounts and working copies on this machine, with process, and whether they hold
uncommitted work.

Needs no store: --store only narrows the list.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cowfs.cli import output

if TYPE_CHECKING:
    from cowfs.api.overview import MountSummary, Status, WorkingCopySummary


@click.command("status")
@click.option("--all", "is_all", is_flag=True, help="Show working copies without uncommitted work too.")
@click.option("--meta-dir", type=click.Path(path_type=Path), help="Look for working copies there too.")
@output.common_options
def command(is_all: bool, meta_dir: Path | None, store: str | None, as_json: bool) -> None:
    """List mounts and working copies on this machine."""
    from cowfs.api import overview

    found = overview.status(store, meta_dir=meta_dir)
    output.emit(as_json, dataclasses.asdict(found), _text(found, is_all=is_all))


def _text(found: Status, *, is_all: bool) -> str:
    copies = [each for each in found.working_copies if is_all or each.uncommitted is not False]
    rows = [
        (
            each.volume,
            _state(each),
            "-" if each.read_only and not each.error else _work(each),
            str(each.pid),
            (each.version or "-")[:12],
            each.transport or "-",
            output.printable(each.mount_path),
        )
        for each in found.mounts
    ]
    rows += [
        (
            each.volume,
            "not mounted",
            _work(each),
            str(each.pid or "-"),
            (each.version or "-")[:12],
            "-",
            each.working_copy,
        )
        for each in copies
    ]
    rows += [("?", "daemon died", "kept", "-", "-", "-", output.printable(path)) for path in found.dead_mounts]
    if not rows:
        return "Nothing is mounted, and there is no uncommitted work."
    return output.table(("VOLUME", "STATE", "WORK", "PID", "VERSION", "VIA", "WHERE"), rows)


def _state(each: MountSummary) -> str:
    if each.is_detached:
        return "detached"
    return "read-only" if each.read_only else "scratch" if each.is_scratch else "writable"


def _work(each: MountSummary | WorkingCopySummary) -> str:
    if each.error:
        return f"? ({output.printable(each.error)})"
    if each.uncommitted is None:
        return "-"
    return "uncommitted" if each.uncommitted else "committed"
