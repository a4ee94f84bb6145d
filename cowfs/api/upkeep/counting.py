"""The bytes of the store that versions, volumes and owners need. `maintain.stored_bytes` counts
them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from cowfs.api import sources, stores
from cowfs.base import config
from cowfs.base.errors import InvalidInputError
from cowfs.base.short_repr import short_repr
from cowfs.version.commit import ProgressListener
from cowfs.version.names import described

if TYPE_CHECKING:
    from cowfs.api.stores import OpenStore
    from cowfs.maintain.kept_versions import KeptVersion
    from cowfs.maintain.stored_report import StoredBytes

By = Literal["version", "volume", "owner", "store"]


@short_repr
@dataclass(frozen=True)
class StoredReport:
    """The bytes of a store that each group needs. by: what a group is."""

    store_url: str
    by: By
    groups: list[StoredBytes]


def counted(
    source: str | None, named: stores.Named, by: By | None = None, progress: ProgressListener | None = None
) -> StoredReport:
    """`Store.stored_bytes`. by None: the versions of a source, else the volumes."""
    from cowfs.maintain.kept_versions import find_kept_versions
    from cowfs.maintain.stored_bytes import count

    chosen: By = by or ("version" if source is not None else "volume")
    if chosen not in get_args(By):
        raise InvalidInputError(f"{by!r} is nothing to count by", hint=f"Use one of {', '.join(get_args(By))}.")
    found = None
    if source is not None:
        if sources.place(source).path:
            raise InvalidInputError(f"{source} is one folder", hint="Give the whole volume or version.")
        found = sources.find(source, named)
    store = found.store if found is not None else stores.open_store(named)
    kept = find_kept_versions(store.objects)
    wanted = kept
    if found is not None:
        is_volume = found.head is not None
        wanted = [each for each in kept if (found.volume in each.volumes if is_volume else each.id == found.version)]
    groups = _groups(store, wanted, chosen, found.volume if found is not None else None)
    found_groups = count(store.objects, kept, groups, config.cache_dir(), progress or (lambda _: None))
    if chosen == "volume":
        deleted = frozenset[str]().union(*(each.deleted for each in kept))
        found_groups = [replace(each, is_deleted=each.group in deleted) for each in found_groups]
    return StoredReport(store.url, chosen, found_groups)


def _groups(
    store: OpenStore, versions: Sequence[KeptVersion], by: By, volume: str | None
) -> dict[str, list[KeptVersion]]:
    groups: dict[str, list[KeptVersion]] = {store.url: []} if by == "store" else {}
    owners: dict[str, str] = {}
    for version in versions:
        names: tuple[str, ...] = version.volumes if volume is None else (volume,)
        if by == "owner":
            for name in names:
                if name not in owners:
                    meta = described.read(store.objects, name)
                    owners[name] = meta.owner if meta is not None else ""
            names = tuple(dict.fromkeys(owners[name] for name in names))
        elif by == "version":
            names = (version.id.hex(),)
        elif by == "store":
            names = (store.url,)
        for name in names:
            groups.setdefault(name, []).append(version)
    return dict(sorted(groups.items())) if by != "version" else groups
