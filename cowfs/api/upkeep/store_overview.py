"""One view of a store: its volumes as a tree of forks, who writes to them, how many bytes they
take, and what a collection would free. Nothing is written.

The volumes cost six requests each. Bytes, and the plan of a collection, take the index of every
version that the store keeps. They are counted as long as that is quick, unless the caller says
otherwise; blocks of indexes that were read stay in the cache, so a later call gets further.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from cowfs.api import stores
from cowfs.api.mounts import overview
from cowfs.api.mounts.overview import UNREADABLE, VOLUMES_AT_ONCE, VolumeSummary
from cowfs.api.stores import OpenStore
from cowfs.api.upkeep import collecting, counting
from cowfs.api.upkeep.collect_report import GcReport
from cowfs.base import clock
from cowfs.base.errors import CowfsError, NotFoundError
from cowfs.base.quantities import natural_key
from cowfs.base.short_repr import has_card, short_repr
from cowfs.base.thread_pool import Helpers
from cowfs.format.locator import Locator
from cowfs.maintain.stored_report import StoredBytes
from cowfs.store import store_names
from cowfs.store.refs import refs
from cowfs.version.commit import Progress, ProgressListener

QUICK_S = 3.0
MOST_HEADS = 2000
"""With more heads, only finding the versions that the store keeps is not quick."""


@has_card
@dataclass(frozen=True)
class VolumeInTree:
    """A volume of a store. forked_from: the version that it was made from, as VOLUME@ID; None: it
    was not forked. depth: the number of volumes above it in the tree, which are those that it was
    forked from, as far as the store has them. stored_bytes, unique_bytes: what it takes of the
    store, and how much of that no other volume needs; None: not counted."""

    volume: VolumeSummary
    forked_from: str | None
    depth: int
    stored_bytes: int | None = None
    unique_bytes: int | None = None


@short_repr
@dataclass(frozen=True)
class StoreOverview:
    """store_names: the store's names on this machine. volumes: each before its forks, in natural
    order. deleted_volumes: what deleted volumes take that can still be restored. is_counted:
    whether bytes were counted; if not, stored_bytes and garbage are None. stored_bytes: of all
    versions together. garbage: what a collection would delete now. problems: why something is
    unknown. purged_count: versions that were purged as a whole, which take nothing."""

    store_url: str
    store_names: list[str]
    volumes: list[VolumeInTree]
    deleted_volumes: list[StoredBytes]
    is_counted: bool
    stored_bytes: int | None
    garbage: GcReport | None
    problems: list[str]
    purged_count: int = 0


def look(
    store: stores.Named, *, count_bytes: bool | None = None, progress: ProgressListener | None = None
) -> StoreOverview:
    """`Store.overview`."""
    opened = stores.open_store(store)
    found = overview.volumes_of(store)
    with Helpers(VOLUMES_AT_ONCE, name="cowfs-volumes") as pool:
        sources = dict(
            zip((each.name for each in found), pool.map(lambda each: _source(opened, each), found), strict=True)
        )
    tree = list(_tree(found, sources))
    names = [each.name for each in store_names.list_stores() if _is_named(each.name, opened)]
    nothing = StoreOverview(opened.url, names, tree, [], False, None, None, [])
    is_quick = sum(each.head_number for each in found) <= MOST_HEADS
    if count_bytes is False or (count_bytes is None and not is_quick):
        return nothing
    try:
        return _count(store, nothing, _Deadline(progress, None if count_bytes else QUICK_S))
    except _TooLong:
        return nothing
    except UNREADABLE as error:
        return replace(nothing, problems=[f"Bytes cannot be counted: {error.message}"])


class _TooLong(Exception):
    """Counting is not quick."""


class _Deadline:
    """A listener that ends a count when it has taken limit_s; None: it may take as long as it
    takes."""

    def __init__(self, progress: ProgressListener | None, limit_s: float | None) -> None:
        self._progress = progress
        self._limit_s = limit_s
        self._began_s = clock.monotonic_s()

    def __call__(self, progress: Progress) -> None:
        if self._limit_s is not None and clock.monotonic_s() - self._began_s > self._limit_s:
            raise _TooLong
        if self._progress is not None:
            self._progress(progress)


def _count(store: stores.Named, found: StoreOverview, listener: _Deadline) -> StoreOverview:
    stored = {each.group: each for each in counting.counted(None, store, "volume", listener).groups}
    listener(Progress("versions", 0, 0))
    (whole,) = counting.counted(None, store, "store", listener).groups
    garbage, problems = None, list[str]()
    try:
        garbage = collecting.gc(store, dry_run=True, plan=None)
    except CowfsError as error:
        problems.append(f"What a collection would free is not known: {error.message}")
    tree = [
        replace(each, stored_bytes=own.stored_bytes, unique_bytes=own.unique_bytes)
        if (own := stored.get(each.volume.name)) is not None
        else replace(each, stored_bytes=0, unique_bytes=0)
        for each in found.volumes
    ]
    deleted = [each for each in stored.values() if each.is_deleted]
    return replace(
        found,
        volumes=tree,
        deleted_volumes=deleted,
        is_counted=True,
        stored_bytes=whole.stored_bytes,
        garbage=garbage,
        problems=problems,
        purged_count=whole.purged_count,
    )


def _source(store: OpenStore, volume: VolumeSummary) -> str | None:
    """The version that a fork was made from; None also if the first head cannot be read."""
    if volume.head_number == 0:
        return None
    with suppress(*UNREADABLE, NotFoundError):
        first = refs.read(store.objects, refs.head(volume.name), refs.FIRST)
        if first.kind == "fork" and first.source is not None and first.version is not None:
            return f"{Locator.parse(first.source).volume}@{first.version.hex()}"
    return None


def _tree(volumes: Sequence[VolumeSummary], sources: dict[str, str | None]) -> Iterator[VolumeInTree]:
    known = {each.name: each for each in volumes}
    below: dict[str, list[str]] = {}
    for name, source in sources.items():
        above = (source or "").partition("@")[0]
        below.setdefault(above if above in known and above != name else "", []).append(name)
    shown: set[str] = set()
    for root in ("", *sorted(known, key=natural_key)):  # forks in a circle, after a name was used again
        waiting = [
            (name, 0) for name in sorted(below.get("", []) if not root else [root], key=natural_key, reverse=True)
        ]
        while waiting:
            name, depth = waiting.pop()
            if name not in shown:
                shown.add(name)
                yield VolumeInTree(known[name], sources[name], depth)
                waiting += [(each, depth + 1) for each in sorted(below.get(name, []), key=natural_key, reverse=True)]


def _is_named(name: str, store: OpenStore) -> bool:
    with suppress(CowfsError):
        return stores.canonical_url(name) == store.url
    return False
