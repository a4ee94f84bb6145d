"""cowfs.json: makes an object store a cowfs store, and recognises one.

A store is encrypted if there is a secret for it when it is made (`unlocking`). Its key is then
drawn and wrapped into `keys/1` before cowfs.json names its check value: a crash between leaves a
keys record that the next one with the same secret goes on with.

No volume is made before cowfs.json. Where there are volumes without it, the record was lost:
another one would have another store id and perhaps another key, so nothing is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cowfs import clock
from cowfs.errors import AccessDeniedError, ConflictError, CorruptError, InvalidInputError, NotFoundError
from cowfs.format import keys
from cowfs.format.key_slots import STORE_KEY_BYTES, KeysRecord, Secret, new_slot
from cowfs.format.records import Cipher, StoreRecord
from cowfs.format.store_record import AES_256_GCM
from cowfs.ids import StoreId, WriteId
from cowfs.store import refs, unlocking
from cowfs.store.contract import ObjectStore
from cowfs.store.damaged import read_as
from cowfs.store.identity import AMBIENT, Access
from cowfs.store.open import open_store
from cowfs.store.probe import WRITERS, probe
from cowfs.store.repeating import create
from cowfs.store.retrying import RetryingStore
from cowfs.store.sealed import Sealable


def initialize(
    store: ObjectStore, *, writers: Sequence[ObjectStore] | None = None, access: Access = AMBIENT
) -> StoreRecord:
    """Probes and writes cowfs.json if there is none; returns what is there. Two at once agree on
    one record.

    writers: clients for the probe's race; by default new ones for the store's URL, asked as
    access says. A store that fails its probe is recorded as such: `require_writable` stands before
    writable mounts. InvalidInputError: the store was to be encrypted, and somebody else has just
    made it without a key. CorruptError: there are volumes, and their store's record is gone.
    """
    try:
        return load_record(store)
    except NotFoundError as error:
        if error.details.get("code") == "NoSuchBucket" or error.details.get("missing") == keys.KEYS:
            raise
    if _has_volumes(store):
        return _made_meanwhile(store)
    secret = unlocking.steady(store.key_source.secret) if isinstance(store, Sealable) else None
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
        cipher=_new_cipher(store, secret) if secret is not None else None,
    )
    try:
        create(store, keys.STORE, record.encode())
    except ConflictError:
        pass  # somebody else was first, or our own first attempt got through: either way one record is there
    except InvalidInputError:
        if result.put_if_absent:
            raise
        store.put(keys.STORE, record.encode())
    found = load_record(store)
    if secret is not None:
        require_encrypted(store, found)
    return found


def _has_volumes(store: ObjectStore) -> bool:
    try:
        return any(keys.parse_volume(info.key) for info in store.list(keys.VOLUMES, limit=1))
    except InvalidInputError:  # it has no lists
        return False


def _made_meanwhile(store: ObjectStore) -> StoreRecord:
    """By somebody who has made a volume there, too, since the record was looked for."""
    try:
        found = load_record(store)
    except NotFoundError as error:
        if error.details.get("missing") == keys.KEYS:
            raise
        raise CorruptError(
            f"{store.url} has volumes, and its {keys.STORE} is missing",
            hint=f"Nothing was made or changed there. Put that store's own {keys.STORE} back, from a backup or from a copy "
            f"of all its objects; another one would not fit. Delete nothing, least of all what lies below {keys.KEYS}: "
            "without it an encrypted store is lost. Or name another place (--store URL, store=).",
            details={"key": keys.STORE},
        ) from error
    if isinstance(store, Sealable) and store.key_source.secret() is not None:
        require_encrypted(store, found)
    return found


def load_record(store: ObjectStore) -> StoreRecord:
    """NotFoundError: not a cowfs store. UnsupportedFormatError: made by a newer one.

    Of an encrypted store it asks for the key, and `store` seals and opens everything from now on;
    AccessDeniedError: there is none, or it is wrong. InvalidInputError: one was given for this very
    store, which is not encrypted. Where the record says that the store has no
    conditional create, `store` looks before it creates from now on; `require_writable` has the last
    word on whether it is written to.
    """
    try:
        record = _read_record(store)
    except NotFoundError as error:
        if error.details.get("code") == "NoSuchBucket":
            raise
        raise NotFoundError(
            f"there is no cowfs store at {store.url}",
            hint="Check the URL, or make a volume there first: `cowfs create NAME --store URL`, or Volume.new(NAME, store=URL).mount().",
        ) from error
    if not record.probe.put_if_absent and isinstance(store, RetryingStore):
        store.look_before_create()
    if record.cipher is not None:
        _unlock(store, record.cipher, record.store_id)
    elif isinstance(store, Sealable) and store.key_source is not unlocking.AMBIENT_KEY:
        require_encrypted(store, record)
    return record


def require_encrypted(store: ObjectStore, record: StoreRecord) -> None:
    if record.cipher is None:
        raise InvalidInputError(
            f"{store.url} is not encrypted, and cannot become so: that is chosen when a store is made",
            hint="Choose a place where there is no store yet: another prefix of the bucket, or another directory "
            "(--store URL). `cowfs download` and `cowfs upload --store URL` copy a volume there.",
        )


def current_id(store: ObjectStore) -> StoreId:
    """Of the store that is there now: another one may have taken the place of the one that was
    opened. NotFoundError: there is none."""
    return _read_record(store).store_id


def _read_record(store: ObjectStore) -> StoreRecord:
    return read_as(store, keys.STORE, partial(StoreRecord.decode, what=f"{keys.STORE} of {store.url}"))


def _unlock(store: ObjectStore, cipher: Cipher, store_id: StoreId) -> None:
    """Once: a record that is loaded again changes nothing."""
    from cowfs.format.sealed import Sealed
    from cowfs.store.sealed import sealing_of

    if not isinstance(store, Sealable):
        raise InvalidInputError(f"{store.url} is encrypted", hint="Open it with `open_store`.")
    if not isinstance(sealing_of(store), Sealed):
        store.seal_with(Sealed(unlocking.key_of(store, cipher, store.key_source), store_id))


def _new_cipher(store: ObjectStore, secret: Secret) -> Cipher:
    """With a store key that lies in keys/1: of our own, or of an attempt with the same secret that
    went no further."""
    from cowfs.format.sealed import check_value

    key = clock.random_bytes(STORE_KEY_BYTES)
    slot = new_slot(key, secret)
    record = KeysRecord((slot,), slot.created_ns, WriteId(clock.random_bytes(WriteId.length)))
    try:
        refs.append(store, refs.key_slots(), refs.FIRST, record)
    except ConflictError:
        found = unlocking.opened(unlocking.newest_slots(store)[1], secret)
        if found is None:
            raise AccessDeniedError(
                f"somebody has begun to make an encrypted store at {store.url}, with another passphrase or key",
                hint=f"Use that one; or delete what lies below {keys.KEYS} there, if there is neither {keys.STORE} nor "
                f"anything below {keys.VOLUMES}, and try again.",
            ) from None
        key = found
    return Cipher(AES_256_GCM, check_value(key))


def require_writable(record: StoreRecord, *, accept_unsafe: bool = False) -> None:
    """InvalidInputError when the store failed its probe and nobody accepted what that means."""
    if record.probe.is_safe or accept_unsafe:
        return
    seen = record.probe
    reasons = []
    if not seen.put_if_absent:
        reasons.append("it does not refuse to create an object twice")
    elif seen.race_max_winners != 1:
        reasons.append(f"{seen.race_max_winners} of {seen.race_writers} racing writers created the same object")
    if not seen.read_after_write:
        reasons.append("a read did not return what was written before")
    if not seen.list_after_write:
        reasons.append("a list did not show what was written before")
    raise InvalidInputError(
        f"this store cannot keep two writers of one volume apart: {'; '.join(reasons)}",
        hint="Use another store; a new prefix in the same bucket is tested anew. Or accept it, and write through a mount: "
        "the commands create and mount take --accept-unsafe-store, resolve() and mount() accept_unsafe_store=True. See to "
        "it that a volume never has two writers at a time then: a commit of one could replace a commit of the other, "
        "which is lost.",
        details={"race_max_winners": seen.race_max_winners},
    )
