"""cowfs ls: the store's volumes with size, files, owner, head, and where they are mounted
writable."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from cowfs.cli import output

if TYPE_CHECKING:
    from cowfs.api.overview import VolumeSummary


@click.command("ls")
@output.common_options
def command(store: str | None, as_json: bool) -> None:
    """List the store's volumes."""
    from cowfs.api import overview, stores

    opened = stores.open_store(store)
    found = overview.volumes_of(store)
    if not found:
        output.say(as_json, f"No volumes in {opened.url}")
    header = ("NAME", "SIZE", "FILES", "OWNER", "HEAD", "CHANGED", "MOUNTED")
    record = {"store_url": opened.url, "volumes": [dataclasses.asdict(each) for each in found]}
    output.emit(as_json, record, output.table(header, [_row(each) for each in found]) if found else "")


def _row(volume: VolumeSummary) -> tuple[str, ...]:
    from cowfs import sizes

    head = volume.version[:12] if volume.version else "-"
    return (
        volume.name,
        sizes.shown(volume.bytes),
        str(volume.files),
        output.printable(volume.owner),
        f"{head} (missing)" if volume.is_missing else head,
        output.time(volume.changed_ns),
        output.printable(volume.mounted or ""),
    )
