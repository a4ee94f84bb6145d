"""Makes the mount of a volume or a version: a daemon that serves it, or a folder of plain files.

The caller decides whether to mount, and registers itself as a user of the mount. This module
chooses the kind from the mode and the abilities of this machine. For FUSE it chooses the path,
builds the daemon's specification and starts the daemon. `new_folders` makes folders.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from cowfs import store as stores_layer
from cowfs.api import stores
from cowfs.api.mounts import kept_work, launch, mount_paths, new_folders, process_binding, scratch
from cowfs.api.transfers.transfer_report import Target
from cowfs.base.errors import InvalidInputError, MountFailedError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.control import MountOptions, MountSpec, SessionSpec
from cowfs.control.binding import Binding
from cowfs.folders import lost_folders
from cowfs.format.locator import Locator
from cowfs.format.manifest import Manifest
from cowfs.machine import mounting, registry, scratch_directories
from cowfs.machine.registry import MountEntry
from cowfs.version.commit import ProgressListener
from cowfs.version.names.volumes import Seen

T = TypeVar("T")
Given = str | os.PathLike[str] | None
"""The path that the caller requests, if any."""

INSTEAD_OF_A_SCRATCH = (
    f"A scratch cannot be a copy. Without FUSE, fork the version ({Command('fork', 'SOURCE', 'NAME')}, fork()) and mount the fork as a "
    f"copy ({Command('mount', 'NAME', '--mode', 'copy')}, mode='copy'), or copy the version out ({Command('download')}, files.download())."
)


@dataclass(frozen=True)
class NewMount:
    """id: in the registry. started: its daemon; None: it is a copy. binding: as of `MountSpec`."""

    id: str
    path: Path
    started: launch.Started | None
    binding: Binding | None = None


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
    """A writable mount. head_number, version: the volume's head, as far as the caller knows. seen:
    other objects that the caller has read."""
    store = target.store
    stores.refuse_memory(store)
    stores_layer.require_writable(store.record, accept_unsafe=options.accept_unsafe_store)
    if not options.take_over:
        lost_folders.require_not_elsewhere(target.working_copy)

    def copy(why: MountFailedError | None) -> NewMount:
        return _mount_folder(new_folders.mount_volume(target, given, options, progress, why))

    def mount() -> NewMount:
        kept_work.warn(target.working_copy, store)
        kept = seen.settings if seen is not None else None
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
                quota_bytes=kept.quota_bytes if kept is not None else None,
                compress=kept.compress if kept is not None else None,
                log=str(target.working_copy.log_path),
                mount_path=path,
                registration=registration,
                socket=str(registry.socket_path(registration)),
                binding=(binding := process_binding.find_binding()),
                options=options.resolved(),
            )
            known = {**store.known(), **(seen.objects if seen is not None else {})}
            with lost_folders.replace_gone(target.working_copy, take_over=options.take_over):
                started = launch.start(spec, access=store.access, known=known, progress=progress)
            kept_work.warn_if_overtaken(target.name, store.url, started.ready)
        return NewMount(registration, Path(path), started, binding)

    if options.mode != "copy" and new_folders.has_work(target.working_copy, options):
        return copy(None)  # the work continues in the copy that has it
    return _mount_or_copy(options, mount, copy)


def of_version(
    store: stores.OpenStore,
    locator: Locator,
    folder: bytes,
    manifest: Manifest,
    given: Given,
    options: MountOptions,
) -> NewMount:
    """A read-only mount of the version or of a folder of it."""
    stores.refuse_memory(store)

    def copy(why: MountFailedError | None) -> NewMount:
        spec = SessionSpec(
            store_url=store.url,
            volume=locator.volume,
            mode="ro",
            version=locator.version.hex(),
            folder=os.fsdecode(folder),
            options=options.resolved(),
        )
        name, size = _directory_of(locator), manifest.stats.bytes
        return _mount_folder(new_folders.mount_version(spec, store, given, name, size, why))

    def mount() -> NewMount:
        return _serve_version(store, locator, folder, manifest, given, options, "ro")

    return _mount_or_copy(options, mount, copy)


def scratch_of_version(
    store: stores.OpenStore, locator: Locator, manifest: Manifest, given: Given, options: MountOptions
) -> NewMount:
    """A scratch works only by FUSE. Where that fails, the error names the alternatives."""
    stores.refuse_memory(store)
    try:
        return _serve_version(store, locator, b"", manifest, given, options, "scratch")
    except MountFailedError as error:
        if error.details.get("is_forbidden") or _why_not_mounted(options) is not None:
            error.set_hint(f"{INSTEAD_OF_A_SCRATCH} Else this machine has to mount: {error.open_hint}")
        raise


def _serve_version(
    store: stores.OpenStore,
    locator: Locator,
    folder: bytes,
    manifest: Manifest,
    given: Given,
    options: MountOptions,
    mode: Literal["ro", "scratch"],
) -> NewMount:
    scratch.clear(options.meta_path)
    name = _directory_of(locator) if mode == "ro" else f"{_directory_of(locator)}-scratch"
    with mount_paths.chosen(given, name, store.record.store_id) as path:
        registration = registry.new_id()
        place = scratch_directories.locate(registration, locator.volume, meta_dir=options.meta_path).path
        spec = MountSpec(
            store_url=store.url,
            volume=locator.volume,
            mode=mode,
            source=locator.with_path(folder),
            version=locator.version.hex(),
            folder=os.fsdecode(folder),
            working_copy=str(place) if mode == "scratch" else None,
            log=str(registry.log_path(registration)),
            mount_path=path,
            registration=registration,
            socket=str(registry.socket_path(registration)),
            binding=(binding := process_binding.find_binding()),
            options=options.resolved(),
        )
        started = launch.start(spec, access=store.access, known=store.known(manifest))
    return NewMount(registration, Path(path), started, binding)


def _directory_of(locator: Locator) -> str:
    """The name of the default directory."""
    return f"{locator.volume}@{locator.version.hex()[:12]}"


def _why_not_mounted(options: MountOptions) -> MountFailedError | None:
    """Why this machine cannot mount; None if no obstacle is known beforehand. A descriptor
    that was handed in needs no permission."""
    if options.fuse_fd is not None:
        return None
    try:
        mounting.check_device()
    except MountFailedError as error:
        return error
    return None


def _mount_or_copy(
    options: MountOptions,
    mount: Callable[[], T],
    copy: Callable[[MountFailedError | None], T],
) -> T:
    """Mounts as the mode requires. copy: gets the reason why FUSE failed, None if a copy was
    requested."""
    is_mount_only = options.foreground or options.record is not None
    if options.mode == "copy":
        if is_mount_only or options.fuse_fd is not None:
            raise InvalidInputError(
                "a copy has no process, serves no descriptor, and cannot tell what is read of it",
                hint="Leave foreground, fuse_fd and record out, or mode='copy'.",
            )
        return copy(None)
    why = _why_not_mounted(options) if options.mode == "auto" and not is_mount_only else None
    if why is None:
        try:
            return mount()
        except MountFailedError as error:  # the device can be opened, but mounting is forbidden
            if options.mode == "fuse" or is_mount_only or not error.details.get("is_forbidden"):
                raise
            why = error
    return copy(why)


def _mount_folder(entry: MountEntry) -> NewMount:
    return NewMount(entry.id, Path(entry.mount_path), None)
