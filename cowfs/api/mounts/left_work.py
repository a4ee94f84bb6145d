"""What a mount does about uncommitted work that an earlier one has left on this machine, as
`MountOptions.uncommitted` says.

    "resume"    the work is in the mount, and the log says how much, since when, and how to drop it
    "discard"   dropped once a mount has brought it back, and made anew: a mount that fails drops nothing. The folder of
                a copy gets another name, and stays
    "refuse"    InvalidStateError; the work stays

Work is left in a working copy that is not mounted, in the folder of a copy, or in a mount whose
programs are gone: the daemon outlives a program that was killed. A mount that others use has their
work, not left work: it is shared as it is, and never dropped. So is what this process has written
without a mount.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cowfs.api import hints
from cowfs.api.mounts import folder, kept_work, unmounted
from cowfs.api.mounts.base import mount_of
from cowfs.base import log
from cowfs.base.byte_sizes import format_size
from cowfs.base.errors import ConflictError, CowfsError, InvalidStateError
from cowfs.base.hints import Command
from cowfs.base.quantities import count, format_time
from cowfs.folders import mounted_folders
from cowfs.machine import registry, sharing
from cowfs.machine.lock import LockHolder
from cowfs.store.refs import leases

if TYPE_CHECKING:
    from cowfs.api.access.volume_handle import VolumeHandle
    from cowfs.control import MountOptions
    from cowfs.control.messages import Work
    from cowfs.machine.registry import MountEntry
    from cowfs.machine.working_copy import WorkingCopy

_log = log.get("volume")


def drop(volume: VolumeHandle, working_copy: WorkingCopy, options: MountOptions) -> None:
    """Drops the work in that working copy, which is not mounted. LeaseHeldError: another writer has
    the volume; nothing is dropped. A place that is out of reach stays as it is."""
    if working_copy.is_out_of_reach or not working_copy.is_kept or volume.live() is not None:
        return
    store = volume.opened
    with working_copy.lock(LockHolder.make_brief(f"(discarding {working_copy.path})")):
        _find_vacancy(volume, working_copy, options)
        working_copy.drop_work()
    if (copy := working_copy.copy) is not None and copy.is_there:
        with mounted_folders.turn(working_copy.path):
            folder.set_aside(copy)
        unmounted.discard(store, working_copy)
    else:
        _log.warning("dropped uncommitted work of volume %s", volume.name)


def require_vacancy(volume: VolumeHandle, working_copy: WorkingCopy, options: MountOptions) -> None:
    """For a copy, which has no lease. LeaseHeldError: another writer has the volume."""
    with working_copy.lock(LockHolder.make_brief(f"(discarding {working_copy.path})")):
        _find_vacancy(volume, working_copy, options)


def _find_vacancy(volume: VolumeHandle, working_copy: WorkingCopy, options: MountOptions) -> None:
    epoch = working_copy.left_epoch
    leases.find_vacancy(volume.opened.objects, volume.name, take_over=options.take_over, left_epoch=epoch)


def prepare_files(volume: VolumeHandle, working_copy: WorkingCopy) -> None:
    """As the choice at opening says, before the object's first use of files without a mount."""
    if volume.uncommitted == "discard":
        drop(volume, working_copy, volume.options)
    elif volume.uncommitted == "refuse":
        _refuse_places(volume, working_copy, is_used=working_copy.is_kept)
    volume.uncommitted = "resume"


def require_no_session(volume: VolumeHandle) -> None:
    """ConflictError: this process has written to the volume without a mount, and not committed."""
    if volume.find_files() is not None and volume.files_used.is_dirty():
        raise ConflictError(
            f"this process has written to volume {volume.name!r} without a mount, and has not committed that",
            hint="Nothing was dropped. Call commit(), or discard(), and mount then.",
        )


def require_unshared(volume: VolumeHandle, entry: MountEntry) -> None:
    """Before the work in this object's mount is dropped: says what is dropped. ConflictError: other
    objects or processes share the mount."""
    work = mount_of(entry).measure_work(volume.opened)
    if work is None:
        return
    if sharing.users(entry) - {volume.mount_used} or sharing.others(entry):
        raise ConflictError(
            f"other programs share the mount {entry.mount_path} of volume {volume.name!r}, which has uncommitted work: "
            f"{_say(work)}",
            hint="Nothing was dropped. End these programs first.",
            details={"mount_path": entry.mount_path},
        )
    _log.warning("uncommitted work of volume %s is dropped: %s", volume.name, _say(work))


def require_none_hidden(volume: VolumeHandle, working_copy: WorkingCopy) -> None:
    """InvalidStateError: there is work that a mount of this working copy would not show."""
    _refuse_places(volume, working_copy, is_used=working_copy.is_out_of_reach)


def _refuse_places(volume: VolumeHandle, working_copy: WorkingCopy, *, is_used: bool) -> None:
    """InvalidStateError: other places have work, or that one has (is_used)."""
    for place in [working_copy] * is_used + kept_work.elsewhere(working_copy, volume.opened):
        where = f"{place.path}{', which is not there now' if place.is_out_of_reach else ''}"
        raise InvalidStateError(
            f"volume {volume.name!r} has uncommitted work in {where}",
            hint=f"Commit or drop it ({kept_work.discarding(place)}); or leave uncommitted='refuse' out.",
            details={"working_copy": str(place.path)},
        )


def accept_made(volume: VolumeHandle, options: MountOptions, entry: MountEntry, *, is_told: bool) -> None:
    """For a mount that this call has made and that may bring work back. is_told: the log has said
    so. InvalidStateError: the work is refused; the caller ends the mount."""
    if options.uncommitted == "refuse":
        _refuse(volume, mount_of(entry).measure_work(volume.opened))
    elif not is_told:
        _tell(volume, entry)


def accept_found(volume: VolumeHandle, options: MountOptions, entry: MountEntry) -> bool:
    """For a mount that this call has found. False: the caller ends it with its work, and makes a
    new one. InvalidStateError, ConflictError: it must not be used."""
    is_used = _is_used(volume, entry)
    if options.uncommitted == "resume":
        if not is_used:
            _tell(volume, entry)
        return True
    work = mount_of(entry).measure_work(volume.opened)
    if options.uncommitted == "refuse":
        _refuse(volume, work)
    elif work is not None and is_used:
        raise ConflictError(
            f"volume {volume.name!r} is mounted at {entry.mount_path} and in use there, with uncommitted work: {_say(work)}",
            hint=f"Nothing was dropped. End the programs that use it, and drop its work there "
            f"({Command('unmount', entry.mount_path, '--discard')}, discard()); or mount without uncommitted='discard'.",
            details={"mount_path": entry.mount_path},
        )
    elif work is not None:
        _log.warning("dropping uncommitted work of volume %s: %s", volume.name, _say(work))
    return work is None


def _is_used(volume: VolumeHandle, entry: MountEntry) -> bool:
    """Whether others use the mount: `cowfs mount` made it, or another object or process shares
    it."""
    others = sharing.users(entry) - {volume.mount_used}
    return bool(others) or registry.is_lasting(entry) or bool(sharing.others(entry))


def _tell(volume: VolumeHandle, entry: MountEntry) -> None:
    try:
        work = mount_of(entry).measure_work(volume.opened)
    except CowfsError as error:  # a busy daemon, or an older one
        _log.info("how much uncommitted work %s has is not known: %s", entry.mount_path, error)
        return
    if work is not None:
        drops = f"{Command('unmount', volume.name, '--discard')}, discard(), drops it"
        said = f"uncommitted work of volume {volume.name} is back: {_say(work)}. {drops}"
        _log.warning("%s", hints.about(volume.opened.url, said))


def _refuse(volume: VolumeHandle, work: Work | None) -> None:
    if work is not None:
        raise InvalidStateError(
            f"volume {volume.name!r} has uncommitted work on this machine: {_say(work)}",
            hint="Mount it with uncommitted='resume' (--uncommitted resume) to continue with it, and commit it; or drop it "
            f"({Command('unmount', volume.name, '--discard')}, discard()).",
            details={"files": work.files, "bytes": work.bytes, "since_ns": work.since_ns},
        )


def _say(work: Work) -> str:
    what = f"{count(work.files, 'file')}, {format_size(work.bytes)}" if work.files else "names or attributes"
    if work.version is None or work.since_ns is None:
        return f"{what}, in no version yet"
    return f"{what}, since version {work.version.hex()[:12]} of {format_time(work.since_ns)}"
