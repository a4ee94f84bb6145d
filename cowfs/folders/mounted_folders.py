"""The folders that are mounted on this machine, from the registry: their paths, whether each still
exists, and their files.

A folder of a version is found by the mount's id, that of a volume by its working copy. Calls that
read a folder or change its record take turns (`turn`). `machine.folders.folder` owns the structure
of a folder and its removal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cowfs.base.beneath import Root
from cowfs.base.errors import CowfsError
from cowfs.machine import registry, reservation
from cowfs.machine import working_copy as working_copies
from cowfs.machine.folders import folder
from cowfs.machine.folders.folder import Copy
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy


def list_mounts() -> list[MountEntry]:
    """The entries of all folders, oldest first."""
    return [entry for entry in registry.list_mounts() if entry.kind == "folder"]


def list_of(working_copy: WorkingCopy) -> list[MountEntry]:
    """The entries of a volume's folder."""
    return [entry for entry in list_mounts() if entry.working_copy == str(working_copy.path)]


def unregister(working_copy: WorkingCopy) -> None:
    for entry in list_of(working_copy):
        registry.unregister(entry)


def copy_of(entry: MountEntry) -> Copy:
    """The copy of a folder's entry."""
    return folder.of_version(entry.id) if entry.working_copy is None else Copy(Path(entry.working_copy))


def is_there(entry: MountEntry) -> bool:
    """Whether the folder is at its path, and no unmount is removing it."""
    copy = copy_of(entry)
    return copy.exists and not copy.is_leaving and copy.is_there


def open_root(entry: MountEntry) -> Root | None:
    """The folder, which the caller closes. None: it is not at its path."""
    copy = copy_of(entry)
    return copy.open() if copy.exists and not copy.is_leaving else None


def occupied_paths() -> set[str]:
    """Paths with a folder or with work left by one. Missing folders and those in another container
    are left out."""
    found = {entry.mount_path for entry in list_mounts() if is_there(entry)}
    for each in working_copies.list_working_copies():
        with contextlib.suppress(CowfsError):
            if (copy := each.copy) is not None and not copy.is_out_of_sight:
                found.add(copy.record.mount_path)
    return found


def sweep() -> None:
    """Removes remains of unmounted folders: the folders of read-only mounts, and the entries of
    folders unmounted by a process with another runtime directory."""
    entries = list_mounts()
    for entry in entries:
        with contextlib.suppress(CowfsError):
            if _has_ended(entry):
                registry.unregister(entry)
    folder.sweep({entry.id for entry in entries})


def _has_ended(entry: MountEntry) -> bool:
    """Whether it was unmounted. Its record is removed last, and a later record has another path.
    False while the disk of the folder is missing."""
    copy = copy_of(entry)
    if not copy.exists:
        return entry.working_copy is None or not WorkingCopy(Path(entry.working_copy)).is_out_of_reach
    return registry.canonical(copy.record.mount_path) != entry.mount_path


@contextmanager
def turn(place: Path) -> Iterator[None]:
    """Serialises calls that read a folder or change its record. place: its working copy."""
    with reservation.turn(f"copy {place}", lambda: False, doing="works on this copy"):
        yield


@contextmanager
def turn_of(entry: MountEntry) -> Iterator[None]:
    """As `turn`, by the folder's entry."""
    with turn(Path(entry.working_copy or entry.id)):
        yield
