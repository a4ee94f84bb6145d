"""Moves work to a new volume if it cannot be published in its own, since another writer has taken
that over."""

from __future__ import annotations

from contextlib import suppress

from cowfs.api import hints, names, stores
from cowfs.api.claiming import claimed
from cowfs.api.provenance import author
from cowfs.base import log
from cowfs.base.errors import CowfsError, NotFoundError
from cowfs.base.hints import Command
from cowfs.format.locator import Locator
from cowfs.machine import state as states
from cowfs.machine.lock import LockHolder
from cowfs.machine.working_copy import WorkingCopy, list_working_copies
from cowfs.version.names import volumes
from cowfs.version.names.volumes import Head

_log = log.get("volume")


def fork(
    store: stores.OpenStore, working_copy: WorkingCopy, name: str | None, *, strict: bool
) -> tuple[Head, Locator | None]:
    """Makes a volume from the version that the work is based on, and moves the working copy to it.
    Returns the new volume's head and that version, if there is one. LeaseHeldError, before a volume
    is made: another process uses the working copy."""
    with working_copy.lock(LockHolder.make_brief(f"(moving {working_copy.path})")):
        pass
    state = WorkingCopy(working_copy.path).state
    base = volumes.locator(store.objects, state.volume, state.base_version) if state.base_version is not None else None

    def create(new_name: str) -> Head:
        if base is None:
            return volumes.create_volume(store.objects, new_name, owner=author())
        try:
            return volumes.fork_volume(store.objects, new_name, base, owner=author())
        except NotFoundError as error:
            raise working_copy.without_base(error) from error

    head = claimed(names.checked(name) if name is not None else names.generated(), create, strict=strict)
    working_copy.move_to(working_copy.sibling(head.volume), head.number)
    return head, base


def ended(store: stores.OpenStore, volume: str, name: str | None) -> tuple[Head, Locator | None] | None:
    """Completes a fork to this name that was killed half way, and returns as `fork` does. None:
    there is no such fork. Warns about work that such a fork has moved to another name."""
    prefix = store.record.store_id.hex()[:16]
    for copy in list_working_copies():
        if not copy.path.name.startswith(f"{prefix}-") or (move := _move(copy)) is None or move[0] != volume:
            continue
        becomes = move[1]
        if becomes == name:
            return _end(store, copy, becomes)
        if copy.volume == becomes:
            with suppress(CowfsError):  # another process uses it: the next one to open it ends the move
                copy.end_move()
            _log.warning(
                "the uncommitted work of volume %s is volume %s's now: a fork that was killed has moved it. %s publishes it",
                volume,
                becomes,
                hints.about(store.url, Command("commit", becomes)),
            )
    return None


def _move(copy: WorkingCopy) -> tuple[str, str] | None:
    """None also if its state cannot be read, since another volume's fork does not depend on it."""
    try:
        return copy.interrupted_move
    except CowfsError:
        return None


def _has_other_work(store: stores.OpenStore, copy: WorkingCopy, volume: str) -> bool:
    """Whether there is work of the volume besides the moved work. The list of places still includes
    the former place of the moved work."""
    known = WorkingCopy.list_places(store.record.store_id, volume)
    return any(each.is_kept for each in known if each.exists or each.path != copy.sibling(volume).path)


def _end(store: stores.OpenStore, copy: WorkingCopy, name: str) -> tuple[Head, Locator | None] | None:
    state = states.load(copy.state_path)
    if copy.volume == name and _has_other_work(store, copy, state.volume):
        return None  # the caller may mean the other work
    head = volumes.find_head(store.objects, name)
    if head is None or state.moving is None or (copy.volume != name and head.number != state.moving[1]):
        return None
    if copy.volume == name:
        copy.end_move()
    else:
        copy.move_to(copy.sibling(name), head.number)
    version = state.base_version
    return head, volumes.locator(store.objects, state.volume, version) if version is not None else None
