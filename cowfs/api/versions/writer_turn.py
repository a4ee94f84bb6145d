"""Publishes a version made from other versions to a volume that is not mounted here. It waits for
its turn as the volume's writer, and takes another turn if another writer published first.

Not for work on this machine: a mount and uncommitted work are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cowfs import store as stores
from cowfs.api.access import file_session
from cowfs.api.mounts import kept_work
from cowfs.api.transfers import tree_publishing
from cowfs.api.transfers.transfer_report import Target
from cowfs.api.upkeep import copied_stores
from cowfs.api.versions import waiting
from cowfs.base import clock, interruptible
from cowfs.base.errors import ConflictError, LeaseHeldError, LeaseLostError
from cowfs.base.hints import Command

if TYPE_CHECKING:
    from cowfs.writer.publishing import Line

T = TypeVar("T")


def with_turn_as_writer(find_target: Callable[[], Target], make: Callable[[Target, Line], T]) -> T:
    """The result of `make`, which publishes on the line, or raises. `make` is called again while
    another writer takes the line, or while another writer that ends by itself holds it, for at most
    WAIT_S. find_target: returns the volume, ready for publishing (`VolumeHandle.to_upload`)."""
    end_s, pause_s, notice = clock.monotonic_s() + waiting.WAIT_S, waiting.SHORTEST_PAUSE_S, waiting.Notice()
    while True:
        target = find_target()
        try:
            return interruptible.run(partial(_once, target, make))
        except LeaseHeldError as error:
            key = file_session.key_of(target.store.record.store_id, target.name)
            if not waiting.ends_soon(error, key) or clock.monotonic_s() > end_s:
                raise
            notice.give(error)
        except LeaseLostError:  # another writer published to the volume: run again on its new head
            if clock.monotonic_s() > end_s:
                raise
        clock.sleep_s(pause_s * (0.5 + clock.random_bytes(1)[0] / 256))
        pause_s = min(pause_s * 2, waiting.LONGEST_PAUSE_S)


def _once(target: Target, make: Callable[[Target, Line], T]) -> T:
    from cowfs.writer.publishing import publishing

    stores.require_writable(target.store.record)
    if (entry := copied_stores.find_mount(target.store, target.name)) is not None:
        raise ConflictError(
            f"volume {target.name!r} is mounted at {entry.mount_path}",
            hint=f"Commit and unmount it first ({Command('unmount', target.name, '--commit')}, finalize()), or work on a fork of it.",
        )
    spec = tree_publishing.writing(target)
    kept_work.require_all(target.working_copy, target.store)
    tree_publishing.require_committed(target, spec)
    try:
        with publishing(spec, access=target.store.access) as line:
            return make(target, line)
    finally:
        target.working_copy.delete_if_committed()
