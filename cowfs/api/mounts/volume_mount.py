"""Mounts a volume writable, or shares the mount that it has; and ends the use of that mount.

    mount      of this user on this machine: shared, also with other processes; otherwise made (`new_mounts`)
    unmount    work stays in the working copy; the mount stays if others share it
    discard    work is dropped for good, mounted or not
    release    after the work was published; an error is no failure
    abandon    at the end of a block that has failed: nothing is published, and a note says where work is

`VolumeHandle.mount_used` says which mount the volume's object uses.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cowfs.api.mounts import abandoned, kept_work, left_work, mount_paths, new_folders, new_mounts, scratch, unmounted
from cowfs.api.mounts.base import Mount, mount_of
from cowfs.api.transfers.transfer_report import Target
from cowfs.api.upkeep import copied_stores
from cowfs.base import interruptible, log
from cowfs.base.errors import ConflictError, CowfsError, LeaseHeldError, LeaseLostError
from cowfs.base.hints import Command
from cowfs.control.messages import Left
from cowfs.machine import sharing
from cowfs.writer.lease_waiting import LeaseWaiting

if TYPE_CHECKING:
    from cowfs.api.access.volume_handle import VolumeHandle
    from cowfs.control import MountOptions
    from cowfs.machine.registry import MountEntry
    from cowfs.version.commit import ProgressListener

_log = log.get("volume")


def mount(
    volume: VolumeHandle,
    given: new_mounts.Given,
    options: MountOptions,
    progress: ProgressListener | None,
    *,
    wait_s: float = 0.0,
) -> Path:
    """`RWVolume.mount`. wait_s: how long to wait for another writer to end."""
    with volume.mutex:
        volume.require_not_ended()
        if (entry := volume.mount_used.at_its_path()) is not None:
            path = mount_paths.same(entry, given)
            if interruptible.run(partial(volume.mount_used.join, entry)):
                return path
        mount_paths.check_path(given)
        volume.resolve(accept_unsafe_store=options.accept_unsafe_store, to_write=True)
        if options.uncommitted == "discard":
            left_work.require_no_session(volume)
        volume.end_files(force=False)
        return interruptible.run_with_listener(partial(_mount, volume, given, options, wait_s), progress)


def _mount(
    volume: VolumeHandle,
    given: new_mounts.Given,
    options: MountOptions,
    wait_s: float,
    progress: ProgressListener,
) -> Path:
    waiting = LeaseWaiting(wait_s, progress)
    path = None
    while path is None:
        try:
            path = _share_or_make(volume, given, options, progress)
        except LeaseHeldError as error:
            working_copy = copied_stores.locate(volume.opened, volume.name, meta_dir=options.meta_path)
            error.set_hint(f"{error.open_hint} {_advise_reading(volume.name)}")
            waiting.wait(error, volume.opened.objects, volume.name, working_copy)
    volume.options, volume.uncommitted = replace(options, uncommitted="resume"), "resume"
    return path


def _advise_reading(name: str) -> str:
    mounting = Command("mount", name, "PATH", "--read-only")
    return f"To read its last version meanwhile: {mounting}, Volume.version({name!r}).mount()."


def _share_or_make(
    volume: VolumeHandle, given: new_mounts.Given, options: MountOptions, progress: ProgressListener
) -> Path | None:
    """None: the caller must try again."""
    store, name = volume.opened, volume.name

    def find() -> MountEntry | None:
        entry = copied_stores.find_mount(store, name)
        if entry is None or not (mount := mount_of(entry)).keeps_work:
            return None
        return entry if mount.is_there() and mount_paths.is_same(entry, given) else None

    with mount_paths.turn(f"{store.record.store_id.hex()}/{name}", find) as may_make:
        if not options.take_over and (meta_dir := options.meta_path) is not None:
            place = copied_stores.locate(store, name, meta_dir=meta_dir).path
            if (entry := volume.live()) is not None:
                mount_of(entry).require_work_at(place, meta_dir)
        if not options.take_over:
            # Mounted by this user on this machine: a cell or task runs again, or several
            # workers share it.
            if (entry := volume.mount_used.share(find, options, store.access)) is not None:
                return _use_found(volume, entry, options)
            if may_make:
                new_folders.require_none_elsewhere(store, name)
        return _make(volume, given, options, progress) if may_make else None


def _use_found(volume: VolumeHandle, entry: MountEntry, options: MountOptions) -> Path | None:
    """None: its work was dropped with it, and the caller makes another mount."""
    try:
        if left_work.accept_found(volume, options, entry):
            return Path(entry.mount_path)
    except BaseException:
        volume.mount_used.leave_found(entry)
        raise
    _drop(volume, entry)
    return None


def _drop(volume: VolumeHandle, entry: MountEntry) -> Literal[False]:
    """Ends the mount with its work."""
    volume.mount_used.end(entry, lambda mount: mount.drop_work(volume.opened), force=False)
    return False


def _make(
    volume: VolumeHandle, given: new_mounts.Given, options: MountOptions, progress: ProgressListener
) -> Path | None:
    """None: another process found and ended the mount before the volume's object joined it, or the
    mount has brought work back, which is dropped."""
    volume.mount_used.leave(None)
    working_copy = copied_stores.locate(volume.opened, volume.name, meta_dir=options.meta_path)
    if options.uncommitted == "refuse":
        left_work.require_none_hidden(volume, working_copy)
    had_folder = working_copy.copy is not None
    try:
        made = new_mounts.of_volume(
            Target(volume.name, volume.opened, working_copy),
            given,
            options,
            progress,
            head_number=volume.head_number,
            version=volume.version,
            seen=volume.take_seen(),
        )
    except LeaseHeldError as error:
        scratch.explain_lease(volume.live(), error, volume.name)
        raise
    volume.started = made.started
    if made.started is not None and (ready := made.started.ready).head_number > volume.head_number:
        volume.head_number, volume.version = ready.head_number, ready.version
    if not volume.mount_used.take(made, options):
        return None
    return made.path if _accept_work(volume, made, options, had_folder=had_folder) else None


def _accept_work(volume: VolumeHandle, made: new_mounts.NewMount, options: MountOptions, *, had_folder: bool) -> bool:
    """False: the mount has brought work back, which was dropped with the mount. InvalidStateError:
    that work is refused; the mount is ended."""
    ready = made.started.ready if made.started is not None else None
    brings_work = had_folder if ready is None else ready.resumed_records > 0
    if not brings_work or (entry := volume.mount_used.entry()) is None:
        return True
    try:
        if options.uncommitted == "discard":
            if ready is None:
                left_work.require_vacancy(volume, volume.working_copy(), options)
            return left_work.accept_found(volume, options, entry) or _drop(volume, entry)
        left_work.accept_made(volume, options, entry, is_told=ready is not None and ready.overtaken_by is not None)
    except BaseException:
        _leave_mount(volume, entry, force=False)
        raise
    return True


def unmount(volume: VolumeHandle, *, force: bool) -> None:
    """`RWVolume.unmount`."""
    with volume.mutex:
        volume.require_not_ended()
        volume.end_files(force=force)
        interruptible.run(partial(_unmount, volume, force=force))


def _unmount(volume: VolumeHandle, *, force: bool) -> None:
    entry = volume.live()
    if not force and volume.mount_used.is_left(f"volume {volume.name!r}", entry):
        return
    if entry is not None and not force:
        mount_of(entry).require_nothing_lost()
    volume.mount_used.end(entry, lambda mount: mount.unmount(force=force), force=force)
    if volume.store is not None:
        volume.working_copy().delete_if_committed()


def discard(volume: VolumeHandle, *, force: bool, meta_dir: str | os.PathLike[str] | None) -> bool:
    """`RWVolume.discard`. Returns whether the volume has no work left; False: only the work below
    meta_dir was dropped."""
    with volume.mutex:
        volume.require_not_ended()
        entry = volume.live()
        if meta_dir is not None:
            named = volume.find_kept_below(Path(os.path.abspath(os.path.expanduser(meta_dir))))
            if volume.find_files() is not None and volume.files_used.works_in(named):
                volume.end_files(force=force, discard=True)
                return False
            if entry is None or entry.working_copy != str(named.path):
                interruptible.run(partial(unmounted.discard, volume.opened, named, force=force))
                return False
        elif volume.end_files(force=force, discard=True):
            pass
        elif entry is None and volume.claim != "new":
            volume.resolve()
            if not volume.end_files(force=force, discard=True):  # another object's, known by the store
                used, store = volume.working_copy(), volume.opened
                if volume.options.meta_path is None:
                    used = kept_work.to_discard(used, store)
                interruptible.run(partial(unmounted.discard, store, used, force=force))
        if entry is not None and not force:
            volume.mount_used.require_no_sharer(entry)

        def end(mount: Mount) -> None:
            mount.discard(force=force, store=volume.store)

        interruptible.run(partial(volume.mount_used.end, entry, end, force=force))
        return True


def release(volume: VolumeHandle, *, force: bool) -> None:
    """Releases a mount whose work is published. Errors here are not failures."""
    entry = volume.live()
    if entry is not None and not force and not volume.mount_used.is_last(entry):
        volume.mount_used.leave_to_others(f"volume {volume.name}")
        return
    trouble = volume.mount_used.release(entry, force=force) if entry is not None else ""
    try:
        volume.end_files(force=True)
        volume.mount_used.leave(entry)
        volume.working_copy().delete_if_committed()
    except (CowfsError, OSError) as error:
        trouble = trouble or str(error)
    if trouble:
        _log.warning("volume %s is published; what is left here: %s", volume.name, trouble)


def abandon(volume: VolumeHandle, error: BaseException, *, force: bool = False, is_logged: bool = False) -> None:
    """Leaves the mount without publishing, and reports the fate of the work. An error in doing so
    never hides the original one. force: unmount also while files are open. is_logged: as for
    `abandoned.tell`."""
    before, notes = volume.locator, []
    is_dirty = True
    try:
        is_dirty = _leave(volume, force=force)
    except CowfsError as failure:
        if volume.live() is not None:
            notes.append(f"It is still mounted: {failure.message}. {failure.hint}")
        with suppress(CowfsError):
            is_dirty = volume.has_changes()
    if is_dirty:
        hint = abandoned.overtaken_hint if isinstance(error, LeaseLostError) else abandoned.resume_hint
        notes.insert(0, hint(volume.name, volume.store_url))
    if (published := volume.locator) != before:
        notes.insert(0, f"Volume {volume.name!r} was committed all the same: {published}")
    abandoned.tell(error, notes, is_logged=is_logged)


def _leave(volume: VolumeHandle, *, force: bool) -> bool:
    """Unmounts, unless other processes share the mount. Returns whether there is work that is in no
    version. A commit under way finishes first."""
    with volume.mutex:
        volume.end_files(force=True)
        entry = volume.live()
        if volume.mount_used.is_lost(entry):
            volume.mount_used.forget()
            return volume.has_changes()
        left = interruptible.run(partial(_leave_mount, volume, entry, force=force))
        if left is None:
            return volume.has_changes()
        if left.version is not None:
            volume.record(left.head_number, left.version, is_new=False)
        return left.is_dirty


def _leave_mount(volume: VolumeHandle, entry: MountEntry | None, *, force: bool) -> Left | None:
    """How the mount was left; None: it stays with others, or none exists."""
    used = volume.mount_used
    if entry is None:
        used.leave(None)
        return None
    if not used.is_last(entry):
        used.forget()
        return None
    try:
        left = _unmount_once_or_by_force(mount_of(entry), force=force)
    except BaseException:
        sharing.forget(entry)
        raise
    used.leave(entry)
    return left


def _unmount_once_or_by_force(mount: Mount, *, force: bool) -> Left:
    try:
        return mount.unmount()
    except ConflictError:  # files are open, often by the frames of the traceback
        if not force:
            raise
        return mount.unmount(force=True)
