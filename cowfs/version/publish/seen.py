"""Reads ahead for opening a volume for writing: objects of the volume that the opener then need not
request again.

    list of volumes/<name>/           shows the newest head and the newest lease
    head n ‖ heartbeat of the lease ‖ the volume's record, if it was ever changed

A list may be late, so nothing of it is final: the opener looks for a newer head after its lease and
pin, and only its put proves that there is no newer lease. Three or four requests, two in a row.
"""

from __future__ import annotations

from functools import partial

from cowfs.base.errors import CorruptError, InvalidInputError, NotFoundError
from cowfs.format import keys
from cowfs.store import ObjectInfo, ObjectStore, remembering
from cowfs.store.refs import leases, refs
from cowfs.store.refs.beside import beside
from cowfs.store.reliability.damaged import read_as
from cowfs.version.names.volumes import Head, Seen, head_of, read_head
from cowfs.version.publish import settings

PAGE = 1000
Shown = list[ObjectInfo] | None
"""The beginning of a list; None: the store has no lists."""


def list_objects(store: ObjectStore, name: str) -> Shown:
    """One request. It may be made before it is known whether this is a cowfs store."""
    try:
        return store.list(keys.volume(name), limit=PAGE)
    except InvalidInputError:
        return None


def read_seen(store: ObjectStore, name: str, page: Shown) -> Head:
    """As `volumes.read_head`, for a volume that is opened next; perhaps not the newest head."""
    number, epoch = _newest(page or [], keys.head_prefix(name)), _newest(page or [], keys.lease_prefix(name))
    if page is None or number < refs.FIRST:
        return read_head(store, name)
    is_whole = len(page) < PAGE
    described = _newest(page, keys.meta_prefix(name)) if is_whole else 0
    ref = refs.head(name)
    if (known := remembering.read_mark(store, ref)) is not None and number < known.number:
        return read_head(store, name)
    (record, heartbeat), kept = beside(
        lambda: beside(partial(refs.read, store, ref, number), partial(_read_released, store, name, epoch)),
        partial(_settings, store, name, described),
    )
    remembering.compare(store, ref, known, (number, record), partial(refs.read, store, ref))
    head = head_of(name, number, record)
    if head.is_void or head.is_deleted:  # a list that may be late does not decide this
        return read_head(store, name)
    seen = Seen(
        {keys.head(name, number): record.encode(key=ref.place(number)), **heartbeat},
        lease_epoch=epoch if is_whole or epoch >= refs.FIRST else None,
        settings=kept if is_whole else None,
    )
    return head_of(name, number, record, seen)


def _newest(page: list[ObjectInfo], prefix: str) -> int:
    return max((keys.parse_number(info.key) or 0 for info in page if info.key.startswith(prefix)), default=0)


def _read_released(store: ObjectStore, name: str, epoch: int) -> dict[str, bytes]:
    """The heartbeat of a released lease, which does not change any more; empty for any other."""
    if epoch < refs.FIRST:
        return {}
    key = keys.heartbeat(name, epoch)

    def parse_released(data: bytes) -> dict[str, bytes]:
        return {key: data} if leases.heartbeat_of(name, epoch, data).released else {}

    try:
        return read_as(store, key, parse_released)
    except (NotFoundError, CorruptError):  # as in `leases`: its state is unknown
        return {}


def _settings(store: ObjectStore, name: str, number: int) -> settings.Settings:
    """The settings in the volume's record with that number, which is read only if it was changed
    since the volume was made."""
    if number <= refs.FIRST:
        return settings.Settings()
    return settings.read_or_default(name, partial(refs.read, store, refs.meta(name), number))
