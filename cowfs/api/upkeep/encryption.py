"""The secrets of an encrypted store: lists, adds and removes them, and encrypts a new store.

The store's own key never changes. Each secret (a passphrase, a key file, a command) has a slot in
the store that wraps the key (docs/format/keys.md). The holder of a secret can add others, and can
remove any but the last. A removed secret no longer opens this store; mirrors that were pushed
before have slots of their own. A store key obtained before the removal stays valid.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cowfs.api import stores
from cowfs.api.storage.definition import EncryptionKey, KeyCommand, KeyFile, Storage
from cowfs.api.storage.resolving import secret_of
from cowfs.base import clock
from cowfs.base.errors import InvalidInputError, NotFoundError
from cowfs.base.hints import Command
from cowfs.format.key_slots import Slot, new_slot
from cowfs.store.credentials import unlocking

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True)
class KeySummary:
    """id: the argument of `remove_key`. kind: "passphrase", or "key" for a file or a command."""

    id: str
    kind: str
    label: str
    created_ns: int

    @property
    def created(self) -> datetime:
        """`created_ns` as a time in UTC."""
        return clock.as_datetime(self.created_ns)


def list_keys(store: str | os.PathLike[str] | Storage | None = None) -> list[KeySummary]:
    """The secrets that open this store, in the order in which they were added. Two or three
    requests.

    InvalidInputError: the store is not encrypted. AccessDeniedError: there is no key for it here.
    CorruptError: the key records were changed without the store's key.
    """
    _, record = unlocking.authentic_slots(_open(store).objects)
    return [_summary(slot) for slot in record.slots]


def add_key(
    key: EncryptionKey, store: str | os.PathLike[str] | Storage | None = None, *, label: str = ""
) -> KeySummary:
    """Adds a secret that opens the store. label: a text for people; every user with access to the
    store can read it. ConflictError: another client changed the keys at the same time.
    InvalidInputError: a command prints another key each time. Other errors as for `list_keys`."""
    opened = _open(store)
    store_key = unlocking.store_key_of(opened.objects)
    assert store_key is not None
    given = Storage(opened.url, encryption_key=key)
    slot = new_slot(store_key.value, unlocking.steady(lambda: secret_of(given)), label=label)
    # Never again: another client may have removed it just now.
    unlocking.change_slots(opened.objects, lambda slots: slots if slot in slots else (*slots, slot), may_repeat=False)
    return _summary(slot)


def remove_key(id: str, store: str | os.PathLike[str] | Storage | None = None) -> None:
    """Removes the secret that `list_keys` shows under this id from this store. A mirror that was
    pushed before still opens with it, until it is removed there under the same id. NotFoundError:
    no secret has this id. InvalidInputError: it is the last one. Other errors as for
    `list_keys`."""

    was_there = False

    def without(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        nonlocal was_there
        left = tuple(slot for slot in slots if slot.id != id)
        was_there = was_there or left != slots
        if not was_there:
            raise NotFoundError(
                f"the store has no key {id!r}", hint=f"{Command('key', 'list')} and list_keys() show them."
            )
        if not left:
            raise InvalidInputError(
                f"{id} is the last key: nobody could open the store any more", hint="Add another one first."
            )
        return left

    unlocking.change_slots(_open(store).objects, without)


def encrypted(store: str | None, key: EncryptionKey) -> Storage:
    """The store, as a `Storage` that must be encrypted, or is created encrypted, with this key. No
    request is made."""
    return Storage(stores.canonical_url(store), encryption_key=key)


def key_of_environment() -> EncryptionKey | None:
    """The secret named by the environment. InvalidInputError: it names several."""
    match unlocking.find_in_environment():
        case None:
            return None
        case unlocking.PASSPHRASE, value:
            return value
        case unlocking.KEY_FILE, value:
            return KeyFile(value)
        case _, value:
            return KeyCommand(value)


def use_passphrase(text: str) -> None:
    """Sets the passphrase for all encrypted stores that this process opens from now on without
    another key."""
    unlocking.remember(unlocking.passphrase(text))


def _open(store: str | os.PathLike[str] | Storage | None) -> stores.OpenStore:
    opened = stores.open_store(stores.name(store))
    if opened.record.cipher is None:
        raise InvalidInputError(
            f"{opened.url} is not encrypted",
            hint=f"That is chosen when a store is made: {Command('create', 'NAME', '--encrypt')}, or "
            "Volume.new(NAME, store=Storage(URL, encryption_key=…)).",
        )
    return opened


def _summary(slot: Slot) -> KeySummary:
    return KeySummary(slot.id, slot.kind, slot.label, slot.created_ns)
