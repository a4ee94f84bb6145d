"""The versions that a store keeps: those named by tags and by heads that are not pruned.

Versions of a deleted or void volume are included only while they exist: they may have been
collected. All others must exist. If records are damaged and a caller wants the rest anyway, the
damaged records are taken to say whatever is possible: no version is reported as missing that may
have been deleted or pruned.

Requests: two lists and one read of each record for each volume, and each manifest once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import partial

from cowfs.base.errors import CorruptError, NotFoundError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import VersionId
from cowfs.base.thread_pool import Helpers
from cowfs.format import keys
from cowfs.format.manifest import Manifest
from cowfs.store import ObjectStore
from cowfs.store.contract import list_carefully
from cowfs.store.refs import refs
from cowfs.version.history import open_version
from cowfs.version.names import tags
from cowfs.version.names.volumes import require_first_head, volume_names
from cowfs.version.retention import pruned

THREADS = 16


@dataclass(frozen=True)
class KeptVersion:
    """volumes: those whose heads or tags name it; deleted: the deleted ones among them. manifest
    None: it cannot be read, for the reason in `problem`."""

    id: VersionId
    volumes: tuple[str, ...]
    manifest: Manifest | None
    problem: str = ""
    deleted: frozenset[str] = frozenset()


@dataclass
class _Named:
    volumes: dict[str, bool] = field(default_factory=dict)
    """By volume: whether it was deleted."""
    must_be_there: bool = False


def find_kept_versions(store: ObjectStore, *, tell: refs.Tell | None = None) -> list[KeptVersion]:
    """Oldest volume names first; each version once. tell: called with the error for damaged heads,
    tags and pruned records; None: raises CorruptError."""
    list_carefully(store)
    named: dict[VersionId, _Named] = {}
    for name in volume_names(store):
        for version, is_deleted, must_be_there in _find_named(store, name, tell):
            found = named.setdefault(version, _Named())
            found.volumes[name] = is_deleted
            found.must_be_there |= must_be_there
    with Helpers(THREADS, name="cowfs-versions") as threads:
        opened = threads.map(lambda each: _open_version(store, *each), named.items())
        return [version for version in opened if version is not None]


def one_version(store: ObjectStore, volume: str, version: VersionId) -> KeptVersion:
    found = _open_version(store, version, _Named({volume: False}, must_be_there=True))
    assert found is not None
    return found


def _find_named(store: ObjectStore, volume: str, tell: refs.Tell | None) -> Iterator[tuple[VersionId, bool, bool]]:
    """Yields versions, each with whether the volume was deleted and whether the version must
    exist."""
    lost: list[CorruptError] = []
    line = refs.history(store, refs.head(volume), tell=None if tell is None else lost.append)  # newest first
    if not line and not lost:
        _require_head(store, volume, None if tell is None else lost.append)
    hidden = _read_pruned(store, volume, tell)
    last = max((keys.parse_number(error.details["key"]) or 0 for error in lost), default=0)
    newest = line[0] if line and line[0][0] > last else None  # None: no head, or it is damaged
    is_deleted = newest is not None and newest[1].kind == "delete"
    must_be_there = newest[1].kind not in ("delete", "void") if newest is not None else not lost
    for number, head in line:
        is_newest = newest is not None and number == newest[0]
        if head.version is not None and (is_newest or hidden is None or not hidden.has(number)):
            yield head.version, is_deleted, must_be_there and (is_newest or hidden is not None)
    for tag in tags.all_tags(store, volume, tell=tell):
        yield tag.version, is_deleted, must_be_there
    for error in lost:
        assert tell is not None
        tell(error)


def _require_head(store: ObjectStore, volume: str, tell: refs.Tell | None) -> None:
    try:
        require_first_head(store, volume)
    except CorruptError as error:
        if tell is None:
            raise
        tell(error)


def _read_pruned(store: ObjectStore, volume: str, tell: refs.Tell | None) -> pruned.Pruned | None:
    """None: the record is damaged."""
    try:
        return pruned.read(store, volume)
    except CorruptError as error:
        if tell is None:
            raise
        tell(error)
        return None


def _open_version(store: ObjectStore, version: VersionId, named: _Named) -> KeptVersion | None:
    kept = partial(
        KeptVersion, version, tuple(named.volumes), deleted=frozenset(filter(named.volumes.get, named.volumes))
    )
    try:
        return kept(open_version(store, version))
    except NotFoundError:
        return kept(None, "its manifest is gone") if named.must_be_there else None
    except CorruptError as error:
        return kept(None, error.message)
