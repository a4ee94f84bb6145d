"""Publishes or drops the work of a volume that is not mounted, in this process.

The working copy's lock prevents a mount meanwhile. LeaseHeldError: a mount took the lock first.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from cowfs.api import stores
from cowfs.api.access import file_session
from cowfs.api.access.file_session import FileSession
from cowfs.api.upkeep import copied_stores
from cowfs.base import interruptible, log
from cowfs.base.errors import ConflictError, CowfsError
from cowfs.base.hints import Command
from cowfs.control import MountOptions, SessionSpec
from cowfs.folders import lost_folders
from cowfs.machine import meta_dirs, registry
from cowfs.machine.working_copy import WorkingCopy, list_working_copies
from cowfs.store import ObjectStore
from cowfs.store.refs.pins import Pin
from cowfs.version.commit import Base, CommitRequest, ProgressListener
from cowfs.version.history import open_version
from cowfs.version.names.volumes import Head

_log = log.get("volume")


class Dropped(NamedTuple):
    """had_work: whether there was any; False if the folder of a copy no longer exists."""

    volume: str
    had_work: bool


def commit(
    store: stores.OpenStore,
    working_copy: WorkingCopy,
    options: MountOptions,
    request: CommitRequest,
    progress: ProgressListener,
) -> Base:
    """Opens the volume in this process for one commit."""
    from cowfs.session.opening import enter_session

    spec = SessionSpec(
        store_url=store.url,
        volume=working_copy.volume,
        mode="rw",
        options=replace(options, take_over=False, resident=False).resolved(),
        working_copy=str(working_copy.path),
    )

    def published(held: FileSession | None, tell: ProgressListener) -> Base:
        if held is not None:  # another object of this process has just opened it
            copied_stores.require_session_of(store, held, working_copy.volume)
            with held.used() as session:
                return session.commit(request, tell)
        with enter_session(spec, access=store.access) as session:
            base = session.commit(request, tell)
        working_copy.delete_if_committed()
        return base

    with file_session.alone(file_session.key_of(store.record.store_id, working_copy.volume)) as held:
        return interruptible.run_with_listener(lambda tell: published(held, tell), progress)


def is_commit_due(store: stores.OpenStore, head: Head, request: CommitRequest) -> bool:
    """Whether a commit makes a version although there is no uncommitted work."""
    if head.version is None:
        return True
    return bool(request.given) and request.says_more_than(open_version(store.objects, head.version))


def discard(store: stores.OpenStore, working_copy: WorkingCopy, *, force: bool = False) -> None:
    """Deletes the working copy, and removes its hold from the store. A hold that cannot be removed
    only costs space. A working copy whose directory is missing is forgotten. ConflictError, unless
    forced: its folder may exist in another container."""
    if working_copy.is_out_of_reach:
        meta_dirs.forget(working_copy.path)
        return
    copied_stores.require_of(store, working_copy)
    _require_mine(working_copy, force=force)
    lost_folders.tell_if_gone(working_copy)
    pin = working_copy.state.pin if working_copy.exists else None
    working_copy.delete()
    if pin is not None:
        _remove(pin, nullcontext(store.objects))


def _require_mine(working_copy: WorkingCopy, *, force: bool) -> None:
    if not force and (copy := working_copy.copy) is not None:
        lost_folders.require_mine(copy)


def discard_at(place: Path, *, force: bool = False) -> Dropped | None:
    """Drops the work of the working copy in that directory, or of an unmounted copy whose folder it
    is, in any store. A store that does not answer delays the call by a few seconds only; the work
    is dropped by then. None: the directory has no work. LeaseHeldError: it is in use.
    ConflictError, force: as for `discard`."""
    # Known directories only: the path may be a mount with any contents, or an unresponsive one.
    known = list_working_copies()
    working_copy = next((each for each in known if each.path == place), None)
    if working_copy is None:
        folder = registry.canonical(place)
        working_copy = next((each for each in known if _folder_of(each) == folder), None)
    if working_copy is None:
        return None
    if working_copy.is_out_of_reach:
        meta_dirs.forget(place)
        return Dropped(working_copy.volume, True)
    if working_copy.has_remains:  # no state file names its store
        _require_mine(working_copy, force=force)
        working_copy.delete()
        return Dropped(working_copy.volume, True)
    state = working_copy.state
    entry = registry.find_by_volume(state.store_id.hex(), state.volume)
    if entry is not None and entry.working_copy == str(working_copy.path):
        if place != working_copy.path:
            return None
        raise ConflictError(
            f"the work in {place} is mounted at {entry.mount_path}",
            hint=f"Unmount it: {Command('unmount', entry.mount_path, '--discard')}, discard().",
        )
    _require_mine(working_copy, force=force)
    is_gone = lost_folders.tell_if_gone(working_copy)
    working_copy.delete()
    if state.pin is not None:
        _remove(state.pin, stores.hurried(state.store_url))
    return Dropped(state.volume, not is_gone)


def _folder_of(working_copy: WorkingCopy) -> str | None:
    """The folder of a copy."""
    with suppress(CowfsError):
        if (copy := working_copy.copy) is not None:
            return copy.record.mount_path
    return None


def _remove(pin: str, opening: AbstractContextManager[ObjectStore]) -> None:
    try:
        with opening as store:
            if (held := Pin.resume(store, pin)) is not None:
                held.remove()
    except CowfsError as error:
        _log.warning("the hold %s of the discarded work stays in the store: %s", pin, error)
