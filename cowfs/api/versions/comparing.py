"""Compares two versions, or a version and uncommitted work (`work`): opens their indexes and
returns the differences as `Change` objects.

No mount, session or lease is needed; file contents are not read. Versions of two stores are
compared by path and content, since inode numbers are valid only within a store. Versions of an
encrypted store can be compared only with each other, since its chunks have names of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cowfs.api import sources, stores
from cowfs.api.upkeep import copied_stores
from cowfs.api.versions.changes import Change
from cowfs.api.versions.located_version import LocatedVersion
from cowfs.base import config
from cowfs.base.errors import InvalidInputError
from cowfs.format.locator import Locator
from cowfs.version import named_changes
from cowfs.version.named_changes import join_path

if TYPE_CHECKING:
    from cowfs.format.manifest import Manifest
    from cowfs.index import Index


def changes(
    old: LocatedVersion,
    new: LocatedVersion,
    path: str | os.PathLike[str] = "/",
    *,
    times: bool = False,
    renames: bool = True,
) -> list[Change]:
    """`ROVolume.diff`. Versions that were resolved are not read again."""
    from cowfs.version.differences import compare, find_inode, neither_has

    below = sources.place(f":{os.fspath(path)}").path
    from_folder, to_folder = old.folder, new.folder
    if (old.id, from_folder) == (new.id, to_folder):
        if there := join_path(from_folder, below):
            with open_index_of(old) as index:
                if find_inode(index, there) is None:
                    raise neither_has(there)
        return []
    with (
        open_index_of(old) as a,
        open_index_of(new) as b,
    ):
        found = compare(
            a,
            b,
            shared=_find_shared(old, new, a, b),
            path=join_path(from_folder, below),
            new_path=join_path(to_folder, below),
            times=times,
            renames=renames,
        )
    return [named_changes.describe(each, len(from_folder), len(to_folder)) for each in found]


def open_index_of(version: LocatedVersion) -> Index:
    """The index of a version; the caller closes it."""
    from cowfs.version.purged_versions import naming_purged_version

    store = version.open_store()
    with naming_purged_version(store.objects, version.name, version.version):
        return _index(store, version.read_manifest())


def _index(store: stores.OpenStore, manifest: Manifest) -> Index:
    """The index of a version; the caller closes it."""
    from cowfs.index import open_index
    from cowfs.store.packs import PackReader

    return open_index(store.objects, PackReader(store.objects), manifest.index, cache_dir=config.cache_dir())


def path_changes(
    version: LocatedVersion, path: str | os.PathLike[str]
) -> Iterator[tuple[LocatedVersion, list[Change]]]:
    """`ROVolume.history` of a path below the version's folder. The paths of the changes are from
    the root."""
    from cowfs.version.path_history import path_history
    from cowfs.version.retention.kept_behind import KeptBehind

    store = version.open_store().objects
    there = join_path(version.folder, sources.place(f":{os.fspath(path)}").path)
    behind = KeptBehind(store, version.name)
    for step in path_history(store, version.version, there, cache_dir=config.cache_dir(), kept_behind=behind):
        named = Locator(version.named.store, version.name, step.version)
        changed = LocatedVersion(named, manifest=step.manifest, storage=version.storage)
        yield changed, [named_changes.describe(each, 0, 0) for each in step.found]


def _find_shared(old: LocatedVersion, new: LocatedVersion, a: Index, b: Index) -> int:
    """Inode numbers below this one mean the same file in both."""
    from cowfs.version.ancestry import Ancestry

    store, other = old.open_store(), new.open_store()
    if not copied_stores.is_same(store, other):
        _require_plain(store, other)
        return 0
    ancestry = Ancestry(store.objects)
    common = ancestry.find_shared_numbering(old.version, new.version)
    if common in (old.version, new.version):
        return (a if common == old.version else b).next_ino
    manifest = ancestry.manifest(common) if common is not None else None
    if manifest is None:
        return 0
    with _index(store, manifest) as base:
        return base.next_ino


def _require_plain(*opened_stores: stores.OpenStore) -> None:
    from cowfs.format.sealing import PLAIN
    from cowfs.store.sealed import sealing_of

    for each in opened_stores:
        if sealing_of(each.objects) is not PLAIN:
            raise InvalidInputError(
                f"{each.url} is encrypted: its versions can only be compared with each other",
                hint="Compare two versions of that store; or download both, and compare the directories.",
            )
