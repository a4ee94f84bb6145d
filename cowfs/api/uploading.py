"""Directories and files into a volume without a mount and without staging: cut, looked up and
packed from where they are, and published as one version, or not at all.

An upload that is killed leaves nothing of itself in the volume. What had reached the store is
remembered on this machine: the next upload, mount or commit of the volume finds it there and moves
only what is missing. The volume must not be mounted here, nor have uncommitted work here.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, TypedDict, Unpack

from cowfs import apart, config
from cowfs import store as stores_layer
from cowfs.api import (
    arguments,
    copied_stores,
    kept_work,
    local_paths,
    mount_paths,
    mount_transfer,
    names,
    sources,
    stores,
    tree_publishing,
)
from cowfs.api.files import FilePath
from cowfs.api.local_paths import Own
from cowfs.api.path_errors import NOT_DOWN, NOT_HERE, NothingThere, errors_of_ours
from cowfs.api.provenance import commit_request
from cowfs.api.ro_volume import ROVolume
from cowfs.api.rw_volume import RWVolume
from cowfs.api.sources import Place
from cowfs.api.transfer_report import Source, Target, TransferReport
from cowfs.errors import (
    ConflictError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    LeaseHeldError,
    LeaseLostError,
    NotFoundError,
    ReadOnlyError,
)
from cowfs.format.locator import is_locator
from cowfs.format.store_url import StoreUrl
from cowfs.machine import registry
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import working_root
from cowfs.version.commit import Base, CommitRequest, ProgressListener

if TYPE_CHECKING:
    from cowfs.index import Link
    from cowfs.session.copying import Attributes
    from cowfs.session.import_log import ImportLog
    from cowfs.session.publishing import Line
    from cowfs.session.upload_plan import Uploaded
    from cowfs.version.publish import Publisher


class PublishOptions(TypedDict, total=False):
    """As `UploadPlan` has them."""

    is_directory: bool
    delete: bool
    excluded: Callable[[bytes], bool]
    threads: int
    done: ImportLog | None
    link: Callable[[bytes, Attributes], Link | None]
    prepare: Callable[[Publisher, Event], None]


def upload(
    volume: RWVolume,
    src: str | os.PathLike[str],
    dst: FilePath = "/",
    *,
    delete: bool = False,
    exclude: Iterable[str] = (),
    message: str = "",
    progress: ProgressListener | None = None,
) -> TransferReport:
    """`RWFiles.upload`: publishes what is in the directory `src` (or the file `src`) at `dst` of
    the volume, as one version; nothing changed: no version. Of a volume that is mounted here it
    goes into the mount.
    """
    src = os.path.expanduser(src)
    if (entry := volume.mounted_here()) is not None:
        require_no_message(volume.name, entry, message)
        is_directory = os.fsencode(dst).endswith(b"/")
        wanted = mount_transfer.Wanted(_path_in_volume(dst), is_directory, delete, excluding(exclude))
        hears = arguments.listener(progress) if progress is not None else None
        own = own_directories(entry.store_url, working_root())
        return mount_transfer.upload(entry, os.fsencode(src), wanted, own, volume.resolve().locator or "", hears)
    request, hears = commit_request(message), arguments.listener(progress) if progress is not None else None
    return upload_local(volume, src, dst, request, hears, delete=delete, excluded=excluding(exclude))[1]


def upload_local(
    volume: RWVolume,
    src: str | os.PathLike[str],
    dst: FilePath,
    request: CommitRequest,
    progress: ProgressListener | None,
    **options: Unpack[PublishOptions],
) -> tuple[ROVolume, TransferReport]:
    """`upload`, and the version that the volume stands on now."""
    given, to = os.fsencode(src), _path_in_volume(dst)
    options["is_directory"] = os.fsencode(dst).endswith(b"/")
    with telling_of_empty(volume):
        target = volume.to_upload()
        require_not_mounted(target, to)
        local_paths.require_apart(given, own_directories(target.store.url, target.working_copy.path))
        with ExitStack() as stack:
            with errors_of_ours(os.fsdecode(given), NOT_HERE):
                tree, at, name = local_paths.source(stack, given)
            source = Source(tree, at, name)
            return publish_to(volume, target, source, to, request, progress, **options)


@contextmanager
def telling_of_empty(volume: RWVolume) -> Iterator[None]:
    """A block that makes the volume, if it is missing, and its first version. An error says, too,
    that it has made the volume and nothing more. It stays: others may have begun to use it. Of an
    error that tells of a writer, or of uncommitted work, nothing is said: who deleted the volume
    then would take it from them."""
    was_made = volume._has_made
    try:
        yield
    except (ConflictError, InvalidStateError, LeaseHeldError, LeaseLostError):
        raise
    except CowfsError as error:
        if volume._is_made_empty and not was_made:
            name = shlex.quote(volume.name)
            error.set_hint(
                f"{error.hint} Volume {volume.name!r} is there now, and empty: the same again goes on with it; `cowfs "
                f"delete {name}`, Volume.delete({volume.name!r}), removes it, if nobody else uses it by now.".lstrip()
            )
        raise


def require_no_message(volume: str, entry: MountEntry, message: str) -> None:
    if message:
        raise InvalidInputError(
            f"volume {volume!r} is mounted at {entry.mount_path}: what comes in goes there, and into no version yet",
            hint="Leave the message out, and give it to the commit.",
        )


def upload_to(
    src: str | os.PathLike[str],
    target: str = "",
    *,
    store: stores.Named = None,
    delete: bool = False,
    exclude: Iterable[str] = (),
    message: str = "",
    progress: ProgressListener | None = None,
) -> TransferReport:
    """`upload` to NAME, or NAME:PATH, which is made if it is missing; "": as the directory is
    named."""
    src = os.path.expanduser(src)
    if not os.path.isdir(src):
        raise _no_directory(src)
    name = os.path.basename(os.path.realpath(src))  # fails where the working directory is gone
    with errors_of_ours(os.fspath(src), NOT_HERE):  # before a volume is made
        os.scandir(src).close()
    place = sources.place(target) if target else Place(name, b"", True)
    if "@" in place.source or is_locator(place.source):
        raise ReadOnlyError(
            f"{place.source} is a version, and a version never changes",
            hint="Upload to a volume, NAME or NAME:PATH; a fork of the version is one (`cowfs fork`, fork()).",
        )
    volume = RWVolume(store, names.checked(place.source), "either")
    dst = os.fsdecode(place.path)
    return upload(volume, src, dst, delete=delete, exclude=exclude, message=message, progress=progress)


def _no_directory(src: str | os.PathLike[str]) -> CowfsError:
    mount_paths.require_alive(registry.canonical(os.fsdecode(os.fspath(src))))
    with errors_of_ours(os.fspath(src), NOT_HERE), NothingThere():
        os.stat(src)
    if os.path.lexists(src):
        return InvalidInputError(f"{os.fspath(src)} is no directory", hint="`cowfs cp FILE NAME:PATH` copies a file.")
    return NotFoundError(f"{os.fspath(src)} does not exist", hint="Give a directory of this machine.")


def publish_to(
    volume: RWVolume,
    target: Target,
    source: Source,
    to: bytes,
    request: CommitRequest,
    progress: ProgressListener | None,
    **options: Unpack[PublishOptions],
) -> tuple[ROVolume, TransferReport]:
    """`publish`, of the volume that is an object: it knows its last version then."""
    done, base, is_new = publish(target, source, to, request, progress, **options)
    assert base.version_id is not None
    version = volume._committed(base.head_number, base.version_id, is_new=is_new)
    return version, TransferReport(**asdict(done), locator=version.locator, is_new=is_new)


def publish(
    target: Target,
    source: Source,
    to: bytes,
    request: CommitRequest,
    progress: ProgressListener | None,
    **options: Unpack[PublishOptions],
) -> tuple[Uploaded, Base, bool]:
    """The source becomes the volume's `to` (see `UploadPlan`): what was done, the version that the
    volume stands on now, and whether this has made it."""
    from cowfs.session.upload_plan import UploadPlan

    def published() -> tuple[Uploaded, Base, bool]:
        with errors_of_ours(target.name, NOT_DOWN), publishing_to(target) as line:
            plan = UploadPlan(source.at, to, line.owner, name=source.name, **options)
            return tree_publishing.publish_tree(line, source.tree, plan, request, progress)

    local_paths.read_pipe(source.tree)
    return apart.run(published)


@contextmanager
def publishing_to(target: Target) -> Iterator[Line]:
    """The volume's line for a block, apart as `publishing`. InvalidStateError: there is uncommitted
    work here."""
    from cowfs.session.publishing import publishing

    spec = tree_publishing.writing(target)
    kept_work.require_all(target.working_copy, target.store)
    tree_publishing.require_committed(target, spec)
    try:
        with publishing(spec, access=target.store.access) as line:
            yield line
    finally:
        target.working_copy.delete_if_committed()


def require_not_mounted(target: Target, to: bytes) -> None:
    """Of a volume that this process may write to otherwise. ConflictError: it is mounted here."""
    stores_layer.require_writable(target.store.record)
    entry = copied_stores.find_mount(target.store, target.name)
    if entry is not None:
        there = os.path.join(entry.mount_path, os.fsdecode(to))
        raise ConflictError(
            f"volume {target.name!r} is mounted at {entry.mount_path}",
            hint=f"Copy to {there}, and commit (`cowfs commit {target.name}`, commit()); or unmount it first.",
        )


def own_directories(store_url: str, working: Path) -> list[Own]:
    """The directories of this machine that cowfs writes to meanwhile."""
    found = [
        Own(working, "the directory of uncommitted work", "set COWFS_STATE_DIR to a directory outside of it"),
        Own(config.cache_dir(), "the cache directory", "set COWFS_CACHE_DIR to a directory outside of it"),
    ]
    url = StoreUrl.parse(store_url)
    if url.protocol == "file":
        found.append(Own(Path("/" + url.path), "the store", "use a store outside of it (--store, store=)"))
    return found


def excluding(patterns: Iterable[str]) -> Callable[[bytes], bool]:
    """Whether a path is excluded, relative, a directory's ending in "/". InvalidInputError for what
    is no pattern."""
    given = list(patterns) if not isinstance(patterns, str) else [patterns]
    if not given:
        from cowfs.session.upload_plan import nothing_excluded

        return nothing_excluded
    from pathspec import GitIgnoreSpec

    try:
        spec = GitIgnoreSpec.from_lines(given)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"exclude has something that is no pattern: {error}", hint="Give patterns as in .gitignore."
        ) from error
    return lambda path: spec.match_file(os.fsdecode(path))


def _path_in_volume(path: FilePath) -> bytes:
    parts = [part for part in os.fsencode(path).split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise InvalidInputError(f"{os.fspath(path)!r} has '..' in it", hint="Give the path from the volume's root on.")
    return b"/".join(parts)
