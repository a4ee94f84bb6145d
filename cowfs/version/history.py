"""Opens versions by their ids, and walks the line of their parents. `source_names` resolves the
names that people write for versions.

Manifests are read once, verified against their id, and never change. Parents are not protected: a
missing one has no manifest in `history`, which continues with the lines that `kept_behind` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import TypeAlias

from cowfs.base.errors import AccessDeniedError, CorruptError, CowfsError, NotFoundError, UnsupportedFormatError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.format import keys
from cowfs.format.manifest import Manifest
from cowfs.store import ObjectStore
from cowfs.store.reliability.damaged import read_as
from cowfs.store.sealed import sealing_of
from cowfs.version.names.volumes import find_head

LINE_LIMIT = 1000

KeptLines: TypeAlias = Callable[[VersionId, str], list[Iterator[VersionId]]]


@dataclass(frozen=True)
class Past:
    """One step of a history. manifest None: only the id is known; the version was pruned and
    collected, or never copied to this store."""

    version: VersionId
    manifest: Manifest | None


def read_ahead(store: ObjectStore, version: VersionId) -> bytes | None:
    """For `open_version`, before it is known whether this is a cowfs store, and a sealed one. None:
    `open_version` has to read itself."""
    try:
        return store.get(keys.version(version))
    except CowfsError:
        return None


def open_version(store: ObjectStore, version: VersionId, data: bytes | None = None) -> Manifest:
    """The verified manifest. NotFoundError, CorruptError, UnsupportedFormatError. data: the result
    of `read_ahead`."""
    key = keys.version(version)

    def decode(data: bytes) -> Manifest:
        return Manifest.decode(data, version, what=f"{store.url}/{key}", sealing=sealing_of(store))

    try:
        return read_as(store, key, decode, data)
    except NotFoundError as error:
        raise NotFoundError(
            f"{store.url} has no version {version}",
            hint=f"It may have been deleted, or the locator names another store. {Command('log')} and history() list versions.",
        ) from error


def open_named(store: ObjectStore, volume: str, version: VersionId, data: bytes | None = None) -> Manifest:
    """As open_version, for a version that is named as one of `volume`. NotFoundError: the volume's
    line does not have it.

    Needs no further request if the volume itself made the version; if a fork has it from its
    origin, it needs the requests that `history` takes to find it, at most LINE_LIMIT.
    """
    manifest = open_version(store, version, data)
    if manifest.volume != volume and not _may_be_in_line(store, volume, version):
        raise NotFoundError(
            f"version {version.hex()[:12]} belongs to volume {manifest.volume!r}, not to {volume!r}",
            hint=f"Its name is {manifest.volume}@{version}. {Command('log', volume)} and history() list the versions of a volume.",
            details={"volume": manifest.volume},
        )
    return manifest


def history(store: ObjectStore, version: VersionId, kept_behind: KeptLines | None = None) -> Iterator[Past]:
    """The version and its ancestors along all parents, each once, newest first by the clocks of the
    writers: children before their parents, as far as these clocks agree. One request each.

    kept_behind: takes a version whose first parent is missing and the volume that made it, and
    returns lines of versions with which the history continues, without unreadable ones; None: the
    history ends there. An unreadable parent is an error.
    """
    newest = open_version(store, version)
    seen, missing = {version}, set[VersionId]()
    lines: dict[VersionId, Iterator[VersionId]] = {}  # the continuations, by the version last returned
    waiting = [(-newest.created_ns, 0, Past(version, newest))]

    def meet(found: Past, order: int) -> None:
        seen.add(found.version)
        if found.manifest is None:
            missing.add(found.version)
        made = -found.manifest.created_ns if found.manifest is not None else order
        heappush(waiting, (max(made, order), len(seen), found))

    while waiting:
        order, _, past = heappop(waiting)
        yield past
        parents = past.manifest.parents if past.manifest is not None else ()
        for parent in parents:
            if parent not in seen:
                meet(_past(store, parent), order)
        going_on = [lines.pop(past.version)] if past.version in lines else []
        if kept_behind is not None and past.manifest is not None and not missing.isdisjoint(parents[:1]):
            going_on += kept_behind(past.version, past.manifest.volume)
        for line in going_on:
            for each in line:
                if each not in seen and (behind := _past_if_readable(store, each)) is not None:
                    lines[each] = line
                    meet(behind, order)
                    break


def _past(store: ObjectStore, version: VersionId) -> Past:
    try:
        return Past(version, open_version(store, version))
    except NotFoundError:
        return Past(version, None)


def _past_if_readable(store: ObjectStore, version: VersionId) -> Past | None:
    try:
        return _past(store, version)
    except (AccessDeniedError, CorruptError, UnsupportedFormatError):
        return None


def _may_be_in_line(store: ObjectStore, volume: str, version: VersionId) -> bool:
    """False only if the whole line was read: it may continue behind a version that is pruned,
    damaged, of a newer cowfs, or not readable here."""
    try:
        head = find_head(store, volume)
        if head is None or head.version is None:
            return False
        for seen, past in enumerate(history(store, head.version)):
            if past.version == version or past.manifest is None or seen == LINE_LIMIT:
                return True
    except (AccessDeniedError, CorruptError, NotFoundError, UnsupportedFormatError):
        return True
    return False
