"""Files into and out of volumes without a mount: list, read, copy.

Whatever is read is a version: of a bare NAME the last one, also while the volume is mounted here;
what is not committed lies below the mount's path. What is copied into a volume is published as one
version, or not at all: a copy that fails leaves the volume as it was. A volume that is mounted here,
or has uncommitted work here, is refused, since the copy's version would have that work in it.

A session in this process does the work (`session.files`, `session.copying`): no kernel, no daemon.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cowfs.api import local_paths, sources, stores, uploading
from cowfs.api.path_errors import NOT_DOWN, NOT_HERE, errors_of_ours
from cowfs.api.provenance import commit_request
from cowfs.api.ro_volume import ROVolume
from cowfs.api.sources import Place
from cowfs.api.transfer_report import Target
from cowfs.api.uploading import Source
from cowfs.control import MountOptions, SessionSpec
from cowfs.errors import (
    InvalidInputError,
    ReadOnlyError,
)
from cowfs.format.locator import Locator
from cowfs.machine.working_copy import WorkingCopy, working_root
from cowfs.version import volumes
from cowfs.version.commit import CommitRequest, ProgressListener

if TYPE_CHECKING:
    from cowfs.native import Attr
    from cowfs.session.copying import Copied, SourceTree, TargetTree
    from cowfs.session.files import Files

ZEROS_BYTES = 1 << 20
TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


@dataclass(frozen=True)
class FileSummary:
    """One entry. type: file, directory, symlink or special. mode: with the bits of its type.
    target: where a link leads."""

    name: str
    type: str
    mode: int
    size: int
    mtime_ns: int
    target: str | None


@dataclass(frozen=True)
class Listing:
    """What is at a path of a version, sorted by name: the entries of a directory, or the one thing
    that is there."""

    locator: str
    path: str
    entries: list[FileSummary]


@dataclass(frozen=True)
class Transfer:
    """What was copied, and the version it was published as; None for a copy to this machine."""

    copied: Copied
    version: ROVolume | None


def listing(text: str, store: stores.Named) -> Listing:
    """SOURCE[:PATH]. A link that is named is followed."""
    place = sources.place(text)
    with _reading(place, store) as (files, version), errors_of_ours(text, _of_volume(place)):
        path = files.follow(place.path)
        attr = files.stat(path)
        name = place.path.rpartition(b"/")[2]
        found = files.list(path) if stat.S_ISDIR(attr.mode) else [(name, attr)]
        entries = [_summary(files, path, name, each) for name, each in found]
        return Listing(version.locator, os.fsdecode(place.path), entries)


def contents(text: str, store: stores.Named) -> Generator[bytes]:
    """The bytes of SOURCE:PATH, piece by piece. A link that is named is followed. Close it when it
    is not read to its end."""
    place = sources.place(text)
    if not place.path:
        raise InvalidInputError(f"{text!r} names no file", hint="Give SOURCE:PATH, or LOCATOR/PATH.")
    with _reading(place, store) as (files, _), errors_of_ours(text, _of_volume(place)):
        path = files.follow(place.path)
        if stat.S_ISDIR(files.stat(path).mode):
            raise InvalidInputError(
                f"{text} is a directory",
                hint="`cowfs ls` (listdir() of a mount) shows what is in it, `cowfs cp` copies it.",
            )
        done = 0
        with closing(files.pieces(path)) as pieces:
            for offset, piece in pieces:
                for hole in range(done, offset, ZEROS_BYTES):
                    yield bytes(min(ZEROS_BYTES, offset - hole))
                yield piece
                done = offset + len(piece)


def copy(
    source: str, target: str, *, store: stores.Named = None, message: str = "", progress: ProgressListener | None = None
) -> Transfer:
    """Copies a file, or what is in a directory. Either side is SOURCE:PATH, LOCATOR/PATH or a path
    of this machine; one of them is none of this machine.

    The contents of a directory go into the target directory. A file goes into the target if that is
    a directory or ends in "/", and takes its name else. What is missing of the target is made. A
    local pipe that is named as the source is read to its end.
    progress hears of the stage "copy", then of the commit.
    """
    request = commit_request(message)
    if not sources.is_place(source) and not sources.is_place(target):
        raise InvalidInputError(
            f"neither {source!r} nor {target!r} is a volume or a version",
            hint="Write SOURCE:PATH for a volume's files; NAME: is its root. For two local paths there is cp.",
        )
    with ExitStack() as stack, errors_of_ours(target, NOT_DOWN):
        if sources.is_place(source):
            place = sources.place(source)
            files, version = stack.enter_context(_reading(place, store))
            if not sources.is_place(target):
                own = uploading.own_directories(Locator.parse(version.locator).store_url, working_root())
                local_paths.require_outside(os.fsencode(target), own)
            with errors_of_ours(source, _of_volume(place)):
                at, name = files.follow(place.path), place.path.rpartition(b"/")[2]
                mode = files.stat(at).mode
            if stat.S_IFMT(mode) not in TYPES:
                raise local_paths.not_copied(source)
            if not sources.is_place(target):
                there, to = local_paths.target(stack, os.fsencode(target), b"" if stat.S_ISDIR(mode) else name)
                return Transfer(_copied(files, at, there, to, progress), None)
            return _publish(Source(files, at, name), _writable(sources.place(target), store), request, progress)
        with errors_of_ours(source, NOT_HERE):
            local = Source(*local_paths.source(stack, os.fsencode(source)))
        volume = _writable(sources.place(target), store)
        own = uploading.own_directories(volume.target.store.url, volume.target.working_copy.path)
        local_paths.require_apart(os.fsencode(source), own)
        return _publish(local, volume, request, progress)


def _copied(tree: SourceTree, at: bytes, there: TargetTree, to: bytes, progress: ProgressListener | None) -> Copied:
    from cowfs.session import copying

    return copying.copy(tree, at, there, to, progress)


# -- of a store


@contextmanager
def _reading(place: Place, store: stores.Named) -> Iterator[tuple[Files, ROVolume]]:
    from cowfs.session.opening import opened

    found = sources.find(place.source, store)
    version = ROVolume(found.locator(), storage=found.store.storage).resolve()
    spec = SessionSpec(
        store_url=found.store.url,
        volume=found.volume,
        mode="ro",
        version=version.id,
        options=replace(MountOptions(), resident=False).resolved(),
    )
    with opened(spec, access=found.store.access) as session:
        yield session.files, version


def _publish(source: Source, volume: _Writable, request: CommitRequest, progress: ProgressListener | None) -> Transfer:
    from cowfs.session.copying import Copied

    done, base, is_new = uploading.publish(
        volume.target, source, volume.place.path, request, progress, is_directory=volume.place.is_directory
    )
    assert base.version_id is not None
    locator = volumes.locator(volume.target.store.objects, volume.target.name, base.version_id)
    copied = Copied(done.files, done.directories, done.symlinks, done.bytes, done.skipped)
    return Transfer(copied, ROVolume(locator, base.manifest, is_new=is_new, storage=volume.target.store.storage))


@dataclass(frozen=True)
class _Writable:
    """A volume, and the place in it that is copied to."""

    place: Place
    target: Target


def _writable(place: Place, store: stores.Named) -> _Writable:
    """The volume that may be written to by this process."""
    found = sources.find(place.source, store)
    if not found.is_writable:
        raise ReadOnlyError(
            f"{place.source} is a version, and a version never changes",
            hint="Copy to a volume, NAME:PATH; a fork of the version is one (`cowfs fork`, fork()).",
        )
    working_copy = WorkingCopy.locate(found.store.record.store_id, found.volume)
    target = Target(found.volume, found.store, working_copy)
    uploading.require_not_mounted(target, place.path)
    return _Writable(place, target)


def _summary(files: Files, path: bytes, name: bytes, attr: Attr) -> FileSummary:
    kind = TYPES.get(stat.S_IFMT(attr.mode), "special")
    target = None
    if kind == "symlink":
        target = os.fsdecode(files.readlink(path + b"/" + name if path else name))
    return FileSummary(os.fsdecode(name), kind, attr.mode, attr.size, attr.mtime_ns, target)


def _of_volume(place: Place) -> str:
    """What to do about a path that is not there."""
    return f"`cowfs ls {place.source}`, or listdir() of a mount of it, shows what there is."
