"""The versions that a store keeps: those that heads which are not pruned, and tags, name.

A deleted or void volume's versions are looked at as long as they are there: they may have been
collected. All others must be there.

Requests: two lists and one read of each record for each volume, and each manifest once.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from cowfs.errors import CorruptError, NotFoundError
from cowfs.format.heads import HeadKind
from cowfs.format.manifest import Manifest
from cowfs.ids import VersionId
from cowfs.store import ObjectStore, refs
from cowfs.store.contract import list_carefully
from cowfs.version import pruned, tags
from cowfs.version.history import open_version
from cowfs.version.volumes import volume_names

THREADS = 16


@dataclass(frozen=True)
class KeptVersion:
    """volumes: those whose heads or tags name it; deleted: of these, that were deleted. manifest
    None: it cannot be read, for the reason in `problem`."""

    id: VersionId
    volumes: tuple[str, ...]
    manifest: Manifest | None
    problem: str = ""
    deleted: frozenset[str] = frozenset()


@dataclass
class _Named:
    volumes: dict[str, bool] = field(default_factory=dict)
    """Whether it was deleted."""
    must_be_there: bool = False


def kept_versions(store: ObjectStore) -> list[KeptVersion]:
    """Oldest volume names first; each version once."""
    list_carefully(store)
    named: dict[VersionId, _Named] = {}
    for name in volume_names(store):
        for version, newest in _named_by(store, name):
            found = named.setdefault(version, _Named())
            found.volumes[name] = newest == "delete"
            found.must_be_there |= newest not in ("delete", "void")
    with ThreadPoolExecutor(THREADS, thread_name_prefix="cowfs-versions") as threads:
        opened = threads.map(lambda each: _opened(store, *each), named.items())
        return [version for version in opened if version is not None]


def one_version(store: ObjectStore, volume: str, version: VersionId) -> KeptVersion:
    found = _opened(store, version, _Named({volume: False}, must_be_there=True))
    assert found is not None
    return found


def _named_by(store: ObjectStore, volume: str) -> Iterator[tuple[VersionId, HeadKind]]:
    """With the kind of the volume's newest head."""
    hidden = pruned.read(store, volume)
    line = refs.history(store, refs.head(volume))  # newest first
    newest: HeadKind = line[0][1].kind if line else "create"
    for place, (number, head) in enumerate(line):
        if head.version is not None and (place == 0 or not hidden.has(number)):
            yield head.version, newest
    for tag in tags.all_tags(store, volume):
        yield tag.version, newest


def _opened(store: ObjectStore, version: VersionId, named: _Named) -> KeptVersion | None:
    kept = partial(
        KeptVersion, version, tuple(named.volumes), deleted=frozenset(filter(named.volumes.get, named.volumes))
    )
    try:
        return kept(open_version(store, version))
    except NotFoundError:
        return kept(None, "its manifest is gone") if named.must_be_there else None
    except CorruptError as error:
        return kept(None, error.message)
