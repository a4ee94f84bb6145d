"""A mount of a volume or a version: a daemon that serves it, or a folder of plain files.

The caller decides whether there is to be one, and counts it as its own; `copies` decides which of
the two it is. Here its path is chosen, what the daemon has to know is put together, and it is
started.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from cowfs import store as stores_layer
from cowfs.api import copies, kept_work, launch, mount_paths, stores
from cowfs.api import scratch as scratches
from cowfs.api.transfer_report import Target
from cowfs.control import MountOptions, MountSpec, SessionSpec
from cowfs.errors import MountFailedError
from cowfs.format.locator import Locator
from cowfs.format.manifest import Manifest
from cowfs.ids import VersionId
from cowfs.machine import registry
from cowfs.machine import scratch as scratch_places
from cowfs.machine.registry import MountEntry
from cowfs.values import dataclass
from cowfs.version.commit import ProgressListener
from cowfs.version.volumes import Seen

Given = str | os.PathLike[str] | None
"""Where a caller wants the mount."""

INSTEAD_OF_A_SCRATCH = (
    "A scratch cannot be a copy. Without FUSE, fork the version (`cowfs fork SOURCE NAME`, fork()) and mount the fork as a "
    "copy (`cowfs mount NAME --mode copy`, mode='copy'), or copy the version out (`cowfs download`, files.download())."
)


@dataclass(frozen=True)
class NewMount:
    """id: in the registry. started: its daemon; None: it is a copy."""

    id: str
    path: Path
    started: launch.Started | None


def of_volume(
    target: Target,
    given: Given,
    options: MountOptions,
    progress: ProgressListener,
    *,
    head_number: int,
    version: VersionId | None,
    seen: Seen | None,
) -> NewMount:
    """A writable one. head_number, version: the volume's head, as far as the caller knows; seen:
    beside it."""
    store = target.store
    stores.refuse_memory(store)
    stores_layer.require_writable(store.record, accept_unsafe=options.accept_unsafe_store)
    if not options.take_over:
        copies.require_not_elsewhere(target.working_copy)

    def copy(why: MountFailedError | None) -> NewMount:
        return _copied(copies.mount_volume(target, given, options, progress, why))

    def mount() -> NewMount:
        kept_work.warn(target.working_copy, store)
        with mount_paths.chosen(given, target.name, store.record.store_id) as path:
            registration = registry.new_id()
            spec = MountSpec(
                store_url=store.url,
                volume=target.name,
                mode="rw",
                source=target.name,
                working_copy=str(target.working_copy.path),
                head_number=head_number,
                head_version=str(version) if version is not None else None,
                lease_epoch=seen.lease_epoch if seen is not None else None,
                quota_bytes=seen.quota_bytes if seen is not None else None,
                log=str(target.working_copy.log_path),
                mount_path=path,
                registration=registration,
                socket=str(registry.socket_path(registration)),
                options=options.resolved(),
            )
            known = {**store.known(), **(seen.objects if seen is not None else {})}
            with copies.replacing_gone(target.working_copy, take_over=options.take_over):
                started = launch.start(spec, access=store.access, known=known, progress=progress)
            kept_work.warn_if_overtaken(target.name, store.url, started.ready)
        return NewMount(registration, Path(path), started)

    if options.mode != "copy" and copies.has_work(target.working_copy, options):
        return copy(None)  # it goes on where it is
    return copies.mounted_or_copied(options, mount, copy)


def of_version(
    store: stores.OpenStore,
    locator: Locator,
    folder: bytes,
    manifest: Manifest,
    given: Given,
    options: MountOptions,
    *,
    is_scratch: bool,
) -> NewMount:
    """A read-only one, or a scratch."""
    stores.refuse_memory(store)
    name = f"{locator.volume}@{locator.version.hex()[:12]}"

    def copy(why: MountFailedError | None) -> NewMount:
        spec = SessionSpec(
            store_url=store.url,
            volume=locator.volume,
            mode="ro",
            version=locator.version.hex(),
            folder=os.fsdecode(folder),
            options=options.resolved(),
        )
        return _copied(copies.mount_version(spec, store, given, name, manifest.stats.bytes, why))

    def mount() -> NewMount:
        scratches.clear(options.meta_path)
        with mount_paths.chosen(given, f"{name}-scratch" if is_scratch else name, store.record.store_id) as path:
            registration = registry.new_id()
            place = scratch_places.locate(registration, locator.volume, meta_dir=options.meta_path).path
            spec = MountSpec(
                store_url=store.url,
                volume=locator.volume,
                mode="scratch" if is_scratch else "ro",
                source=locator.with_path(folder),
                version=locator.version.hex(),
                folder=os.fsdecode(folder),
                working_copy=str(place) if is_scratch else None,
                log=str(registry.log_path(registration)),
                mount_path=path,
                registration=registration,
                socket=str(registry.socket_path(registration)),
                options=options.resolved(),
            )
            started = launch.start(spec, access=store.access, known=store.known(manifest))
        return NewMount(registration, Path(path), started)

    return _scratch(options, mount) if is_scratch else copies.mounted_or_copied(options, mount, copy)


def _scratch(options: MountOptions, mount: Callable[[], NewMount]) -> NewMount:
    """A scratch is a mount or nothing: who cannot mount is told what works instead."""
    try:
        return mount()
    except MountFailedError as error:
        if error.details.get("is_forbidden") or copies.why_not_mounted(options) is not None:
            error.set_hint(f"{INSTEAD_OF_A_SCRATCH} Else this machine has to mount: {error.hint}")
        raise


def _copied(entry: MountEntry) -> NewMount:
    return NewMount(entry.id, Path(entry.mount_path), None)
