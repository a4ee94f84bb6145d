"""Takes off a mount whose daemon has died again and again: for the supervisor, which has closed the
device. A process that was killed while it waited for the mount may still have it open."""

from __future__ import annotations

from pathlib import Path

from cowfs.base import log
from cowfs.control import MountSpec
from cowfs.machine import left_notes, mount_table, mounting, registry

_logger = log.get("mount")


def take_off(spec: MountSpec, reason: str) -> None:
    """The work stays in the working copy, with a note of the reason."""
    note = f"the mount at {spec.mount_path} was taken off, since its daemon died each time it was started: {reason}"
    _logger.error("%s", note)
    if spec.working_copy is not None:
        left_notes.write(Path(spec.working_copy), note)
    if (entry := registry.find_by_id(spec.registration)) is not None:
        registry.unregister(entry)
    mount = mount_table.mount_at(spec.mount_path)
    if mount is not None and mount.is_cowfs and registry.find_by_path(spec.mount_path) is None:
        mounting.abort(mount)
        mounting.unmount(mount, lazy=True)
