"""cowfs get NAME: details of one volume, from its store and this machine."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output
from cowfs.rendering import count, format_size, format_time, printable

if TYPE_CHECKING:
    from cowfs.blocking import MountSummary, VolumeDetails


@click.command("get")
@click.argument("name", shell_complete=completing.volumes)
@output.common_options
def command(name: str, store: str | None, as_json: bool) -> None:
    """Show details of volume NAME: its last version, its writer, and where it is mounted and
    declared on this machine."""
    from cowfs.blocking import Store

    found = Store(store).describe(name)
    output.emit(as_json, dataclasses.asdict(found), _text(found))


def _text(found: VolumeDetails) -> str:

    volume = found.volume
    rows = [
        ("name", volume.name),
        ("store", found.store_url),
        ("owner", volume.owner),
        ("version", (volume.version or "none yet") + (" (missing)" if volume.is_missing else "")),
        ("locator", volume.locator or ""),
        ("changed", format_time(volume.changed_ns)),
        ("size", f"{format_size(volume.bytes)}, {count(volume.files, 'file')}"),
        ("quota", format_size(volume.quota_bytes) if volume.quota_bytes is not None else ""),
        ("compress", "" if volume.compress else "no"),
        ("message", found.message or ""),
        ("author", found.author or ""),
        *((f"label {key}", value) for key, value in found.labels.items()),
        ("written by", volume.mounted or ""),
        *(_mount(each) for each in found.mounts),
        *(("working copy", _work(each.working_copy, each.uncommitted)) for each in found.working_copies),
        *(("declared", f"in {each.file}, at {each.path} ({each.made})") for each in found.declared),
    ]
    return "\n".join(f"{key:<13} {printable(value)}" for key, value in rows if value)


def _mount(mount: MountSummary) -> tuple[str, str]:
    if mount.is_detached:
        return "detached", f"from {mount.mount_path}; process {mount.pid} serves files that are open still"
    trouble = f"; {mount.error}" if mount.error else ""
    return "mounted", f"{mount.mount_path} (process {mount.pid}{trouble})"


def _work(path: str, uncommitted: bool | None) -> str:
    return f"{path} ({'committed' if uncommitted is False else 'uncommitted work'})"
