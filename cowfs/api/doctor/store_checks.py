"""Doctor's checks of a store: reachable, a cowfs store, writable, and the result of its creation
probe."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from cowfs.api import hints
from cowfs.api.doctor.check import LOW_DISK_BYTES, OK, WARN, Check, failed
from cowfs.api.stores import canonical_url, endpoint_note
from cowfs.base import byte_sizes
from cowfs.base.errors import AccessDeniedError, CowfsError, InvalidInputError, NoSpaceError, NotFoundError
from cowfs.base.hints import Command
from cowfs.format.records import StoreRecord
from cowfs.format.store_url import StoreUrl
from cowfs.store import ObjectStore, load_record, open_store, require_writable, scratch_objects

FULL_DISK_BYTES = 1 << 20


class StoreChecks:
    """The checks of one store, in the order of `all`. Each uses the results of those before it."""

    def __init__(self, url: str | None) -> None:
        self._given = url
        self._store: ObjectStore | None = None
        self._record: StoreRecord | None = None

    @property
    def all(self) -> Sequence[Callable[[], Check]]:
        return (self.reachable, self.writable, self.room, self.probe)

    def reachable(self) -> Check:
        name = "store"
        try:
            self._store = open_store(canonical_url(self._given))
            self._record = load_record(self._store)
        except NotFoundError as error:
            return self._not_there(name, error)
        except CowfsError as error:
            self._store = None
            return failed(name, error)
        note = endpoint_note(self._given)
        kind = "an encrypted cowfs store" if self._record.cipher is not None else "a cowfs store"
        return Check(
            name, OK, " ".join(filter(None, [f"{self._store.url} is {kind} ({self._record.store_id}).", note]))
        )

    def _not_there(self, name: str, error: NotFoundError) -> Check:
        """A missing store is no failure if the first `create` can make it. A missing bucket is
        one."""
        if error.details.get("code") == "NoSuchBucket":
            self._store = None
            return failed(name, error)
        blocked = _find_obstacle(self._given)
        if blocked is not None:
            refused = AccessDeniedError(
                f"{error.message}, and {blocked} is in the way",
                hint="Choose another: --store, store=, COWFS_STORE.",
            )
            return failed(name, refused)
        return Check(name, WARN, error.message, f"{hints.about(None, Command('create', 'NAME'))} makes it.")

    def writable(self) -> Check:
        name = "store writable"
        if self._store is None:
            return Check(name, WARN, "not checked: there is no store")
        try:
            _, refused = scratch_objects.try_put(self._store)
        except CowfsError as error:
            return failed(name, error)
        if refused is not None:
            return Check(name, WARN, f"an object was put and listed; {refused.message}", refused.hint)
        return Check(name, OK, "an object was put, listed and deleted")

    def room(self) -> Check:
        """Free space of a directory store. A commit needs about as much as was changed."""
        name = "room in the store"
        place = StoreUrl.parse(canonical_url(self._given))
        if place.protocol != "file":
            return Check(name, OK, "is not limited by a disk of this machine")
        if self._store is None or self._record is None:
            return Check(name, WARN, "not checked: there is no store")
        found = os.statvfs("/" + place.path)
        free_bytes = found.f_bavail * found.f_frsize
        if free_bytes >= LOW_DISK_BYTES:
            return Check(name, OK, f"{byte_sizes.format_size(free_bytes)} free")
        said = f"{self._store.url} has only {byte_sizes.format_size(free_bytes)} free: commits that do not fit fail"
        hint = "Free space on its disk. Nothing is lost: work stays on this machine until it is committed."
        if free_bytes < FULL_DISK_BYTES:
            return failed(name, NoSpaceError(said, hint=hint))
        return Check(name, WARN, said, hint)

    def probe(self) -> Check:
        name = "store keeps writers apart"
        if self._record is None:
            return Check(name, WARN, "not known: a store is probed when it is made")
        try:
            require_writable(self._record)
        except InvalidInputError as error:
            return failed(name, error)
        seen = self._record.probe
        return Check(name, OK, f"of up to {seen.race_writers} racing writers one won, {seen.race_rounds} times")


def _find_obstacle(url: str | None) -> Path | None:
    """The path that prevents the directory of a directory store from being created."""
    place = StoreUrl.parse(canonical_url(url))
    if place.protocol != "file":
        return None
    path = Path("/" + place.path)
    existing = next(each for each in (path, *path.parents) if each.exists())
    return None if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK) else existing


def all_of(url: str | None) -> Sequence[Callable[[], Check]]:
    return StoreChecks(url).all
