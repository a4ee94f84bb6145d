"""Copies files into and out of volumes without a mount.

The source is always a version. A bare NAME means the last one, even while the volume is mounted
here; uncommitted files are found below the mount's path. Files copied into a volume are published
as one version, or not at all: a failed copy leaves the volume unchanged. If the volume is mounted
here, the files are copied into the mount, as by `cp`, and the mount's commit publishes them
(`mount_transfer`). A volume with uncommitted work here that is not mounted is refused, because the
copy's version would contain that work.

A session in this process does the work (`session.files`, `transfer.copying`): no kernel, no daemon.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from cowfs.api import sources, stores
from cowfs.api.mounts import mount_transfer
from cowfs.api.sources import Place
from cowfs.api.transfers import copied_sources, downloading, local_paths, uploading, written_volumes
from cowfs.api.transfers.local_paths import Own
from cowfs.api.transfers.path_errors import NOT_DOWN, NOT_HERE, errors_of_ours
from cowfs.api.transfers.transfer_report import Source
from cowfs.base.errors import PurgedError
from cowfs.base.short_repr import short_repr
from cowfs.control import MountOptions, SessionSpec
from cowfs.version.commit import CommitRequest, ProgressListener
from cowfs.version.names import volumes

if TYPE_CHECKING:
    from cowfs.api.transfers.written_volumes import WrittenVolume
    from cowfs.session.files import Files
    from cowfs.transfer.copying import Copied
    from cowfs.transfer.upload.upload_reading import SourceTree


@short_repr
@dataclass(frozen=True)
class CopyReport:
    """What `Store.copy` has copied. files, directories, symlinks: their numbers. bytes: the sum of
    the files' sizes. skipped: special files, which are left out; skipped_paths: the first of them.
    unchanged: files that the target had already.

    locator: of the volume's last version; is_new: whether this call made it; both None for a copy
    to this machine, and for one into a mount, whose path is mount_path.
    """

    files: int
    directories: int
    symlinks: int
    bytes: int
    skipped: int
    unchanged: int
    skipped_paths: tuple[str, ...]
    locator: str | None
    is_new: bool | None
    mount_path: str | None

    @classmethod
    def make(
        cls, done: Counts, locator: str | None = None, *, is_new: bool | None = None, mount_path: str | None = None
    ) -> Self:
        return cls(
            done.files,
            done.directories,
            done.symlinks,
            done.bytes,
            done.skipped,
            done.unchanged,
            done.skipped_paths,
            locator,
            is_new,
            mount_path,
        )


class Counts(Protocol):
    """What reports of transfers have in common; `CopyReport` explains it."""

    @property
    def files(self) -> int: ...
    @property
    def directories(self) -> int: ...
    @property
    def symlinks(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def unchanged(self) -> int: ...
    @property
    def skipped_paths(self) -> tuple[str, ...]: ...


def copy(
    source: str | Sequence[str],
    target: str,
    request: CommitRequest,
    *,
    store: stores.Named = None,
    progress: ProgressListener | None = None,
) -> CopyReport:
    """`Store.copy`."""
    given = [source] if isinstance(source, str) else list(source)
    is_of_volume = copied_sources.are_of_volume(given, target, store)
    if not sources.is_place(target):
        target = os.path.expanduser(target)
    with ExitStack() as stack, errors_of_ours(target, NOT_DOWN):
        if is_of_volume:
            places = [sources.place(each) for each in given]
            if not sources.is_place(target):
                return CopyReport.make(_copy_out(places, target, store, progress))
            with _reading(places[0], store) as tree:
                paths, is_gathered = copied_sources.find(tree, places)
                parts = _Parts({name: (tree, at) for name, at in paths.items()}, is_gathered)
                return _publish(parts, written_volumes.find(sources.place(target), store), request, progress)
        here = [os.fsencode(os.path.expanduser(each)) for each in given]
        with errors_of_ours(os.fsdecode(here[0]), NOT_HERE):
            local = _Parts(_local_parts(stack, here), is_gathered=len(here) > 1)
        volume = written_volumes.find(sources.place(target), store)
        own = uploading.own_directories(volume.target.store.url, volume.target.working_copy.path)
        if (entry := volume.entry) is not None:
            own.append(Own(Path(entry.mount_path), f"the mount of {entry.volume}", "copy within the mount"))
        for path in here:
            local_paths.require_apart(path, own)
        return _publish(local, volume, request, progress)


@dataclass(frozen=True)
class _Parts:
    """The sources by name. is_gathered: each goes into the target under its name; otherwise there
    is one, whose contents do if it is a directory."""

    trees: Mapping[bytes, tuple[SourceTree, bytes]]
    is_gathered: bool

    def source(self) -> Source:
        """All of them as one source."""
        from cowfs.transfer.upload.gathered_tree import GatheredTree

        if self.is_gathered:
            return Source(GatheredTree(self.trees), b"", b"")
        [(name, (tree, at))] = self.trees.items()
        return Source(tree, at, name)


def _local_parts(stack: ExitStack, paths: Sequence[bytes]) -> Mapping[bytes, tuple[SourceTree, bytes]]:
    if len(paths) > 1:
        return local_paths.gather_sources(stack, paths)
    tree, at, name = local_paths.source(stack, paths[0])
    return {name: (tree, at)}


def _copy_out(places: Sequence[Place], target: str, store: stores.Named, progress: ProgressListener | None) -> Counts:
    """Copies to this machine."""
    from cowfs.transfer import copying

    found = sources.find(places[0].source, store)
    with ExitStack() as stack:
        tree = stack.enter_context(downloading.reading(found.located().resolve()))
        downloading.require_outside(os.fsencode(target), found.store.url)
        paths, is_gathered = copied_sources.find(tree, places)
        to = os.fsencode(target)
        if not is_gathered:
            [(name, at)] = paths.items()
            there, to = local_paths.target(stack, to, b"" if stat.S_ISDIR(tree.stat(at).mode) else name)
            return copying.copy(tree, at, there, to, progress, expect=tree.expect, resumes=tree)
        there, _ = local_paths.target(stack, to + b"/", b".")
        done: list[Copied] = []
        purged: list[str] = []
        for name, at in paths.items():
            try:
                done.append(copying.copy(tree, at, there, name, progress, expect=tree.expect, resumes=tree))
            except PurgedError as error:
                purged += error.details["paths"]
        if purged:
            raise copying.name_purged(purged)
        return _sum(done)


def _sum(all_of_it: Iterable[Copied]) -> Copied:
    from cowfs.transfer.copying import Copied
    from cowfs.transfer.upload.upload_plan import NAMED_SKIPPED

    done = list(all_of_it)
    counts = {
        name: sum(getattr(each, name) for each in done)
        for name in ("files", "directories", "symlinks", "bytes", "skipped", "unchanged")
    }
    paths = tuple(path for each in done for path in each.skipped_paths)
    return Copied(**counts, skipped_paths=paths[:NAMED_SKIPPED])


# -- of a store


@contextmanager
def _reading(place: Place, store: stores.Named) -> Iterator[Files]:
    from cowfs.session.opening import enter_session

    found = sources.find(place.source, store)
    version = found.located().resolve()
    spec = SessionSpec(
        store_url=found.store.url,
        volume=found.volume,
        mode="ro",
        version=version.id,
        options=replace(MountOptions(), resident=False).resolved(),
    )
    with enter_session(spec, access=found.store.access) as session:
        yield session.files


def _publish(
    parts: _Parts, volume: WrittenVolume, request: CommitRequest, progress: ProgressListener | None
) -> CopyReport:
    source, target, to = parts.source(), volume.target, volume.place.path
    if (entry := volume.entry) is not None:
        uploading.require_nothing_given(entry.volume, entry, request)
        local_paths.read_pipe(source.tree)
        wanted = mount_transfer.Wanted(to, volume.place.is_directory)
        put = mount_transfer.put(entry, source, wanted, "", progress)
        return CopyReport.make(put, mount_path=entry.mount_path)
    done, base, is_new = uploading.publish(
        target,
        source,
        to,
        request,
        progress,
        is_directory=volume.place.is_directory,
        checksum=parts.is_gathered,  # times of files of several directories are not compared with earlier ones
    )
    assert base.version_id is not None
    locator = volumes.locator(target.store.objects, target.name, base.version_id)
    return CopyReport.make(done, str(locator), is_new=is_new)
