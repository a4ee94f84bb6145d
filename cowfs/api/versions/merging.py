"""Merges branches into a volume: one version with the changes that each of them made since it
diverged from the volume.

    lease, pin ─▶ branches' manifests ─▶ merge bases ─▶ Merger (three ways, by path) ─▶ publish, with all as parents

No mount and no engine is used. File contents are read only to check whether a file was merely
appended to. The target must not be mounted here, nor have uncommitted work here. The merge waits
for another writer that ends by itself (`writer_turn`).

The branches' manifests are read after the pin is set, so that the data they name is protected
during the merge (docs/decisions/0046-merging.md).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from cowfs.api.mounts import work
from cowfs.api.stores import OpenStore
from cowfs.api.upkeep import copied_stores
from cowfs.api.versions import merge_report
from cowfs.api.versions.merge_report import MergedPath, MergeReport, Strategy
from cowfs.api.versions.writer_turn import with_turn_as_writer
from cowfs.base import config
from cowfs.base.errors import ConflictError, CowfsError, InvalidInputError, InvalidStateError, NotFoundError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.base.quantities import count
from cowfs.version.merge.conflicts import SETTLED_BY, describe_by_path
from cowfs.version.names import volumes

if TYPE_CHECKING:
    from cowfs.api.access.volume_handle import VolumeHandle
    from cowfs.api.transfers.transfer_report import Target
    from cowfs.api.versions.located_version import LocatedVersion
    from cowfs.format.manifest import Manifest
    from cowfs.index import Index
    from cowfs.store.packs import PackReader
    from cowfs.version.ancestry import Ancestry
    from cowfs.version.commit import Base, CommitRequest
    from cowfs.version.merge.conflicts import Conflict, Resolve
    from cowfs.version.merge.merge_states import Branch, Merged
    from cowfs.writer.publishing import Line

SHOWN_PATHS = 5


@dataclass(frozen=True)
class _Outcome:
    base: Base
    is_new: bool
    merged: list[LocatedVersion]
    paths: list[MergedPath]
    conflicts: list[Conflict]


def merge(
    volume: VolumeHandle,
    branches: Sequence[LocatedVersion],
    request: CommitRequest,
    *,
    strategy: Strategy = None,
    dry_run: bool = False,
) -> MergeReport:
    """`Store.merge`. A request without a message gets one that names the branches."""
    resolve = merge_report.resolver(strategy)
    if not branches:
        raise InvalidInputError("there is nothing to merge", hint="Name one branch or more.")
    volume.resolve()
    target = volume.to_upload()
    for branch in branches:
        _require_mergeable(branch, target.store)
        _warn_of_changes(branch, target.store)
    request = request.fill_message(f"Merge {', '.join(branch.name for branch in branches)}")
    if dry_run:
        return _report(volume, _try(target.store, target.name, branches, resolve))
    return _report(volume, with_turn_as_writer(volume.to_upload, partial(_publish, branches, resolve, request)))


def _report(volume: VolumeHandle, done: _Outcome) -> MergeReport:
    assert done.base.version_id is not None
    version = volume.record(done.base.head_number, done.base.version_id, is_new=done.is_new)
    return MergeReport(
        version.locator, done.is_new, [branch.locator for branch in done.merged], done.paths, done.conflicts
    )


def _require_mergeable(branch: LocatedVersion, store: OpenStore) -> None:
    if branch.folder:
        raise InvalidInputError(
            f"one folder of a version cannot be merged: {branch.locator}", hint="Merge the whole version."
        )
    if not copied_stores.is_same(branch.open_store(), store):
        raise InvalidInputError(
            f"{branch.locator} lies in another store",
            hint=f"Copy it into a fork of the target first ({Command('download', branch.locator)}, {Command('upload')}; "
            "download(), upload()).",
        )


def _warn_of_changes(branch: LocatedVersion, store: OpenStore) -> None:
    """Warns of uncommitted changes on top of a branch's last version. A user who names an older
    version knows that there are later changes."""
    with suppress(CowfsError):
        head = volumes.find_head(store.objects, branch.name)
        if head is not None and head.version is not None and head.version == branch.version:
            work.warn_of_changes(store, branch.name, "merged")


def _publish(
    branches: Sequence[LocatedVersion], resolve: Resolve, request: CommitRequest, target: Target, line: Line
) -> _Outcome:
    from cowfs.version.merge.merge_source import MergeSource

    publisher = line.publisher
    publisher.require_kept(branch.version for branch in branches)
    with ExitStack() as stack:
        merge_of = _Merge(stack, target.store, target.name, publisher.base.version_id, publisher.index, branches)
        if merge_of.merged is None:
            return _Outcome(publisher.base, False, [], [], [])
        found = merge_of.run(resolve)
        if found.failed:
            raise _refuse(found.failed)
        parents = tuple(branch.version for branch in merge_of.merged)
        source = MergeSource(found, publisher, parents, are_parents=True)
        paths = _paths(found)
        base = publisher.publish(source, request)
        return _Outcome(base, True, merge_of.merged, paths, found.conflicts)


def _try(store: OpenStore, name: str, branches: Sequence[LocatedVersion], resolve: Resolve) -> _Outcome:
    from cowfs.version.commit import Base

    head = volumes.read_head(store.objects, name)
    base = Base(head.number, head.version, None)
    with ExitStack() as stack:
        merge_of = _Merge(stack, store, name, head.version, None, branches)
        if merge_of.merged is None:
            return _Outcome(base, False, [], [], [])
        found = merge_of.run(resolve)
        return _Outcome(base, False, merge_of.merged, _paths(found), found.conflicts)


class _Merge:
    """merged: the branches not yet in the target; None: every branch is."""

    def __init__(
        self,
        stack: ExitStack,
        store: OpenStore,
        name: str,
        version: VersionId | None,
        index: Index | None,
        branches: Sequence[LocatedVersion],
    ) -> None:
        from cowfs.store.packs import PackReader
        from cowfs.version.ancestry import Ancestry

        if version is None:
            raise _no_version(name)
        self._stack = stack
        self._store = store
        self._name = name
        self._version = version
        self._packs: PackReader = PackReader(store.objects)
        self._ancestry: Ancestry = Ancestry(store.objects)
        self._opened: dict[VersionId, Index] = {version: index} if index is not None else {}
        self._bases: dict[VersionId, list[VersionId]] = {}
        self.merged = self._list_left(branches) or None

    def _list_left(self, branches: Sequence[LocatedVersion]) -> list[LocatedVersion]:
        """Each version once, without ancestors of the target or of an earlier branch in the
        list."""
        found: dict[VersionId, LocatedVersion] = {}
        for branch in branches:
            version = branch.version
            bases = self._ancestry.merge_bases(self._version, version, merged=found.keys())
            if not bases:
                self._manifest(version)
                raise InvalidStateError(
                    f"{self._name!r} and {branch.locator} have no version in common",
                    hint=f"Only forks of one version can be merged. Copy the files instead ({Command('cp')}, upload()).",
                )
            self._bases[version] = bases
            if version not in bases:
                found[version] = branch
        return list(found.values())

    def run(self, resolve: Resolve) -> Merged:
        from cowfs.version.merge.merge_steps import merge_all
        from cowfs.version.publish.prefixes import Prefixes

        assert self.merged is not None
        names = [branch.name for branch in self.merged]
        made = [
            self._branch(branch, branch.name if names.count(branch.name) == 1 else f"{branch.name}@{branch.id[:12]}")
            for branch in self.merged
        ]
        begins_with = Prefixes(self._packs).begins_with
        target = self._open(self._version)
        return merge_all(self._name, target, made, resolve, begins_with, self._stack)

    def _branch(self, branch: LocatedVersion, name: str) -> Branch:
        from cowfs.version.merge.merge_states import Branch

        version = branch.version
        base, *others = self._bases[version]
        return Branch(
            name,
            self._open(version),
            self._open(base),
            self._find_shared(base, version),
            self._find_shared(base, self._version),
            [(self._open(each), self._open_before(base, each)) for each in others],
        )

    def _open_before(self, base: VersionId, other: VersionId) -> Index | None:
        """The common ancestor of two merge bases."""
        found = self._ancestry.merge_bases(base, other)
        return self._open(found[0]) if found else None

    def _find_shared(self, one: VersionId, other: VersionId) -> int:
        common = self._ancestry.find_shared_numbering(one, other)
        return self._open(common).next_ino if common is not None else 0

    def _open(self, version: VersionId) -> Index:
        index = self._opened.get(version)
        if index is None:
            from cowfs.index import open_index
            from cowfs.version.purged_versions import naming_purged_version

            objects, manifest = self._store.objects, self._manifest(version)
            with naming_purged_version(objects, manifest.volume, version):
                index = open_index(objects, self._packs, manifest.index, cache_dir=config.cache_dir())
            self._opened[version] = self._stack.enter_context(index)
        return index

    def _manifest(self, version: VersionId) -> Manifest:
        manifest = self._ancestry.manifest(version)
        if manifest is None:
            raise NotFoundError(
                f"version {version.hex()[:12]} is gone, and is needed to merge",
                hint=f"{Command('log')} and history() show which versions are there. Copy the files instead ({Command('cp')}, upload()).",
            )
        return manifest


def _no_version(name: str) -> InvalidStateError:
    return InvalidStateError(
        f"volume {name!r} has no version yet",
        hint=f"Fork a branch under that name instead ({Command('fork')}, fork()).",
    )


def _refuse(conflicts: Sequence[Conflict]) -> ConflictError:
    by_path = describe_by_path(conflicts)
    described = [f"{path} ({said.rpartition(';')[0]})" for path, said in by_path.items()]
    more = f"; and {len(described) - SHOWN_PATHS} more" if len(described) > SHOWN_PATHS else ""
    shown = "; ".join(described[:SHOWN_PATHS])
    kinds = sorted({each.kind for each in conflicts})
    settled = "; ".join(f"{kind} by {', '.join(SETTLED_BY[kind])}" for kind in kinds)
    limit = " (union of two contents: where both have only appended)" if "union" in settled else ""
    return ConflictError(
        f"{count(len(by_path), 'path')} in conflict: {shown}{more}",
        hint=f"Nothing was published. Say what to do about them with strategy= ({Command('merge', '--strategy', 'PATTERN=HOW')}), which "
        f"settles {settled}{limit}.",
        details={"conflicts": [asdict(each) for each in conflicts]},
    )


def _paths(merged: Merged) -> list[MergedPath]:
    from cowfs.version.merge.merge_changes import becomes

    return [MergedPath("/" + os.fsdecode(path), what) for path, what in becomes(merged)]
