"""A volume that is not mounted here gets a version by what is made of other versions: its turn as
the volume's writer is waited for, and taken again when somebody else went on with the volume first.

Not for work that lies on this machine: a mount and uncommitted work are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cowfs import apart, clock
from cowfs import store as stores
from cowfs.api import copied_stores, file_access, kept_work, tree_publishing
from cowfs.api.head_changes import LONGEST_PAUSE_S, SHORTEST_PAUSE_S, WAIT_S, Notice, ends_soon
from cowfs.api.rw_volume import RWVolume
from cowfs.api.transfer_report import Target
from cowfs.errors import ConflictError, LeaseHeldError, LeaseLostError

if TYPE_CHECKING:
    from cowfs.session.publishing import Line

T = TypeVar("T")


def on_line(volume: RWVolume, make: Callable[[Target, Line], T]) -> T:
    """What `make` returns, which publishes on the line, or raises. It is called again while the
    line is lost to another writer, or another one that ends by itself has it, for at most
    WAIT_S."""
    end_s, pause_s, notice = clock.monotonic_s() + WAIT_S, SHORTEST_PAUSE_S, Notice()
    while True:
        target = volume.to_upload()
        try:
            return apart.run(partial(_once, target, make))
        except LeaseHeldError as error:
            key = file_access.key_of(target.store.record.store_id, target.name)
            if not ends_soon(error, key) or clock.monotonic_s() > end_s:
                raise
            notice.give(error)
        except LeaseLostError:  # another writer went on with the volume: it is made again on what is there now
            if clock.monotonic_s() > end_s:
                raise
        clock.sleep_s(pause_s * (0.5 + clock.random_bytes(1)[0] / 256))
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


def _once(target: Target, make: Callable[[Target, Line], T]) -> T:
    from cowfs.session.publishing import publishing

    stores.require_writable(target.store.record)
    if (entry := copied_stores.find_mount(target.store, target.name)) is not None:
        raise ConflictError(
            f"volume {target.name!r} is mounted at {entry.mount_path}",
            hint=f"Commit and unmount it first (`cowfs unmount {target.name} --commit`, finalize()), or work on a fork of it.",
        )
    spec = tree_publishing.writing(target)
    kept_work.require_all(target.working_copy, target.store)
    tree_publishing.require_committed(target, spec)
    try:
        with publishing(spec, access=target.store.access) as line:
            return make(target, line)
    finally:
        target.working_copy.delete_if_committed()
