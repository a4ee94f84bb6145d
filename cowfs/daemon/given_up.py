"""Takes off a mount whose daemon has died again and again: for the supervisor, which has closed the
device, so that the kernel has ended the connection."""

from __future__ import annotations

from pathlib import Path

from cowfs.base import log
from cowfs.control import MountSpec
from cowfs.machine import left_notes, mounting, registry

_logger = log.get("mount")


def take_off(spec: MountSpec, reason: str) -> None:
    """The work stays in the working copy, with a note of the reason."""
    note = f"the mount at {spec.mount_path} was taken off, since its daemon died each time it was started: {reason}"
    _logger.error("%s", note)
    if spec.working_copy is not None:
        left_notes.write(Path(spec.working_copy), note)
    if (entry := registry.find_by_id(spec.registration)) is not None:
        registry.unregister(entry)
    mounting.detach_dead(spec.mount_path)
