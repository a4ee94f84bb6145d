"""Details of one volume: its store's records, and its state on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cowfs.api import names, sources, stores
from cowfs.api.mounts import overview
from cowfs.api.mounts.overview import VolumeSummary
from cowfs.api.mounts.summaries import MountSummary, WorkingCopySummary
from cowfs.base.errors import NotFoundError
from cowfs.base.short_repr import short_repr
from cowfs.machine import applied, registry, working_copy
from cowfs.version import history
from cowfs.version.names import near_names


@dataclass(frozen=True)
class DeclaredIn:
    """A file that declared the volume when it was applied on this machine. made: "created" or
    "registered"."""

    file: str
    mount_path: str
    made: str


@short_repr
@dataclass(frozen=True)
class VolumeDetails:
    """volume: as in `Store.volumes`. message, author, labels, produced_by: of its last version.
    mounts, working_copies, declared: on this machine, of this user; a mount may be of an older
    version."""

    store_url: str
    volume: VolumeSummary
    message: str | None
    author: str | None
    labels: Mapping[str, str]
    produced_by: Mapping[str, str]
    mounts: list[MountSummary]
    working_copies: list[WorkingCopySummary]
    declared: list[DeclaredIn]


def find(name: str, store: stores.Named = None) -> VolumeDetails:
    """NotFoundError: no such volume; its hint lists similar names."""
    name, store = sources.in_named_store(name, store)
    name = names.checked(name)
    opened = stores.open_store(store)
    head = near_names.read_head(opened.objects, name)
    summary = overview.volume_summary(opened, name)
    if summary is None:
        raise NotFoundError(f"{opened.url} has no volume {name!r} any more", hint="Store().volumes() lists them.")
    manifest = None
    if head.version is not None and not summary.is_missing:
        manifest = history.open_version(opened.objects, head.version)
    return VolumeDetails(
        store_url=opened.url,
        volume=summary,
        message=manifest.message if manifest is not None else None,
        author=manifest.author if manifest is not None else None,
        labels=dict(manifest.labels) if manifest is not None else {},
        produced_by=dict(manifest.produced_by) if manifest is not None else {},
        mounts=[overview.mount_summary(each) for each in _mounts(opened.url, name)],
        working_copies=_working_copies(opened.url, name),
        declared=[
            DeclaredIn(record.file, each.path, each.made)
            for record in applied.records()
            for each in record.volumes
            if (each.store_url, each.volume) == (opened.url, name)
        ],
    )


def _mounts(store_url: str, name: str) -> list[registry.MountEntry]:
    return [
        each for each in registry.list_mounts() if each.store_url == store_url and name in (each.volume, each.written)
    ]


def _working_copies(store_url: str, name: str) -> list[WorkingCopySummary]:
    """Working copies that no mount serves."""
    served = {each.working_copy for each in registry.list_mounts()}
    copies = (copy for copy in working_copy.list_working_copies(None) if str(copy.path) not in served)
    found = (overview.working_copy_summary(copy) for copy in copies if copy.volume == name)
    return [each for each in found if each is not None and each.store_url in (store_url, None)]
