"""What somebody has seen of a volume who is about to open it for writing: handed to whoever opens
it, so that it need not be asked for again.

    list of volumes/<name>/           shows the newest head and the newest lease
    head n ‖ heartbeat of the lease ‖ the volume's record, if it was ever changed

A list may be late, so none of it is the last word: the opener looks for a newer head behind its
lease and pin, and that no newer lease is there only its put says. Three or four requests, two in a
row.
"""

from __future__ import annotations

from functools import partial

from cowfs.errors import CorruptError, InvalidInputError, NotFoundError
from cowfs.format import keys
from cowfs.store import ObjectInfo, ObjectStore, leases, refs
from cowfs.store.beside import beside
from cowfs.store.damaged import read_as
from cowfs.version import quotas
from cowfs.version.volumes import Head, Seen, head_of, read_head

PAGE = 1000
Shown = list[ObjectInfo] | None
"""The beginning of a list; None: the store has no lists."""


def shown(store: ObjectStore, name: str) -> Shown:
    """One request. It may be made before it is known whether there is a cowfs store."""
    try:
        return store.list(keys.volume(name), limit=PAGE)
    except InvalidInputError:
        return None


def read_seen(store: ObjectStore, name: str, page: Shown) -> Head:
    """As `volumes.read_head`, of a volume that is opened next; perhaps not the newest head."""
    number, epoch = _newest(page or [], keys.head_prefix(name)), _newest(page or [], keys.lease_prefix(name))
    if page is None or number < refs.FIRST:
        return read_head(store, name)
    is_whole = len(page) < PAGE
    described = _newest(page, keys.meta_prefix(name)) if is_whole else 0
    (record, heartbeat), quota_bytes = beside(
        lambda: beside(partial(refs.read, store, refs.head(name), number), partial(_released, store, name, epoch)),
        partial(_quota, store, name, described),
    )
    head = head_of(name, number, record)
    if head.is_void or head.is_deleted:  # nothing to be said by a list that may be late
        return read_head(store, name)
    seen = Seen(
        {keys.head(name, number): record.encode(), **heartbeat},
        lease_epoch=epoch if is_whole or epoch >= refs.FIRST else None,
        quota_bytes=quota_bytes if is_whole else None,
    )
    return head_of(name, number, record, seen)


def _newest(page: list[ObjectInfo], prefix: str) -> int:
    return max((keys.parse_number(info.key) or 0 for info in page if info.key.startswith(prefix)), default=0)


def _released(store: ObjectStore, name: str, epoch: int) -> dict[str, bytes]:
    """The heartbeat of a lease that was given back, which stays as it is; nothing of any other."""
    if epoch < refs.FIRST:
        return {}
    key = keys.heartbeat(name, epoch)

    def released(data: bytes) -> dict[str, bytes]:
        return {key: data} if leases.heartbeat_of(name, epoch, data).released else {}

    try:
        return read_as(store, key, released)
    except (NotFoundError, CorruptError):  # as `leases` takes it: nothing is known of it
        return {}


def _quota(store: ObjectStore, name: str, number: int) -> int:
    """Of the volume's record with that number, which is asked for only where anybody has changed it
    since the volume was made."""
    if number <= refs.FIRST:
        return quotas.NONE
    return quotas.found(name, partial(refs.read, store, refs.meta(name), number))
