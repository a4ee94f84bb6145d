"""cowfs.json: makes an object store a cowfs store, and recognises one."""

from __future__ import annotations

from collections.abc import Sequence

from cowfs import clock
from cowfs.errors import ConflictError, InvalidInputError, NotFoundError
from cowfs.format import keys
from cowfs.format.records import StoreRecord
from cowfs.ids import StoreId, WriteId
from cowfs.store.contract import ObjectStore
from cowfs.store.identity import AMBIENT, Access
from cowfs.store.open import open_store
from cowfs.store.probe import WRITERS, probe
from cowfs.store.retrying import RetryingStore


def initialize(
    store: ObjectStore, *, writers: Sequence[ObjectStore] | None = None, access: Access = AMBIENT
) -> StoreRecord:
    """Probes and writes cowfs.json if there is none; returns what is there. Two at once agree on
    one record.

    writers: clients for the probe's race; by default new ones for the store's URL, asked as
    access says. A store that
    fails its probe is recorded as such: `require_writable` stands before writable mounts.
    """
    try:
        return load_record(store)
    except NotFoundError as error:
        if error.details.get("code") == "NoSuchBucket":
            raise
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
    try:
        store.put_if_absent(keys.STORE, record.encode())
    except ConflictError:
        pass  # somebody else was first, or our own first attempt got through: either way one record is there
    except InvalidInputError:
        if result.put_if_absent:
            raise
        store.put(keys.STORE, record.encode())
    return load_record(store)


def load_record(store: ObjectStore) -> StoreRecord:
    """NotFoundError: not a cowfs store. UnsupportedFormatError: made by a newer one.

    Where the record says that the store has no conditional create, `store` looks before it creates
    from now on; `require_writable` has the last word on whether it is written to.
    """
    try:
        data = store.get(keys.STORE)
    except NotFoundError as error:
        if error.details.get("code") == "NoSuchBucket":
            raise
        raise NotFoundError(
            f"there is no cowfs store at {store.url}",
            hint="Check the URL, or make a volume there first: `cowfs create NAME --store URL`, or Volume.new(NAME, store=URL).mount().",
        ) from error
    record = StoreRecord.decode(data, what=f"{keys.STORE} of {store.url}")
    if not record.probe.put_if_absent and isinstance(store, RetryingStore):
        store.look_before_create()
    return record


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
        hint="Use another store. Or accept it (accept_unsafe_store=True, --accept-unsafe-store) and see to it that a volume never has two "
        "writers at a time: a commit of one could replace a commit of the other, which is lost.",
        details={"race_max_winners": seen.race_max_winners},
    )
