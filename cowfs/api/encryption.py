"""What opens an encrypted store: listed, added, taken out; and how a new store becomes one.

The store's own key never changes: each secret (a passphrase, a key file, a command) has a slot in
the store that wraps it (docs/format/keys.md). Who has a secret can add others, and take out any but
the last. What was taken out opens this store no more; mirrors that were pushed before have slots of
their own. Whoever has had the store's key before keeps it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from cowfs.api import stores
from cowfs.api.storage.resolving import secret_of
from cowfs.api.storage.storage import EncryptionKey, KeyCommand, KeyFile, Storage
from cowfs.errors import InvalidInputError, NotFoundError
from cowfs.format.key_slots import Slot, new_slot
from cowfs.store import unlocking


@dataclass(frozen=True)
class KeySummary:
    """id: how `remove_key` names it. kind: "passphrase", or "key" for a file or a command."""

    id: str
    kind: str
    label: str
    created_ns: int


def list_keys(store: str | os.PathLike[str] | Storage | None = None) -> list[KeySummary]:
    """What opens this store, in the order in which it was added. Two or three requests.

    InvalidInputError: the store is not encrypted. AccessDeniedError: there is no key for it here.
    """
    _, record = unlocking.newest_slots(_opened(store).objects)
    return [_summary(slot) for slot in record.slots]


def add_key(
    key: EncryptionKey, store: str | os.PathLike[str] | Storage | None = None, *, label: str = ""
) -> KeySummary:
    """From now on this opens the store, too. label: for people; anybody who sees the store can read
    it. ConflictError: others changed the keys at the same time. InvalidInputError: a command prints
    another key each time. Other errors as of `list_keys`."""
    opened = _opened(store)
    store_key = unlocking.store_key_of(opened.objects)
    assert store_key is not None
    given = Storage(opened.url, encryption_key=key)
    slot = new_slot(store_key.value, unlocking.steady(lambda: secret_of(given)), label=label)
    # Never again: somebody may have taken it out just now.
    unlocking.change_slots(opened.objects, lambda slots: slots if slot in slots else (*slots, slot), may_repeat=False)
    return _summary(slot)


def remove_key(id: str, store: str | os.PathLike[str] | Storage | None = None) -> None:
    """Takes out what `list_keys` shows under this id, of this store. A mirror that was pushed
    before is still opened by it, until it is taken out there, under the same id. NotFoundError:
    there is none. InvalidInputError: it is the last. Errors as of `list_keys`, besides."""

    was_there = False

    def without(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        nonlocal was_there
        left = tuple(slot for slot in slots if slot.id != id)
        was_there = was_there or left != slots
        if not was_there:
            raise NotFoundError(f"the store has no key {id!r}", hint="`cowfs key list` and list_keys() show them.")
        if not left:
            raise InvalidInputError(
                f"{id} is the last key: nobody could open the store any more", hint="Add another one first."
            )
        return left

    unlocking.change_slots(_opened(store).objects, without)


def encrypted(store: str | None, key: EncryptionKey) -> Storage:
    """The store as a user names it, which must be encrypted, or is made so."""
    return Storage(stores.canonical_url(store), encryption_key=key)


def key_of_environment() -> EncryptionKey | None:
    """What the environment names. InvalidInputError: several."""
    match unlocking.named_by_environment():
        case None:
            return None
        case unlocking.PASSPHRASE, value:
            return value
        case unlocking.KEY_FILE, value:
            return KeyFile(value)
        case _, value:
            return KeyCommand(value)


def use_passphrase(text: str) -> None:
    """For every encrypted store that this process opens from now on without another key."""
    unlocking.remember(unlocking.passphrase(text))


def _opened(store: str | os.PathLike[str] | Storage | None) -> stores.OpenStore:
    opened = stores.open_store(stores.name(store))
    if opened.record.cipher is None:
        raise InvalidInputError(
            f"{opened.url} is not encrypted",
            hint="That is chosen when a store is made: `cowfs create NAME --encrypt`, or "
            "Volume.new(NAME, store=Storage(URL, encryption_key=…)).",
        )
    return opened


def _summary(slot: Slot) -> KeySummary:
    return KeySummary(slot.id, slot.kind, slot.label, slot.created_ns)
