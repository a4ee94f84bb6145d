"""The volume that a call without a mount writes to, named by NAME or NAME:PATH."""

from __future__ import annotations

from cowfs.api import sources, stores
from cowfs.api.mounts.base import mount_of
from cowfs.api.sources import Place
from cowfs.api.transfers import uploading
from cowfs.api.transfers.transfer_report import Target
from cowfs.api.upkeep import copied_stores
from cowfs.base.errors import ReadOnlyError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.machine.registry import MountEntry
from cowfs.version.names.volumes import Head


@dataclass(frozen=True)
class WrittenVolume:
    """A volume as it was found, and the path in it. entry: its mount on this machine, which then is
    written to."""

    place: Place
    target: Target
    head: Head
    entry: MountEntry | None


def find(place: Place, store: stores.Named) -> WrittenVolume:
    """The volume, if this process may write to it. ReadOnlyError: it is a version, or the store is
    read-only."""
    sources.in_named_store(place.source, store, to_write=True)
    found = sources.find(place.source, store)
    if found.head is None:
        raise never_changes(place.source)
    target = Target(found.volume, found.store, copied_stores.locate(found.store, found.volume))
    entry = copied_stores.find_mount(found.store, found.volume)
    if entry is None or not mount_of(entry).is_there():
        uploading.require_not_mounted(target, place.path)
        entry = None
    return WrittenVolume(place, target, found.head, entry)


def never_changes(version: str) -> ReadOnlyError:
    """version: a source that names one."""
    return ReadOnlyError(
        f"{version} is a version, and a version never changes",
        hint=f"Write to a volume, NAME:PATH; a fork of the version is one ({Command('fork')}, fork()).",
    )
