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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from cowfs.api import sources, stores
from cowfs.api.mounts import mount_transfer
from cowfs.api.mounts.base import mount_of
from cowfs.api.provenance import commit_request
from cowfs.api.sources import Place
from cowfs.api.transfers import downloading, local_paths, uploading
from cowfs.api.transfers.local_paths import Own
from cowfs.api.transfers.path_errors import NOT_DOWN, NOT_HERE, errors_of_ours
from cowfs.api.transfers.transfer_report import Source, Target
from cowfs.api.upkeep import copied_stores
from cowfs.base.errors import InvalidInputError, ReadOnlyError
from cowfs.base.hints import Command
from cowfs.control import MountOptions, SessionSpec
from cowfs.machine.registry import MountEntry
from cowfs.version.commit import CommitRequest, ProgressListener
from cowfs.version.names import volumes

if TYPE_CHECKING:
    from cowfs.session.files import Files
    from cowfs.transfer.copying import Copied

TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


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
    source: str, target: str, *, store: stores.Named = None, message: str = "", progress: ProgressListener | None = None
) -> CopyReport:
    """`Store.copy`."""
    request = commit_request(message)
    if not sources.is_place(source) and not sources.is_place(target):
        bare = next((each for each in (source, target) if "/" not in each), "NAME")
        raise InvalidInputError(
            f"both {source!r} and {target!r} are paths of this machine here",
            hint=f"Write SOURCE:PATH for a volume's files, {bare}: for all of them. For two local paths there is cp.",
        )
    source, target = (each if sources.is_place(each) else os.path.expanduser(each) for each in (source, target))
    with ExitStack() as stack, errors_of_ours(target, NOT_DOWN):
        if sources.is_place(source) and not sources.is_place(target):
            return CopyReport.make(_copy_out(sources.place(source), target, store, progress))
        if sources.is_place(source):
            place = sources.place(source)
            files = stack.enter_context(_reading(place, store))
            with errors_of_ours(source, sources.listing_hint(place)):
                at, name = files.follow(place.path), place.path.rpartition(b"/")[2]
                _require_copyable(source, files.stat(at).mode)
            return _publish(Source(files, at, name), _writable(sources.place(target), store), request, progress)
        with errors_of_ours(source, NOT_HERE):
            local = Source(*local_paths.source(stack, os.fsencode(source)))
        volume = _writable(sources.place(target), store)
        own = uploading.own_directories(volume.target.store.url, volume.target.working_copy.path)
        if (entry := volume.entry) is not None:
            own.append(Own(Path(entry.mount_path), f"the mount of {entry.volume}", "copy within the mount"))
        local_paths.require_apart(os.fsencode(source), own)
        return _publish(local, volume, request, progress)


def _copy_out(place: Place, target: str, store: stores.Named, progress: ProgressListener | None) -> Copied:
    """Copies to this machine."""
    from cowfs.transfer import copying

    found = sources.find(place.source, store)
    with ExitStack() as stack:
        tree = stack.enter_context(downloading.reading(found.located().resolve()))
        downloading.require_outside(os.fsencode(target), found.store.url)
        with errors_of_ours(place.source, sources.listing_hint(place)):
            at = downloading.followed(tree, place.path)
            mode = tree.stat(at).mode
        _require_copyable(f"{place.source}:{os.fsdecode(place.path)}", mode)
        name = b"" if stat.S_ISDIR(mode) else place.path.rpartition(b"/")[2]
        there, to = local_paths.target(stack, os.fsencode(target), name)
        return copying.copy(tree, at, there, to, progress, expect=tree.expect, resumes=tree)


def _require_copyable(source: str, mode: int) -> None:
    if stat.S_IFMT(mode) not in TYPES:
        raise local_paths.not_copied(source)


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
    source: Source, volume: _Writable, request: CommitRequest, progress: ProgressListener | None
) -> CopyReport:
    if (entry := volume.entry) is not None:
        uploading.require_no_message(entry.volume, entry, request.message)
        local_paths.read_pipe(source.tree)
        wanted = mount_transfer.Wanted(volume.place.path, volume.place.is_directory)
        put = mount_transfer.put(entry, source, wanted, "", progress)
        return CopyReport.make(put, mount_path=entry.mount_path)
    done, base, is_new = uploading.publish(
        volume.target, source, volume.place.path, request, progress, is_directory=volume.place.is_directory
    )
    assert base.version_id is not None
    locator = volumes.locator(volume.target.store.objects, volume.target.name, base.version_id)
    return CopyReport.make(done, str(locator), is_new=is_new)


@dataclass(frozen=True)
class _Writable:
    """A volume, and the target path in it. entry: its mount on this machine."""

    place: Place
    target: Target
    entry: MountEntry | None


def _writable(place: Place, store: stores.Named) -> _Writable:
    """The volume, if this process may write to it."""
    sources.in_named_store(place.source, store, to_write=True)
    found = sources.find(place.source, store)
    if found.head is None:
        raise ReadOnlyError(
            f"{place.source} is a version, and a version never changes",
            hint=f"Copy to a volume, NAME:PATH; a fork of the version is one ({Command('fork')}, fork()).",
        )
    working_copy = copied_stores.locate(found.store, found.volume)
    target = Target(found.volume, found.store, working_copy)
    entry = copied_stores.find_mount(found.store, found.volume)
    if entry is None or not mount_of(entry).is_there():
        uploading.require_not_mounted(target, place.path)
        entry = None
    return _Writable(place, target, entry)
