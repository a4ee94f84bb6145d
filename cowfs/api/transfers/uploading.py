"""Uploads directories and files into a volume without a mount and without staging. Files are cut,
looked up and packed in place, and published as one version, or not at all.

A killed upload leaves nothing in the volume. This machine remembers the data that had reached the
store. The next upload, mount or commit of the volume finds it there and transfers only the missing
data. The volume must not be mounted here, nor have uncommitted work here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, TypedDict, Unpack

from cowfs import store as stores_layer
from cowfs.api import arguments, stores
from cowfs.api.mounts import kept_work, mount_transfer
from cowfs.api.transfers import local_paths, tree_publishing
from cowfs.api.transfers.ignore_patterns import excluding
from cowfs.api.transfers.local_paths import Own
from cowfs.api.transfers.path_errors import NOT_DOWN, NOT_HERE, errors_of_ours
from cowfs.api.transfers.transfer_report import Source, Target, TransferReport
from cowfs.api.upkeep import copied_stores
from cowfs.base import config, interruptible
from cowfs.base.errors import (
    ConflictError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    LeaseHeldError,
    LeaseLostError,
)
from cowfs.base.hints import Command
from cowfs.base.ids import StoreId
from cowfs.format.store_url import StoreUrl
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import working_root
from cowfs.version.commit import Base, CommitRequest, ProgressListener

if TYPE_CHECKING:
    from cowfs.api.access.volume_handle import VolumeHandle
    from cowfs.api.files import FilePath
    from cowfs.api.versions.located_version import LocatedVersion
    from cowfs.index import Link
    from cowfs.transfer.copying import Attributes
    from cowfs.transfer.imports.import_log import ImportLog
    from cowfs.transfer.upload.upload_plan import Uploaded
    from cowfs.transfer.upload.upload_stamps import UploadStamps
    from cowfs.version.publish.publisher import Publisher
    from cowfs.writer.publishing import Line


class PublishOptions(TypedDict, total=False):
    """The options of `UploadPlan`."""

    is_directory: bool
    delete: bool
    checksum: bool
    excluded: Callable[[bytes], bool]
    threads: int
    done: ImportLog | None
    link: Callable[[bytes, Attributes], Link | None]
    prepare: Callable[[Publisher, Event], None]


def upload(
    volume: VolumeHandle,
    src: str | os.PathLike[str],
    dst: FilePath,
    request: CommitRequest,
    *,
    delete: bool = False,
    exclude: Iterable[str] = (),
    checksum: bool = False,
    progress: ProgressListener | None = None,
) -> TransferReport:
    """`RWFiles.upload`: publishes the contents of the directory `src` (or the file `src`) at `dst`
    of the volume, as one version; if nothing changed, no version is made. If the volume is mounted
    here, the files go into the mount."""
    src = os.path.expanduser(src)
    hears = arguments.listener(progress) if progress is not None else None
    if (entry := volume.mounted_here()) is not None:
        require_nothing_given(volume.name, entry, request)
        is_directory = os.fsencode(dst).endswith(b"/")
        wanted = mount_transfer.Wanted(_path_in_volume(dst), is_directory, delete, excluding(exclude), checksum)
        own = own_directories(entry.store_url, working_root())
        volume.resolve()
        return mount_transfer.upload(entry, os.fsencode(src), wanted, own, volume.locator or "", hears)
    options = PublishOptions(delete=delete, excluded=excluding(exclude), checksum=checksum)
    return upload_local(volume, src, dst, request, hears, **options)[1]


def upload_local(
    volume: VolumeHandle,
    src: str | os.PathLike[str],
    dst: FilePath,
    request: CommitRequest,
    progress: ProgressListener | None,
    **options: Unpack[PublishOptions],
) -> tuple[LocatedVersion, TransferReport]:
    """As `upload`; also returns the volume's last version."""
    given, to = os.fsencode(src), _path_in_volume(dst)
    options["is_directory"] = os.fsencode(dst).endswith(b"/")
    url = volume.opened.url if volume.store is not None else stores.canonical_url(volume.named)
    with ExitStack() as stack:  # the source first: a mistyped one makes no volume
        local_paths.require_apart(given, own_directories(url, working_root()), options["excluded"])
        with errors_of_ours(os.fsdecode(given), NOT_HERE):
            tree, at, name = local_paths.source(stack, given)
        stack.enter_context(telling_of_empty(volume))
        target = volume.to_upload()
        require_not_mounted(target, to)
        source = Source(tree, at, name)
        return publish_to(volume, target, source, to, request, progress, **options)


@contextmanager
def telling_of_empty(volume: VolumeHandle) -> Iterator[None]:
    """A block that creates the volume, if it is missing, and its first version. An error then also
    says that the volume was created and is empty. The volume stays, because others may have begun
    to use it. Errors about a writer or about uncommitted work do not say so: a user who deleted the
    volume then would take it from its writer."""
    was_made = volume.has_made
    try:
        yield
    except (ConflictError, InvalidStateError, LeaseHeldError, LeaseLostError):
        raise
    except CowfsError as error:
        if volume.is_made_empty and not was_made:
            error.set_hint(
                f"{error.open_hint} Volume {volume.name!r} is there now, and empty: the same again goes on with it; "
                f"{Command('delete', volume.name)}, Store().delete({volume.name!r}), removes it, if nobody else uses it by now.".lstrip()
            )
        raise


def require_nothing_given(volume: str, entry: MountEntry, request: CommitRequest) -> None:
    """InvalidInputError: the request describes a version, and none is made."""
    if request.given:
        raise InvalidInputError(
            f"volume {volume!r} is mounted at {entry.mount_path}: what comes in goes there, and into no version yet",
            hint=f"{request.describe_left_out()}, and give it to the commit.",
        )


def publish_to(
    volume: VolumeHandle,
    target: Target,
    source: Source,
    to: bytes,
    request: CommitRequest,
    progress: ProgressListener | None,
    **options: Unpack[PublishOptions],
) -> tuple[LocatedVersion, TransferReport]:
    """As `publish`, for a handle, which then knows the volume's last version."""
    done, base, is_new = publish(target, source, to, request, progress, **options)
    assert base.version_id is not None
    version = volume.record(base.head_number, base.version_id, is_new=is_new)
    report = TransferReport(**asdict(done), locator=version.locator, is_new=is_new, made_store_url=volume.made_store)
    return version, report


def publish(
    target: Target,
    source: Source,
    to: bytes,
    request: CommitRequest,
    progress: ProgressListener | None,
    **options: Unpack[PublishOptions],
) -> tuple[Uploaded, Base, bool]:
    """Makes the source the volume's `to` (see `UploadPlan`). Returns the report, the volume's last
    version, and whether this call made it."""
    from cowfs.transfer.upload.upload_plan import UploadPlan

    earlier = earlier_stamps(target.store.record.store_id, target.name, source, to)

    def published() -> tuple[Uploaded, Base, bool]:
        with errors_of_ours(target.name, NOT_DOWN), publishing_to(target) as line:
            plan = UploadPlan(source.at, to, line.owner, name=source.name, earlier=earlier, **options)
            result = tree_publishing.publish_tree(line, source.tree, plan, request, progress)
            if earlier is not None:
                earlier.store()
            return result

    local_paths.read_pipe(source.tree)
    return interruptible.run(published)


def earlier_stamps(store_id: StoreId, volume: str, source: Source, to: bytes) -> UploadStamps | None:
    """The stamps of earlier uploads of files of this machine."""
    from cowfs.transfer.local_files import LocalFiles
    from cowfs.transfer.upload.upload_stamps import UploadStamps

    if not isinstance(source.tree, LocalFiles):
        return None
    return UploadStamps(store_id.hex().encode(), volume.encode(), to, source.tree.path, source.at)


@contextmanager
def publishing_to(target: Target) -> Iterator[Line]:
    """Holds the volume's line for a block. Like `publishing`, it must run on a helper thread when
    called from the main thread. InvalidStateError: there is uncommitted work here."""
    from cowfs.writer.publishing import publishing

    spec = tree_publishing.writing(target)
    kept_work.require_all(target.working_copy, target.store)
    tree_publishing.require_committed(target, spec)
    try:
        with publishing(spec, access=target.store.access) as line:
            yield line
    finally:
        target.working_copy.delete_if_committed()


def require_not_mounted(target: Target, to: bytes) -> None:
    """ConflictError: the volume, which this process may otherwise write to, is mounted here."""
    stores_layer.require_writable(target.store.record)
    entry = copied_stores.find_mount(target.store, target.name)
    if entry is not None:
        there = os.path.join(entry.mount_path, os.fsdecode(to))
        raise ConflictError(
            f"volume {target.name!r} is mounted at {entry.mount_path}",
            hint=f"Copy to {there}, and commit ({Command('commit', target.name)}, commit()); or unmount it first.",
        )


def own_directories(store_url: str, working: Path) -> list[Own]:
    """The directories of this machine that cowfs writes to during a transfer."""
    found = [
        Own(working, "the directory of uncommitted work", "set COWFS_STATE_DIR to a directory outside of it"),
        Own(config.cache_dir(), "the cache directory", "set COWFS_CACHE_DIR to a directory outside of it"),
    ]
    url = StoreUrl.parse(store_url)
    if url.protocol == "file":
        found.append(Own(Path("/" + url.path), "the store", "use a store outside of it (--store, store=)"))
    return found


def _path_in_volume(path: FilePath) -> bytes:
    parts = [part for part in os.fsencode(path).split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise InvalidInputError(f"{os.fspath(path)!r} has '..' in it", hint="Give the path from the volume's root on.")
    return b"/".join(parts)
