"""Deletes and restores volumes. Uncommitted work of a volume on this machine is never lost without
an explicit request."""

from __future__ import annotations

import os

from cowfs.api import stores
from cowfs.api.upkeep import copied_stores
from cowfs.base.errors import InvalidStateError, LeaseHeldError
from cowfs.base.hints import Command
from cowfs.base.ids import WriteId
from cowfs.machine.working_copy import WorkingCopy
from cowfs.store.refs import refs
from cowfs.store.refs.holder import current_holder
from cowfs.version.names import deletion, near_names, volumes


def delete(name: str, store: stores.Named, *, force: bool) -> None:
    """See `Store.delete`."""
    opened = stores.open_store(store)
    near_names.read_head(opened.objects, name)
    known = copied_stores.known(opened, name)
    if not force:
        _require_unused(name, opened, known)
    holder = current_holder(f"process {os.getpid()}, which deletes it")
    try:
        deletion.delete_volume(opened.objects, name, holder, take_over=force)
    except LeaseHeldError as error:
        raise LeaseHeldError(
            error.message,
            hint=f"Unmount it there first. Or delete it all the same: {_force(name)}; then that writer can publish "
            "nothing more; its work stays on its machine, that of a scratch until it ends.",
            details=error.details,
        ) from error
    for copy in known:
        copy.delete_if_committed()


def first_write(name: str, store: stores.Named) -> WriteId:
    """Identifies the volume among others of its name by the put of its first head. NotFoundError:
    no such volume, or it was deleted. Two requests."""
    objects = stores.open_store(store).objects
    volumes.read_head(objects, name)
    return refs.read_earlier(objects, refs.head(name), refs.FIRST).write_id


def undelete(name: str, store: stores.Named) -> bool:
    """See `Store.undelete`. Returns whether the volume was deleted."""
    return deletion.undelete_volume(stores.open_store(store).objects, name)


def _require_unused(name: str, opened: stores.OpenStore, known: list[WorkingCopy]) -> None:
    if (entry := copied_stores.find_mount(opened, name)) is not None:
        raise InvalidStateError(
            f"volume {name!r} is mounted at {entry.mount_path}",
            hint=f"Unmount it first: {Command('unmount', name)}, unmount(). Or delete it all the same: {_force(name)}; then "
            "the mount can publish nothing more.",
        )
    if kept := [copy for copy in known if copy.is_kept]:
        raise InvalidStateError(
            f"volume {name!r} has uncommitted work on this machine, in {kept[0].path}",
            hint=f"Drop it ({Command('unmount', name, '--discard')}, discard()), or publish it ({Command('commit', name)}, commit()). "
            f"Or delete the volume all the same: {_force(name)}; the work stays here for an undelete.",
        )


def _force(name: str) -> str:
    """Shows a whole command, because the refused operation may be a step of an `apply`, which has
    no such option."""
    return f"{Command('delete', name, '--force')}, Store().delete(force=True)"
