"""cowfs ls: the store's volumes with size, files, owner, head, and where they are mounted writable,
by FUSE or as a copy; or the files at SOURCE[:PATH], without a mount."""

from __future__ import annotations

import dataclasses
import stat
from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output
from cowfs.errors import InvalidInputError

if TYPE_CHECKING:
    from cowfs.api.overview import VolumeSummary
    from cowfs.blocking import Entry


@click.command("ls")
@click.argument("place", required=False, metavar="[SOURCE[:PATH]]", shell_complete=completing.volumes)
@click.option("--deleted", is_flag=True, help="Volumes that were deleted; `cowfs undelete` brings one back.")
@output.common_options
def command(place: str | None, deleted: bool, store: str | None, as_json: bool) -> None:
    """List the store's volumes, or the files of SOURCE (NAME, NAME@TAG, NAME@VERSION or a LOCATOR) at
    PATH. Of a NAME the last version is shown, not what is uncommitted."""
    if place is not None:
        if deleted:
            raise InvalidInputError("--deleted lists volumes, not the files of one", hint="Leave one of the two out.")
        _files(place, store, as_json=as_json)
        return
    from cowfs.api import overview, stores

    opened = stores.open_store(store)
    found = overview.volumes_of(store, deleted=deleted)
    if not found:
        output.say(as_json, f"No {'deleted ' if deleted else ''}volumes in {opened.url}")
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


def _files(place: str, store: str | None, *, as_json: bool) -> None:
    from cowfs.api import looking

    found = looking.listing(place, store)
    header = ("MODE", "SIZE", "CHANGED", "NAME")
    rows = [_file_row(each) for each in found.entries]
    output.emit(as_json, dataclasses.asdict(found), output.table(header, rows) if rows else "")


def _file_row(file: Entry) -> tuple[str, ...]:
    from cowfs import sizes

    mark = "/" if file.type == "directory" else f" -> {file.target}" if file.target is not None else ""
    return (
        stat.filemode(file.mode),
        sizes.shown(file.size) if file.type == "file" else "-",
        output.time(file.mtime_ns),
        output.printable(file.name + mark),
    )
