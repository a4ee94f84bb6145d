"""New mounts without FUSE: the folder of a volume, made or reused, and the folder of a version.

A volume's folder is made while no other process writes to the volume (`folders/base_version`). The
folder holds no lease afterwards: its commit detects versions that others have published since.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.api import stores
from cowfs.api.access import version_folders
from cowfs.api.mounts import kept_work, mount_paths
from cowfs.api.transfers import tree_publishing
from cowfs.api.transfers.path_errors import errors_of_ours
from cowfs.api.transfers.transfer_report import Target
from cowfs.api.upkeep import copied_stores
from cowfs.base import byte_sizes, log
from cowfs.base.errors import LeaseHeldError, MountFailedError, NeedsFuseError
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.control import MountOptions, SessionSpec
from cowfs.folders import lost_folders, mounted_folders, work_left
from cowfs.machine import registry, sharing
from cowfs.machine.folders.folder import Copy, of_version
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy
from cowfs.version.commit import ProgressListener
from cowfs.version.names import volumes

if TYPE_CHECKING:
    from cowfs.transfer.version_tree import VersionTree

_log = log.get("copy")
_warned: set[int] = set()
"""Ids of processes that have warned that their mounts are copies."""

CONTAINER = (
    "docker run --device /dev/fuse --cap-add SYS_ADMIN --security-opt apparmor=unconfined; Kubernetes: privileged: true"
)


def require_none_elsewhere(store: stores.OpenStore, volume: str) -> None:
    """LeaseHeldError: a copy of the volume is mounted at another path than the requested one. It
    does not count if its processes have ended and it was not made by command."""
    entry = copied_stores.find_mount(store, volume)
    if entry is not None and entry.kind == "folder" and mounted_folders.is_there(entry) and _is_used(entry):
        raise LeaseHeldError(
            f"volume {volume!r} is mounted as a copy at {entry.mount_path}",
            hint=f"Work at {entry.mount_path}, unmount it first, or fork the volume to work beside it.",
            details={"where": entry.mount_path},
        )


def _is_used(entry: MountEntry) -> bool:
    if registry.is_lasting(entry) or sharing.holds(entry) or not sharing.is_alone(entry):
        return True
    sharing.forget(entry)
    return False


def mount_volume(
    target: Target,
    given: str | os.PathLike[str] | None,
    options: MountOptions,
    progress: ProgressListener,
    why: MountFailedError | None,
) -> MountEntry:
    """The volume's copy, made or reused. LeaseHeldError: another process writes to the volume."""
    from cowfs.folders.base_version import copy_base

    working_copy, store = target.working_copy, target.store
    spec = tree_publishing.writing(target, options)
    spec = replace(spec, options=replace(spec.options, take_over=options.take_over))
    wanted = mount_paths.checked(given) if given is not None else None
    with mounted_folders.turn(working_copy.path):
        left = work_left.find_folder(working_copy, wanted)
        if left is not None and _is_current(left, working_copy, store):
            return _register(left, store, target.name, working_copy=working_copy.path)
        reason = f"; this machine cannot mount it: {why.message}" if why is not None else ""
        tree_publishing.require_committed(target, spec, f"a copy would not show{reason}")
        kept_work.warn(working_copy, store)
        with ExitStack() as stack:
            opened = stack.enter_context(copy_base(spec, access=store.access))
            manifest = opened.base.manifest
            if manifest is not None:
                _require_within(options, manifest.stats.bytes, target.name, why)
            path = stack.enter_context(mount_paths.chosen(given, target.name, store.record.store_id))
            copy = Copy(working_copy.path)
            _warn_of_copies(why)
            with lost_folders.replace_gone(working_copy, take_over=options.take_over):
                _make(copy, path, opened.tree, opened.base.version_id, store, spec, progress)
        return _register(copy, store, target.name, working_copy=working_copy.path)


def has_work(working_copy: WorkingCopy, options: MountOptions) -> bool:
    """Whether a copy has work of the volume that is about to be mounted. InvalidStateError: it has,
    but a FUSE mount is requested, which would not show the work. A missing folder has no work."""
    if not work_left.tidy(working_copy):
        return False
    if options.mode == "fuse":
        from cowfs.writer.acquiring import require_no_copy

        require_no_copy(working_copy)
    return True


def mount_version(
    spec: SessionSpec,
    store: stores.OpenStore,
    given: str | os.PathLike[str] | None,
    name: str,
    version_bytes: int,
    why: MountFailedError | None,
) -> MountEntry:
    """A read-only copy of a version, or of a folder of it. name: of the default directory."""
    from cowfs.folders.filling import size_bytes
    from cowfs.transfer.reading import reading

    assert spec.version is not None
    version = VersionId.from_hex(spec.version)
    mounted_folders.sweep()
    if spec.folder:
        version_folders.require(store, spec.volume, version, spec.folder, spec.options.cache_path)
    else:
        _require_within(spec.options, version_bytes, name, why)
    with reading(spec, access=store.access) as tree, mount_paths.chosen(given, name, store.record.store_id) as path:
        if spec.folder and version_bytes > spec.options.copy_limit_bytes:
            _require_within(spec.options, size_bytes(tree), f"{name}:{spec.folder}", why)
        registration = registry.new_id()
        copy = of_version(registration)
        _warn_of_copies(why)
        _make(copy, path, tree, version, store, spec, lambda _: None)
    return _register(
        copy,
        store,
        spec.volume,
        registration=registration,
        version=version,
        folder=spec.folder,
        sharing_key=spec.options.sharing_key,
    )


def _make(
    copy: Copy,
    path: str,
    tree: VersionTree,
    version: VersionId | None,
    store: stores.OpenStore,
    spec: SessionSpec,
    progress: ProgressListener,
) -> None:
    from cowfs.folders.making import Contents, make_folder

    contents = Contents(store.url, store.record.store_id, spec.volume, version, tree, spec.is_read_only)
    with errors_of_ours(path, "Choose another mount path."):
        make_folder(copy, path, contents, spec.options, progress)


def _is_current(left: Copy, working_copy: WorkingCopy, store: stores.OpenStore) -> bool:
    """Whether a copy can be reused. A copy without work must be of the newest version."""
    state = WorkingCopy(working_copy.path).state
    head = volumes.read_head(store.objects, working_copy.volume).version
    if head == state.base_version or state.intent is not None:  # an intent: the head may be its own
        return True
    if work_left.remove_unchanged(left, working_copy):
        return False
    _log.warning("%s", kept_work.overtaken(working_copy.volume, store.url, state.base_version, head))
    return True


def _register(
    copy: Copy,
    store: stores.OpenStore,
    volume: str,
    *,
    registration: str | None = None,
    working_copy: Path | None = None,
    version: VersionId | None = None,
    folder: str = "",
    sharing_key: str = "",
) -> MountEntry:
    return registry.register(
        registration or registry.new_id(),
        mount_path=Path(copy.record.mount_path),
        socket=None,
        store_url=store.url,
        store_id=store.record.store_id.hex(),
        volume=volume,
        version_id=version.hex() if version is not None else None,
        read_only=working_copy is None,
        working_copy=working_copy,
        kind="folder",
        folder=folder,
        sharing_key=sharing_key,
    )


def _require_within(options: MountOptions, size: int, name: str, why: MountFailedError | None) -> None:
    if size <= options.copy_limit_bytes:
        return
    reason = f"; this machine cannot mount it: {why.message}" if why is not None else ""
    raise NeedsFuseError(
        f"{name} has {byte_sizes.format_size(size)}, and a copy may have {byte_sizes.format_size(options.copy_limit_bytes)}{reason}",
        hint=f"Allow a larger copy (copy_limit=, --copy-limit); read and write without a mount (vol.files, {Command('ls')}, `cat`, "
        f"`cp`); mount one folder of a version (LOCATOR/FOLDER); download what is needed ({Command('download')}, files.download()); or "
        f"let the machine mount. {CONTAINER}.",
        details={"bytes": size, "copy_limit": options.copy_limit_bytes},
    )


def _warn_of_copies(why: MountFailedError | None) -> None:
    """Warns once a process about copies that were not requested."""
    if why is None or os.getpid() in _warned:
        return
    _warned.add(os.getpid())
    _log.warning(
        "this machine cannot mount (%s), so the mount path is a copy: plain files, read when they are committed. "
        f"{Command('doctor')} says what mounting needs; mode='copy' (--mode copy) makes a copy without this warning",
        why.message,
    )
