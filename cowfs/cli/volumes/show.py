"""cowfs show: what is known of a volume, from its store and this machine; or the record of one
version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cowfs.cli import completing, output
from cowfs.rendering import count, format_size, format_time, printable_lines

if TYPE_CHECKING:
    from cowfs.blocking import MountSummary, ROVolume, VersionNames, VolumeDetails

NAME_WIDTH = 13
Rows = list[tuple[str, str]]


@click.command("show")
@click.argument("source", shell_complete=completing.volumes)
@output.common_options
def command(source: str, store: str | None, as_json: bool) -> None:
    """Show what is known of volume NAME: its last version, its writer, and where it is mounted and
    declared on this machine. For NAME@TAG, NAME@VERSION or a LOCATOR, show the version's record:
    message, author, parents, labels, origin, size and tags. `cowfs diff` shows its changes. With
    :PATH after it, or NAME:PATH, the record has the locator of that path."""
    from cowfs.blocking import Store, Volume
    from cowfs.cli import versions

    if not Store(store).names_version(source):
        found = Store(store).describe(source)
        output.emit(as_json, _volume_record(found), _card(_of_volume(found)))
        return
    version = Volume.version(source, store=store)
    if version.folder:
        Store(store).stat(source)  # an error, if the path does not exist
    names = version.names()
    output.emit(as_json, versions.record_named(version, names), _card(_of_version(version, names)))


def _volume_record(found: VolumeDetails) -> dict[str, Any]:
    own = output.fields_of(found)
    return {**output.fields_of(own.pop("volume")), **own}


def _card(rows: Rows) -> str:
    """A line for each row that has a text. Further lines of a message stand below the first one."""
    return "\n".join(
        f"{name:<{NAME_WIDTH}} " + f"\n{'':<{NAME_WIDTH + 1}}".join(printable_lines(text))
        for name, text in rows
        if text
    )


def _of_version(version: ROVolume, names: VersionNames) -> Rows:
    stats = version.stats
    linked = f", {format_size(stats.linked_bytes)} of them linked" if stats.linked_bytes else ""
    held = count(stats.files, "file"), count(stats.directories, "directory")
    return [
        ("version", version.id),
        ("locator", version.locator),
        ("volume", version.name),
        ("made in", version.made_in if version.made_in != version.name else ""),
        ("tags", ", ".join(names.tag_names)),
        ("pruned", "a collection may delete it" if names.is_collectable else ""),
        ("purged", "as a whole; its files are gone" if names.is_purged else ""),
        ("committed", format_time(version.created_ns)),
        ("author", version.author),
        ("message", version.message),
        *(("parent", parent) for parent in version.parents),
        *((f"label {key}", value) for key, value in sorted(version.labels.items())),
        *((key, value) for key, value in sorted(version.produced_by.items())),
        ("size", ", ".join((f"{format_size(stats.bytes)}{linked}", *held))),
        ("new", f"{format_size(stats.added_bytes)}, {format_size(stats.stored_bytes_added)} uploaded"),
    ]


def _of_volume(found: VolumeDetails) -> Rows:
    volume = found.volume
    return [
        ("volume", volume.name),
        ("store", found.store_url),
        ("owner", volume.owner),
        ("version", (volume.version or "none yet") + (" (missing)" if volume.is_missing else "")),
        ("purged", "as a whole; its files are gone" if volume.is_purged else ""),
        ("locator", volume.locator or ""),
        ("changed", format_time(volume.changed_ns)),
        ("size", f"{format_size(volume.bytes)}, {count(volume.files, 'file')}"),
        ("quota", format_size(volume.quota_bytes) if volume.quota_bytes is not None else ""),
        ("compress", "" if volume.is_compressed else "no"),
        ("message", found.message or ""),
        ("author", found.author or ""),
        *((f"label {key}", value) for key, value in found.labels.items()),
        ("written by", volume.writer or ""),
        *(_mount(each) for each in found.mounts),
        *(("working copy", _work(each.working_copy, each.has_uncommitted)) for each in found.working_copies),
        *(("declared", f"in {each.file}, at {each.mount_path} ({each.made})") for each in found.declared),
    ]


def _mount(mount: MountSummary) -> tuple[str, str]:
    if mount.is_detached:
        return "detached", f"from {mount.mount_path}; process {mount.pid} serves files that are open still"
    trouble = f"; {mount.problem}" if mount.problem else ""
    return "mounted", f"{mount.mount_path} (process {mount.pid}{trouble})"


def _work(path: str, uncommitted: bool | None) -> str:
    return f"{path} ({'committed' if uncommitted is False else 'uncommitted work'})"
