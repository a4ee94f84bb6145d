"""Finds when volumes of a store were last used, and what keeps an unused one from being deleted.
Writes nothing.

    volumes/<name>/head, lease, heartbeat    the newest object's time is a use
    volumes/<name>/lease                     one that is held keeps the volume
    volumes/<name>/tags                      any tag keeps it
    pins/                                    a pin of the volume is a use when it was last renewed; one that lives keeps it,
                                             and so does kept work

What cannot be read is an error, so that nothing counts as absent that was only not seen. Pins and
heads are read as for a collection (`collect.roots`). What only this machine knows (mounts, working
copies, when a volume was last mounted) is the caller's to look at.
"""

from __future__ import annotations

from collections.abc import Collection

from cowfs.base.fast_dataclass import dataclass
from cowfs.format import keys
from cowfs.maintain.collect.roots import FoundPin, RootReader
from cowfs.store import ObjectStore
from cowfs.store.refs import leases
from cowfs.version.names.tags import all_tags
from cowfs.version.names.volumes import Head, find_head


@dataclass(frozen=True)
class Use:
    """head: the newest; None: there is no such volume. last_ns: the last use that the store shows,
    by its clock. kept_by: what keeps the volume, in words."""

    volume: str
    head: Head | None
    last_ns: int
    kept_by: tuple[str, ...]


def find_uses(store: ObjectStore, volumes: Collection[str], now_ns: int) -> dict[str, Use]:
    """UnavailableError, CorruptError, AccessDeniedError: something cannot be read. now_ns: the
    store's time."""
    roots = RootReader(store)
    pins = roots.read().pins
    return {
        volume: _find_use(store, volume, [pin for pin in pins if pin.record.volume == volume], now_ns)
        for volume in volumes
    }


def _find_use(store: ObjectStore, volume: str, pins: Collection[FoundPin], now_ns: int) -> Use:
    head = find_head(store, volume)
    if head is None:
        return Use(volume, None, 0, ())
    kept_by = [f"tag {tag.name}" for tag in all_tags(store, volume)]
    lease = leases.read(store, volume, now_ns=now_ns)
    if lease is not None and lease.state == "held":
        owner = f" by {lease.holder.user}@{lease.holder.host}" if lease.holder is not None else ""
        kept_by.append(f"it is written to{owner}")
    for pin in pins:
        if pin.record.kind != "dead" and not pin.is_expired(now_ns):
            what = "uncommitted work" if pin.record.kind == "hold" else f"a {pin.record.kind}"
            kept_by.append(f"{what} of {pin.record.owner}")
    times = [info.mtime_ns for info in store.list(keys.VOLUMES + volume + "/") if _is_use(volume, info.key)]
    if not times:  # not even its newest head is shown
        times.append(now_ns)
    times += [pin.mtime_ns for pin in pins]
    return Use(volume, head, max(times), tuple(kept_by))


def _is_use(volume: str, key: str) -> bool:
    """Not a changed setting, and not a pruning, which a timer does."""
    number = keys.parse_number(key)
    return number is not None and key in (
        keys.head(volume, number),
        keys.lease(volume, number),
        keys.heartbeat(volume, number),
    )
