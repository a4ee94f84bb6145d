"""Deleting volumes, and bringing them back.

A volume is deleted by a head of kind `delete`, and is there again with one of kind `undelete`; both
have the version of the head before. So deleting takes its turn in the line as commits do: under a
lease, behind the newest head, and no writer of an earlier epoch can publish behind it. Nothing else
is written or removed: forks, locators and mounts of its versions go on. The name stays taken.

    delete      lease (LeaseHeldError: somebody writes to it) → head n + 1 → lease given back
    undelete    head n + 1, while the newest one is a `delete`

Not here: giving back the room that deleted volumes take.
"""

from __future__ import annotations

from contextlib import suppress

from cowfs import clock
from cowfs.errors import ConflictError, CowfsError, LeaseLostError
from cowfs.format.heads import HeadKind
from cowfs.format.record import Holder
from cowfs.format.records import HeadRecord
from cowfs.ids import WriteId
from cowfs.store import ObjectStore, leases, refs
from cowfs.version.volumes import Head, find_head, read_head, require_usable


def delete_volume(store: ObjectStore, name: str, holder: Holder, *, take_over: bool = False) -> None:
    """NotFoundError: there is no such volume. LeaseHeldError: somebody writes to it; take_over: it
    is deleted all the same, and that writer can publish nothing more."""
    read_head(store, name)
    lease = leases.acquire(store, name, holder, take_over=take_over)
    try:
        while (head := read_head(store, name)).epoch <= lease.epoch:
            if _append(store, head, "delete", lease.epoch):
                lease.settled()
                return
        raise LeaseLostError(
            f"another writer has taken volume {name!r} over while it was being deleted",
            hint="It was not deleted. Try again when nobody writes to it.",
        )
    finally:
        with suppress(CowfsError):  # what was done is done; a lease that is not given back expires
            lease.release()


def undelete_volume(store: ObjectStore, name: str) -> bool:
    """Whether the volume was deleted; one that was not stays as it is. NotFoundError: there never
    was one, or it is gone for good."""
    was_deleted = False
    while (head := find_head(store, name)) is not None and head.is_deleted:
        was_deleted = True
        _append(store, head, "undelete", head.epoch)
    require_usable(store, name, head)
    return was_deleted


def _append(store: ObjectStore, head: Head, kind: HeadKind, epoch: int) -> bool:
    """False: somebody else has this number."""
    record = HeadRecord(
        kind=kind,
        version=head.version,
        epoch=epoch,
        created_ns=clock.now_ns(),
        write_id=WriteId(clock.random_bytes(WriteId.length)),
    )
    try:
        refs.append(store, refs.head(head.volume), head.number + 1, record)
    except ConflictError:
        return False
    return True
