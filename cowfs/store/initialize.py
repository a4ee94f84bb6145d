"""cowfs.json: makes an object store a cowfs store, and recognises one.

A store is encrypted if there is a secret for it when it is made (`unlocking`). Its key is then
drawn and wrapped into `keys/1` before cowfs.json names its check value. A crash in between leaves a
keys record, and the next call with the same secret continues with it, but only if it is exactly
such a record: one slot of the usual costs. With many slots an attacker who guesses at the secret
could make us use a key of theirs.

No volume is made before cowfs.json. If there are volumes without it, the record was lost. A new
record would have another store id and perhaps another key, so nothing is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from cowfs.base import clock
from cowfs.base.errors import AccessDeniedError, ConflictError, CorruptError, InvalidInputError, NotFoundError
from cowfs.base.hints import Command
from cowfs.base.ids import StoreId, WriteId
from cowfs.format import keys
from cowfs.format.key_slots import STORE_KEY_BYTES, Secret, first_record, new_slot
from cowfs.format.records import Cipher, StoreRecord
from cowfs.format.store_record import AES_256_GCM
from cowfs.store.contract import ObjectStore
from cowfs.store.credentials import unlocking
from cowfs.store.credentials.identity import AMBIENT, Access
from cowfs.store.credentials.unlocking import StoreKey
from cowfs.store.open import open_store
from cowfs.store.probe import WRITERS, probe
from cowfs.store.refs import refs
from cowfs.store.reliability.damaged import read_as
from cowfs.store.reliability.repeating import create
from cowfs.store.reliability.retrying import RetryingStore
from cowfs.store.remembering import memory_of, remember, require_same
from cowfs.store.sealed import Sealable


def initialize(
    store: ObjectStore,
    *,
    writers: Sequence[ObjectStore] | None = None,
    access: Access = AMBIENT,
    store_key: StoreKey | None = None,
) -> StoreRecord:
    """Probes the store and writes cowfs.json if it is absent; returns the record. Two callers at
    once agree on one record.

    writers: clients for the probe's race; by default new ones for the store's URL, asked as access
    says. store_key: of an encrypted store whose slots the caller has put there; else a new one is
    drawn. A store that fails its probe is recorded as such: `require_writable` is called before
    writable mounts. InvalidInputError: the store was to be encrypted, and another process has just
    made it without a key. CorruptError: there are volumes, and their store's record is gone.
    """
    try:
        return load_record(store)
    except NotFoundError as error:
        if error.details.get("code") == "NoSuchBucket" or error.details.get("missing") == keys.KEYS:
            raise
    if _has_volumes(store):
        return _load_concurrent(store)
    secret = unlocking.steady(store.key_source.secret) if isinstance(store, Sealable) else None
    if secret is None and unlocking.is_encryption_required():
        raise InvalidInputError(
            f"a store at {store.url} would not be encrypted, and {unlocking.REQUIRED}=required: nothing was made",
            hint=unlocking.HINT,
        )
    own = [open_store(store.url, create=True, access=access) for _ in range(WRITERS)] if writers is None else []
    try:
        result = probe(store, writers or own)
    finally:
        for client in own:
            client.close()
    record = StoreRecord(
        store_id=StoreId(clock.random_bytes(StoreId.length)),
        created_ns=clock.now_ns(),
        write_id=WriteId(clock.random_bytes(WriteId.length)),
        probe=result,
    )
    if secret is not None:
        record = _with_check_value(
            record, _new_key(store, secret) if store_key is None else _check_given_key(store, store_key)
        )
    try:
        create(store, keys.STORE, record.encode())
    except ConflictError:
        pass  # another process was first, or our own first attempt got through: either way one record is there
    except InvalidInputError:
        if result.put_if_absent:
            raise
        store.put(keys.STORE, record.encode())
    if (memory := memory_of(store)) is not None:
        memory.forget()  # the earlier store: a new one was made in its place
    found = load_record(store)
    if secret is not None:
        require_encrypted(store, found)
    return found


def _has_volumes(store: ObjectStore) -> bool:
    try:
        return any(keys.parse_volume(info.key) for info in store.list(keys.VOLUMES, limit=1))
    except InvalidInputError:  # it has no lists
        return False


def _load_concurrent(store: ObjectStore) -> StoreRecord:
    """The record of a store in which another process has just made a volume as well."""
    try:
        found = load_record(store)
    except NotFoundError as error:
        if error.details.get("missing") == keys.KEYS:
            raise
        raise CorruptError(
            f"{store.url} has volumes, and its {keys.STORE} is missing",
            hint=f"Nothing was made or changed there. Put that store's own {keys.STORE} back, from a backup or from a copy "
            f"of all its objects; another one would not fit. Delete nothing, least of all objects below {keys.KEYS}: "
            "without it an encrypted store is lost. Or name another place (--store URL, store=).",
            details={"key": keys.STORE},
        ) from error
    if isinstance(store, Sealable) and store.key_source.secret() is not None:
        require_encrypted(store, found)
    return found


def load_record(store: ObjectStore) -> StoreRecord:
    """NotFoundError: not a cowfs store. UnsupportedFormatError: made by a newer one.

    For an encrypted store it asks for the key, and `store` seals and opens everything from now on;
    AccessDeniedError: there is no key, or it is wrong. InvalidInputError: a key was given for this
    very store, which is not encrypted, or stores without encryption are refused
    (`unlocking.REQUIRED`). InvalidStateError: this machine has seen another store there
    (`remembering`). If the record says that the store has no conditional create, `store` looks
    before it creates from now on; `require_writable` decides whether it may be written to.
    """
    try:
        record = _read_record(store)
    except NotFoundError as error:
        if error.details.get("code") == "NoSuchBucket":
            raise
        raise NotFoundError(
            f"there is no cowfs store at {store.url}",
            hint=f"Check the URL, or make a volume there first: {Command('create', 'NAME', '--store', 'URL')}, or "
            "Volume.new(NAME, store=URL).mount().",
        ) from error
    if not record.probe.put_if_absent and isinstance(store, RetryingStore):
        store.look_before_create()
    require_same(store, record)
    is_required = unlocking.is_encryption_required()
    if record.cipher is not None:
        _unlock(store, record)
    elif is_required:
        raise InvalidInputError(
            f"{store.url} is not encrypted, and {unlocking.REQUIRED}=required accepts no such store",
            hint="It may have been put in the place of yours. Name an encrypted one (--store URL, store=); or unset "
            f"{unlocking.REQUIRED}, if this one is meant.",
        )
    elif isinstance(store, Sealable) and store.key_source is not unlocking.AMBIENT_KEY:
        require_encrypted(store, record)
    remember(store, record)
    return record


def require_encrypted(store: ObjectStore, record: StoreRecord) -> None:
    if record.cipher is None:
        raise InvalidInputError(
            f"{store.url} is not encrypted, and cannot become so: that is chosen when a store is made",
            hint="Choose a place where there is no store yet: another prefix of the bucket, or another directory "
            f"(--store URL). {Command('download')} and {Command('upload', '--store', 'URL')} copy a volume there.",
        )


def current_id(store: ObjectStore) -> StoreId:
    """Id of the store that is there now, which may have replaced the one that was opened.
    NotFoundError: there is no store."""
    return _read_record(store).store_id


def _read_record(store: ObjectStore) -> StoreRecord:
    return read_as(store, keys.STORE, partial(StoreRecord.decode, what=f"{keys.STORE} of {store.url}"))


def _unlock(store: ObjectStore, record: StoreRecord) -> None:
    """Once: a record that is loaded again changes nothing."""
    from cowfs.format.sealed import Sealed
    from cowfs.store.sealed import sealing_of

    if not isinstance(store, Sealable):
        raise InvalidInputError(f"{store.url} is encrypted", hint="Open it with `open_store`.")
    if not isinstance(sealing_of(store), Sealed):
        store.seal_with(Sealed(unlocking.key_of(store, record, store.key_source), record.store_id))


def _with_check_value(record: StoreRecord, key: bytes) -> StoreRecord:
    from cowfs.format.sealed import check_value

    unchecked = replace(record, cipher=Cipher(AES_256_GCM, b""))
    return replace(record, cipher=Cipher(AES_256_GCM, check_value(key, unchecked)))


def _new_key(store: ObjectStore, secret: Secret) -> bytes:
    """That lies in keys/1 now: of our own, or of an attempt with the same secret that went no
    further."""
    key = clock.random_bytes(STORE_KEY_BYTES)
    place = keys.key_slots(refs.FIRST)
    try:
        refs.append(store, refs.key_slots(), refs.FIRST, first_record(new_slot(key, secret), key, place))
    except ConflictError:
        number, found = unlocking.newest_slots(store)
        if number != refs.FIRST or found.mac is None or len(found.slots) > 1 or not found.slots[0].has_default_costs:
            raise _conflicting_attempt(store, "and its keys are not what an interrupted attempt leaves") from None
        given = unlocking.find_key(found, secret, lambda key: found.is_signed(key, place))
        if given is None:
            raise _conflicting_attempt(store, "with another passphrase or key") from None
        return given
    return key


def _check_given_key(store: ObjectStore, key: StoreKey) -> bytes:
    number, found = unlocking.newest_slots(store)
    if found.mac is None or not found.is_signed(key.value, keys.key_slots(number)):
        raise _conflicting_attempt(store, "with another key")
    return key.value


def _conflicting_attempt(store: ObjectStore, how: str) -> AccessDeniedError:
    return AccessDeniedError(
        f"another process has begun to make an encrypted store at {store.url}, {how}",
        hint=f"Nothing was made. If you know its owner, let them finish, and use their passphrase or key. Otherwise choose another "
        f"place, or delete the objects below {keys.KEYS} there, if there is neither {keys.STORE} nor anything below "
        f"{keys.VOLUMES}, and try again.",
    )


def require_writable(record: StoreRecord, *, accept_unsafe: bool = False) -> None:
    """InvalidInputError: the store failed its probe, and the risk was not accepted."""
    if record.probe.is_safe or accept_unsafe:
        return
    seen = record.probe
    reasons = []
    if not seen.put_if_absent:
        reasons.append("it does not refuse to create an object twice")
    elif seen.race_max_winners != 1:
        reasons.append(f"{seen.race_max_winners} of {seen.race_writers} racing writers created the same object")
    if not seen.read_after_write:
        reasons.append("a read did not return the bytes written before")
    if not seen.list_after_write:
        reasons.append("a list did not show an object written before")
    raise InvalidInputError(
        f"this store cannot keep two writers of one volume apart: {'; '.join(reasons)}",
        hint="Use another store; a new prefix in the same bucket is tested anew. Or accept it, and write through a mount: "
        "the commands create and mount take --accept-unsafe-store, resolve() and mount() accept_unsafe_store=True. See to "
        "it that a volume never has two writers at a time then: a commit of one could replace a commit of the other, "
        "which is lost.",
        details={"race_max_winners": seen.race_max_winners},
    )
