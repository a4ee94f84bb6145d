"""Files into and out of volumes without a mount: list, read, copy.

Whatever is read is a version: of a bare NAME the last one, also while the volume is mounted here;
what is not committed lies below the mount's path. What is copied into a volume is published as one
version, or not at all: a copy that fails leaves the volume as it was. A volume that is mounted here,
or has uncommitted work here, is refused, since the copy's version would have that work in it.

A session in this process does the work (`session.files`, `session.copying`): no kernel, no daemon.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs import config
from cowfs import store as stores_layer
from cowfs.api import kept_work, local_paths, sources, stores
from cowfs.api.local_paths import Own
from cowfs.api.provenance import commit_request
from cowfs.api.ro_volume import ROVolume
from cowfs.api.sources import Place
from cowfs.control import MountOptions, SessionSpec
from cowfs.errors import (
    AccessDeniedError,
    ConflictError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    NotFoundError,
    ReadOnlyError,
    from_local_disk,
)
from cowfs.format.locator import Locator
from cowfs.format.store_url import StoreUrl
from cowfs.machine import registry
from cowfs.machine.working_copy import WorkingCopy, working_root
from cowfs.version import volumes
from cowfs.version.commit import CommitRequest, ProgressListener

if TYPE_CHECKING:
    from cowfs.native import Attr
    from cowfs.session.copying import Copied, SourceTree, TargetTree
    from cowfs.session.files import Files
    from cowfs.session.session import Session

ZEROS_BYTES = 1 << 20
NOT_HERE = "It is a path of this machine; a volume's files are named SOURCE:PATH."
NOT_DOWN = (
    "Only directories have anything below them; one never takes the place of a file or link, nor the other way round."
)
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
    with _reading(place, store) as (files, version), _errors_of_ours(text, _of_volume(place)):
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
    with _reading(place, store) as (files, _), _errors_of_ours(text, _of_volume(place)):
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
    with ExitStack() as stack, _errors_of_ours(target, NOT_DOWN):
        tree: SourceTree
        if sources.is_place(source):
            place = sources.place(source)
            files, version = stack.enter_context(_reading(place, store))
            if not sources.is_place(target):
                own = _own(Locator.parse(version.locator).store_url, working_root())
                local_paths.require_outside(os.fsencode(target), own)
            with _errors_of_ours(source, _of_volume(place)):
                tree, at, name = files, files.follow(place.path), place.path.rpartition(b"/")[2]
        else:
            with _errors_of_ours(source, NOT_HERE):
                tree, at, name = local_paths.source(stack, os.fsencode(source))
        mode = tree.stat(at).mode
        if stat.S_IFMT(mode) not in TYPES:
            raise local_paths.not_copied(source)
        is_directory = stat.S_ISDIR(mode)
        if sources.is_place(target):
            volume = _writable(sources.place(target), store)
            if not sources.is_place(source):
                own = _own(volume.store.url, volume.working_copy.path)
                local_paths.require_apart(os.fsencode(source), own)
            return _publish(tree, at, name if not is_directory else b"", volume, request, progress)
        there, to = local_paths.target(stack, os.fsencode(target), b"" if is_directory else name)
        return Transfer(_copied(tree, at, there, to, progress), None)


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


def _publish(
    tree: SourceTree,
    at: bytes,
    file: bytes,
    volume: _Writable,
    request: CommitRequest,
    progress: ProgressListener | None,
) -> Transfer:
    with _writing(volume) as session:
        files = session.files
        to = _target(files, volume.place, file)
        before = session.base.version_id
        copied = _copied(tree, at, files, to, progress)
        base = session.commit(request, progress or (lambda _: None))
    volume.working_copy.delete_if_committed()
    assert base.version_id is not None
    locator = volumes.locator(volume.store.objects, volume.name, base.version_id)
    return Transfer(
        copied, ROVolume(locator, base.manifest, is_new=base.version_id != before, storage=volume.store.storage)
    )


@dataclass(frozen=True)
class _Writable:
    """A volume, and the place in it that is copied to."""

    place: Place
    name: str
    store: stores.OpenStore
    working_copy: WorkingCopy


def _writable(place: Place, store: stores.Named) -> _Writable:
    """The volume that may be written to by this process."""
    found = sources.find(place.source, store)
    name = found.volume
    if not found.is_writable:
        raise ReadOnlyError(
            f"{place.source} is a version, and a version never changes",
            hint="Copy to a volume, NAME:PATH; a fork of the version is one (`cowfs fork`, fork()).",
        )
    stores_layer.require_writable(found.store.record)
    entry = registry.find_by_volume(found.store.record.store_id.hex(), name)
    if entry is not None:
        there = os.path.join(entry.mount_path, os.fsdecode(place.path))
        raise ConflictError(
            f"volume {name!r} is mounted at {entry.mount_path}",
            hint=f"Copy to {there}, and commit (`cowfs commit {name}`, commit()); or unmount it first.",
        )
    return _Writable(place, name, found.store, WorkingCopy.locate(found.store.record.store_id, name))


def _own(store_url: str, working: Path) -> list[Own]:
    """The directories of this machine that cowfs writes to for a copy."""
    found = [
        Own(working, "the directory of uncommitted work", "set COWFS_STATE_DIR to a directory outside of it"),
        Own(config.cache_dir(), "the cache directory", "set COWFS_CACHE_DIR to a directory outside of it"),
    ]
    url = StoreUrl.parse(store_url)
    if url.protocol == "file":
        found.append(Own(Path("/" + url.path), "the store", "use a store outside of it (--store, store=)"))
    return found


@contextmanager
def _writing(volume: _Writable) -> Iterator[Session]:
    """A writable session that leaves nothing behind when the block fails."""
    from cowfs.session.opening import opened

    name = volume.name
    kept_work.require_all(volume.working_copy, volume.store.record.store_id)
    spec = SessionSpec(
        store_url=volume.store.url,
        volume=name,
        mode="rw",
        options=replace(MountOptions(), resident=False).resolved(),
        working_copy=str(volume.working_copy.path),
    )
    discard = threading.Event()
    with opened(spec, discard=discard, access=volume.store.access) as session:
        if session.engine.is_dirty():
            raise InvalidStateError(
                f"volume {name!r} has uncommitted work on this machine, which the copy would publish",
                hint="It may be half of a copy that was killed. Look at it first: mount the volume "
                f"(`cowfs mount {name}`, mount()). Then drop it (`cowfs unmount {name} --discard`, discard()), or publish it "
                f"(`cowfs commit {name}`, commit()).",
            )
        try:
            yield session
        except BaseException:
            discard.set()
            raise


def _target(files: Files, place: Place, file: bytes) -> bytes:
    """Where to copy to; the directories above it are made."""
    to = place.path
    if file and (place.is_directory or _is_directory(files, to)):
        to = to + b"/" + file if to else file
    above = to.split(b"/")[:-1]
    for depth in range(len(above)):
        files.make_directory(b"/".join(above[: depth + 1]))
    return to


def _is_directory(files: Files, path: bytes) -> bool:
    try:
        return stat.S_ISDIR(files.stat(path).mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _summary(files: Files, path: bytes, name: bytes, attr: Attr) -> FileSummary:
    kind = TYPES.get(stat.S_IFMT(attr.mode), "special")
    target = None
    if kind == "symlink":
        target = os.fsdecode(files.readlink(path + b"/" + name if path else name))
    return FileSummary(os.fsdecode(name), kind, attr.mode, attr.size, attr.mtime_ns, target)


def _of_volume(place: Place) -> str:
    """What to do about a path that is not there."""
    return f"`cowfs ls {place.source}`, or listdir() of a mount of it, shows what there is."


@contextmanager
def _errors_of_ours(name: str, missing: str) -> Iterator[None]:
    """Errors of system calls as ours. name: what they are about, if they do not say; missing: what
    to do when it is not there."""
    try:
        yield
    except OSError as error:
        raise _error(error, name, missing) from error


def _error(error: OSError, name: str, missing: str) -> CowfsError:
    about = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else name
    text = f"{about}: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return NotFoundError(text, hint=missing)
    if isinstance(error, NotADirectoryError | IsADirectoryError | FileExistsError) or error.errno == errno.ELOOP:
        return InvalidInputError(text, hint=NOT_DOWN)
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return AccessDeniedError(text, hint="Choose a path that you may read, or write to.")
    return from_local_disk(error, about)
