"""Protects a version for a moment, until the head of a fork that protects it exists. Otherwise a
collection could delete the version between the check and the head.

    pin (kind fork, names the version) ─▶ lists read: not condemned ─▶ head ─▶ pin still alive? ‖ pin removed

Either the collection sees the pin when it reads the roots for the last time, and spares the
version; or its list existed before the pin, and is read here. A pin that outlives its maker counts
for LIFETIME_S, and so does one whose maker does not know whether the head exists: its put may be on
its way. If the pin was declared dead meanwhile, the head must be revoked (`is_alive`).

Cost: four requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cowfs.base import clock
from cowfs.base.errors import ConflictError, CowfsError, InvalidInputError, NotFoundError
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId, WriteId
from cowfs.format import keys
from cowfs.format.records import PinRecord
from cowfs.store import ObjectStore
from cowfs.store.refs import refs
from cowfs.store.refs.beside import beside
from cowfs.store.refs.pins import load_condemned_versions

LIFETIME_S = 3600


class Kept:
    """A version that is protected while this is alive."""

    def __init__(self, store: ObjectStore, id: WriteId) -> None:
        self._store = store
        self._id = id
        self.is_over = False

    @property
    def is_alive(self) -> bool:
        """Whether it protects the version, and has all the time. Call it once the new protection of
        the version exists. UnavailableError: that cannot be determined."""
        return not refs.is_there(self._store, refs.pin(self._id), refs.FIRST + 1)

    def end(self) -> bool:
        """Removes the pin; returns whether it has protected the version all the time: only then is
        the dead record its second one. UnavailableError: that cannot be determined."""
        self.is_over = True
        is_alive, _ = beside(lambda: self.is_alive, self.remove)
        return is_alive

    def remove(self) -> None:
        """Leaves a dead record, number 2. If that fails, the pin expires."""
        with suppress(CowfsError):
            self._store.delete([keys.pin(self._id, refs.FIRST)])


@contextmanager
def keeping(store: ObjectStore, volume: str, version: VersionId, *, owner: str = "") -> Iterator[Kept]:
    """volume: for people who look at pins. NotFoundError: a collection is deleting the version.
    An error in the block, except a refusal by the store, leaves the outcome unknown."""
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
        if version in load_condemned_versions(store):
            raise being_deleted(store, version)
        yield kept
    except (ConflictError, InvalidInputError, NotFoundError):
        kept.remove()
        raise
    if not kept.is_over:
        kept.remove()


def being_deleted(store: ObjectStore, version: VersionId) -> NotFoundError:
    """A condemned list names it. It may be spared: its head can be newer than the list, put by a
    writer that slept, or for a volume that was restored at the last moment."""
    return NotFoundError(
        f"version {version.hex()[:12]} of {store.url} is being deleted, unless a head or a tag keeps it",
        hint=f"If one does ({Command('log')}, history()), let the collection end ({Command('gc')}, Store().gc()) and try again. "
        "Otherwise use another version.",
    )
