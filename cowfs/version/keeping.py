"""Keeps a version for a moment, while the head of a fork is being made, which will protect it.
Without that a collection could delete the version between the look at it and the head.

    pin (kind fork, names the version) ─▶ lists read: not condemned ─▶ head ─▶ pin still alive? ‖ pin removed

Either the collection sees the pin when it looks at the roots for the last time, and spares the
version; or its list was there before the pin, and is seen here. A pin that outlives its maker
counts for LIFETIME_S, and so does one whose maker does not know whether the head is there: it may
be on its way. If it was declared dead meanwhile, the head must be taken back (`is_alive`).

Cost: four requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cowfs import clock
from cowfs.errors import ConflictError, CowfsError, InvalidInputError, NotFoundError
from cowfs.format import keys
from cowfs.format.records import PinRecord
from cowfs.ids import VersionId, WriteId
from cowfs.store import ObjectStore, refs
from cowfs.store.beside import beside
from cowfs.store.pins import condemned_versions

LIFETIME_S = 3600


class Kept:
    """A version that is protected while this is alive."""

    def __init__(self, store: ObjectStore, id: WriteId) -> None:
        self._store = store
        self._id = id
        self.is_over = False

    @property
    def is_alive(self) -> bool:
        """Whether it protects the version still, and so has all the time. Asked when what protects
        the version from now on is there. UnavailableError: not to be told."""
        return not refs.is_there(self._store, refs.pin(self._id), refs.FIRST + 1)

    def end(self) -> bool:
        """Whether it has protected the version all the time, asked while it is removed: a dead
        record is not its first one. UnavailableError: not to be told."""
        self.is_over = True
        is_alive, _ = beside(lambda: self.is_alive, self.remove)
        return is_alive

    def remove(self) -> None:
        """A dead record, which is number 2, stays. Where it fails, the pin expires."""
        with suppress(CowfsError):
            self._store.delete([keys.pin(self._id, refs.FIRST)])


@contextmanager
def keeping(store: ObjectStore, volume: str, version: VersionId, *, owner: str = "") -> Iterator[Kept]:
    """volume: for people who look at pins. NotFoundError: a collection is deleting the version.
    What is raised inside, save a refusal by the store, leaves the outcome unknown."""
    id = WriteId(clock.random_bytes(WriteId.length))
    record = PinRecord(
        volume=volume,
        number=0,
        gc_generation=0,
        created_ns=clock.now_ns(),
        lifetime_s=LIFETIME_S,
        write_id=id,
        owner=owner,
        kind="fork",
        version=version,
    )
    refs.append(store, refs.pin(id), refs.FIRST, record)
    kept = Kept(store, id)
    try:
        if version in condemned_versions(store):
            raise being_deleted(store, version)
        yield kept
    except (ConflictError, InvalidInputError, NotFoundError):
        kept.remove()
        raise
    if not kept.is_over:
        kept.remove()


def being_deleted(store: ObjectStore, version: VersionId) -> NotFoundError:
    """A list names it. It may be spared: its head can have come after the list was made, of a
    writer that slept, or of a volume that was brought back in the last moment."""
    return NotFoundError(
        f"version {version.hex()[:12]} of {store.url} is being deleted, unless a head or a tag keeps it",
        hint="If one does (`cowfs log`, history()), let the collection end (`cowfs gc`, Volume.gc()) and try again. "
        "Otherwise use another version.",
    )
