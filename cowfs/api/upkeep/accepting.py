"""Shows and accepts a store that differs from this machine's last view of it
(`store.remembering`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from cowfs import store as stores_layer
from cowfs.api import names, stores
from cowfs.api.storage.definition import Storage
from cowfs.api.storage.resolving import access
from cowfs.base.errors import CorruptError, InvalidInputError, NotFoundError
from cowfs.base.ids import StoreId
from cowfs.format.records import HeadRecord, StoreRecord
from cowfs.machine.known_stores import OF_STORE, PLAIN, KnownStore, Mark
from cowfs.store import ObjectStore
from cowfs.store.credentials import unlocking
from cowfs.store.refs import refs
from cowfs.store.remembering import cipher_of, day

R = TypeVar("R", bound=refs.RefRecord)


@dataclass(frozen=True)
class AcceptedChange:
    """One difference from the last view, in words. subject: "store", "keys", "volume NAME" or "tag
    NAME of volume NAME"; known: the state that this machine had seen; now: the current state."""

    subject: str
    known: str
    now: str


def accept_store(
    store: str | os.PathLike[str] | Storage | None = None, *, volume: str | None = None
) -> list[AcceptedChange]:
    """Makes this machine trust the current state at the store's URL: the store that is there, its
    newest heads and its tags; volume: of that volume alone. Returns the differences from the last
    view. If the store no longer exists, it is forgotten.

    Nothing in the store is changed. InvalidStateError: `volume` is given, but it is another store.
    InvalidInputError: no store was ever used there.
    """
    named = stores.name(store)
    url = stores.canonical_url(named)
    known = KnownStore(url)
    if volume is None and not stores.was_used(named):
        raise InvalidInputError(f"this machine has used no store at {url}", hint="There is nothing to be accepted.")
    try:
        objects = stores_layer.open_store(url, access=access(stores.storage_of(named)), remembers=volume is not None)
    except NotFoundError as error:
        return _forgotten(known, volume, error)
    with closing(objects):
        try:
            record = stores_layer.load_record(objects)
        except NotFoundError as error:
            if not stores.is_no_store(error):
                raise
            return _forgotten(known, volume, error)
        if volume is not None:
            objects.memory = None
            return list(_accept_volume(known, objects, names.checked(volume)))
        return [
            *_accept_store(known, record),
            *(each for name in known.volumes() for each in _accept_volume(known, objects, name)),
            *_accept_keys(known, objects, record),
        ]


def _accept_store(known: KnownStore, record: StoreRecord) -> Iterator[AcceptedChange]:
    before, cipher = known.load(), cipher_of(record)
    known.remember(record.store_id, cipher)
    if before is not None and (before.store_id, before.cipher or cipher) != (record.store_id, cipher):
        yield AcceptedChange("store", _describe(before.store_id, before.cipher), _describe(record.store_id, cipher))


def _describe(store_id: StoreId, cipher: str | None) -> str:
    if cipher is None:
        return store_id.hex()
    return f"{store_id.hex()}, {'not encrypted' if cipher == PLAIN else f'encrypted with key {cipher[:8]}'}"


def _accept_volume(known: KnownStore, objects: ObjectStore, volume: str) -> Iterator[AcceptedChange]:
    for series, mark in known.marks(volume).items():
        tag = series.partition("tag@")[2]
        now = _newest(objects, refs.tag(volume, tag), mark) if tag else _newest(objects, refs.head(volume), mark)
        if now == (mark.number, mark.check):
            continue
        seen_ns = mark.seen_ns  # of a file that is removed
        known.accept(volume, series, now)
        yield AcceptedChange(
            f"tag {tag} of volume {volume}" if tag else f"volume {volume}",
            f"number {mark.number} ({mark.check[:8]}){f', seen {day(seen_ns)}' if seen_ns is not None else ''}",
            f"number {now[0]} ({now[1][:8]})" if now is not None else "none",
        )


def _accept_keys(known: KnownStore, objects: ObjectStore, record: StoreRecord) -> Iterator[AcceptedChange]:
    if (mark := known.newest(OF_STORE, "keys")) is None or record.cipher is None:
        return
    number, found = unlocking.authentic_slots(objects)
    if number > mark.number or (number, found.check) == (mark.number, mark.check):
        return
    known.accept(OF_STORE, "keys", (number, found.check) if found.mac is not None else None)
    yield AcceptedChange("keys", f"number {mark.number} ({mark.check[:8]})", f"number {number} ({found.check[:8]})")


def _newest(objects: ObjectStore, ref: refs.Ref[R], mark: Mark) -> tuple[int, str] | None:
    """Number and check of the newest record, or those of the mark if later looks agree with it."""
    found = refs.newest(objects, ref)
    if found is not None and found[0] > mark.number and _is_joined(objects, ref, mark):
        return mark.number, mark.check
    return (found[0], found[1].check) if found is not None else None


def _is_joined(objects: ObjectStore, ref: refs.Ref[R], mark: Mark) -> bool:
    """Whether its record still exists and the next one was added after it."""
    try:
        at, following = (refs.read(objects, ref, mark.number + behind) for behind in (0, 1))
    except (CorruptError, NotFoundError):
        return False
    return at.check == mark.check and (not isinstance(following, HeadRecord) or following.prev in (None, mark.check))


def _forgotten(known: KnownStore, volume: str | None, error: NotFoundError) -> list[AcceptedChange]:
    """The store no longer exists; this machine forgets it."""
    if volume is not None:
        raise error
    before = known.load()
    known.forget()
    return [AcceptedChange("store", _describe(before.store_id, before.cipher) if before is not None else "one", "none")]
