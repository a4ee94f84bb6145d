"""Deletes volumes, and restores them.

A volume is deleted by a head of kind `delete`, and restored by one of kind `undelete`; both have
the version of the head before. So a deletion is a step in the line as commits are: under a lease,
behind the newest head, and no writer of an earlier epoch can publish behind it. Nothing else is
written or removed: forks, locators and mounts of its versions keep working. The name stays taken.

    delete      lease (LeaseHeldError: another writer is active) → head n + 1 → lease released
    undelete    head n + 1, while the newest one is a `delete`

Not here: reclaiming the space of deleted volumes.
"""

from __future__ import annotations

from contextlib import suppress

from cowfs.base import clock
from cowfs.base.errors import ConflictError, CowfsError, LeaseLostError
from cowfs.base.ids import WriteId
from cowfs.format.heads import HeadKind
from cowfs.format.record import Holder
from cowfs.format.records import HeadRecord
from cowfs.store import ObjectStore
from cowfs.store.refs import leases, refs
from cowfs.version.names.volumes import Head, find_head, read_head, require_usable


def delete_volume(store: ObjectStore, name: str, holder: Holder, *, take_over: bool = False) -> None:
    """NotFoundError: there is no such volume. LeaseHeldError: another writer is active; take_over:
    deletes the volume anyway, and that writer can publish nothing more."""
    read_head(store, name)
    lease = leases.acquire(store, name, holder, take_over=take_over)
    try:
        while (head := read_head(store, name)).epoch <= lease.epoch:
            if _append(store, head, "delete", lease.epoch):
                lease.settle()
                return
        raise LeaseLostError(
            f"another writer has taken volume {name!r} over while it was being deleted",
            hint="It was not deleted. Try again when it has no writer.",
        )
    finally:
        with suppress(CowfsError):  # the deletion is done; a lease that is not released expires
            lease.release()


def undelete_volume(store: ObjectStore, name: str) -> bool:
    """Whether the volume was deleted; otherwise it stays unchanged. NotFoundError: it never
    existed, or is permanently gone."""
    was_deleted = False
    while (head := find_head(store, name)) is not None and head.is_deleted:
        was_deleted = True
        _append(store, head, "undelete", head.epoch)
    require_usable(store, name, head)
    return was_deleted


def _append(store: ObjectStore, head: Head, kind: HeadKind, epoch: int) -> bool:
    """False: another writer has created this head."""
    record = HeadRecord(
        kind=kind,
        version=head.version,
        epoch=epoch,
        created_ns=clock.now_ns(),
        write_id=WriteId(clock.random_bytes(WriteId.length)),
        prev=head.check,
    )
    try:
        refs.append(store, refs.head(head.volume), head.number + 1, record)
    except ConflictError:
        return False
    return True
