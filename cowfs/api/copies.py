"""Mounts without FUSE: a folder of plain files at the mount path, from which commits are made.

    mount       the version is copied to the path (session/copy_filling), and what the files look like is recorded
    work        any program, on the local file system; nobody serves it, nothing has to stay alive
    commit      what differs by its stamp is read and published, as an upload with delete=True does (session/tree_upload),
                if the volume still stands on the version that was copied
    compare     what such a commit would change, without publishing or storing anything (session/copy_comparing)
    unmount     a folder in which nothing differs goes; one with work stays where it is, for the next mount

`machine.copies` keeps what is known of a folder, and removes it; `mounts` does for copies what
`live_mount` does for mounts. Why things are so: docs/decisions/0043-mounts-without-fuse.md.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cowfs import apart, log, sizes
from cowfs.api import copied_stores, folders, kept_work, mount_paths, stores, tree_publishing
from cowfs.api.path_errors import errors_of_ours
from cowfs.api.transfer_report import Target
from cowfs.control import MountOptions, SessionSpec
from cowfs.errors import (
    AccessDeniedError,
    ConflictError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    LeaseHeldError,
    MountFailedError,
    NeedsFuseError,
)
from cowfs.ids import VersionId
from cowfs.machine import copies, mounting, processes, registry, reservation, sharing, stamps
from cowfs.machine.copies import Copy
from cowfs.machine.lock import LockHolder
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy
from cowfs.version import volumes
from cowfs.version.commit import Base, CommitRequest, ProgressListener

if TYPE_CHECKING:
    from cowfs.control.messages import Compared, Comparison
    from cowfs.session.upload_plan import Uploaded, UploadPlan
    from cowfs.session.version_tree import VersionTree

T = TypeVar("T")
_log = log.get("copy")
_told: set[int] = set()
"""Processes in which somebody was told that mounts are copies."""

LOST = "The files of a copy are on the local file system: if the folder was moved, look for it there."
CONTAINER = (
    "docker run --device /dev/fuse --cap-add SYS_ADMIN --security-opt apparmor=unconfined; Kubernetes: privileged: true"
)


def why_not_mounted(options: MountOptions) -> MountFailedError | None:
    """Why this machine cannot mount; None: it can, as far as can be told beforehand. A descriptor
    that was handed in needs no right."""
    if options.fuse_fd is not None:
        return None
    try:
        mounting.check_device()
    except MountFailedError as error:
        return error
    return None


def mounted_or_copied(
    options: MountOptions,
    mount: Callable[[], T],
    copy: Callable[[MountFailedError | None], T],
) -> T:
    """Does what the mode says. copy: is told why it is not a mount, None if it was asked for."""
    is_mount_only = options.foreground or options.record is not None
    if options.mode == "copy":
        if is_mount_only or options.fuse_fd is not None:
            raise InvalidInputError(
                "a copy has no process, serves no descriptor, and cannot tell what is read of it",
                hint="Leave foreground, fuse_fd and record out, or mode='copy'.",
            )
        return copy(None)
    why = why_not_mounted(options) if options.mode == "auto" and not is_mount_only else None
    if why is None:
        try:
            return mount()
        except MountFailedError as error:  # the device may be opened, and mounting is forbidden all the same
            if options.mode == "fuse" or is_mount_only or not error.details.get("is_forbidden"):
                raise
            why = error
    return copy(why)


def is_of_mode(entry: MountEntry, options: MountOptions) -> bool:
    return options.mode != ("fuse" if entry.is_copy else "copy")


def require_mode(entry: MountEntry, options: MountOptions) -> None:
    """InvalidStateError: what is mounted is of another kind than what was asked for."""
    if not is_of_mode(entry, options):
        kind = "as a copy" if entry.is_copy else "by FUSE"
        raise InvalidStateError(
            f"volume {entry.volume!r} is mounted {kind} at {entry.mount_path}",
            hint="Unmount it first, or leave the mode out.",
        )


def is_whole(entry: MountEntry) -> bool:
    """Before a mount that is there is used: an unmount that was killed half way is undone, or, if
    it has begun to delete, ended. False: then there is no mount any more."""
    if not entry.is_copy:
        return True
    with turn(entry):
        if mount_paths.copy_of(entry).settle():
            return True
        registry.unregister(entry)
        return False


def require_none_elsewhere(store: stores.OpenStore, volume: str) -> None:
    """LeaseHeldError: a copy of the volume is mounted, and not where it is asked for now. One whose
    processes have ended, and that was not made by command, is only left behind."""
    entry = copied_stores.find_mount(store, volume)
    if entry is not None and entry.is_copy and mount_paths.is_there(entry) and _is_used(entry):
        raise LeaseHeldError(
            f"volume {volume!r} is mounted as a copy at {entry.mount_path}",
            hint=f"Work at {entry.mount_path}, unmount it first, or fork the volume to work beside it.",
            details={"where": entry.mount_path},
        )


def _is_used(entry: MountEntry) -> bool:
    if registry.is_lasting(entry) or sharing.holds(entry) or not sharing.is_alone(entry):
        return True
    sharing.forget(entry)
    return False


# -- mounting


def mount_volume(
    target: Target,
    given: str | os.PathLike[str] | None,
    options: MountOptions,
    progress: ProgressListener,
    why: MountFailedError | None,
) -> MountEntry:
    """The volume's copy, made or gone on with. LeaseHeldError: somebody else writes to the
    volume."""
    working_copy, store = target.working_copy, target.store
    spec = tree_publishing.writing(target, options)
    spec = replace(spec, options=replace(spec.options, take_over=options.take_over))
    with _turn(working_copy.path):
        left = left_behind(working_copy, given)
        if left is not None and _is_current(left, working_copy, store):
            return _registered(left, store, target.name, working_copy=working_copy.path)
        reason = f"; this machine cannot mount it: {why.message}" if why is not None else ""
        tree_publishing.require_committed(target, spec, f"a copy would not show{reason}")
        kept_work.warn(working_copy, store)
        with ExitStack() as stack:
            from cowfs.session.copy_opening import copy_base

            opened = stack.enter_context(copy_base(spec, access=store.access))
            manifest = opened.base.manifest
            if manifest is not None:
                _require_within(options, manifest.stats.bytes, target.name, why)
            path = stack.enter_context(mount_paths.chosen(given, target.name, store.record.store_id))
            copy = Copy(working_copy.path)
            _tell(why)
            found = opened.tree, opened.base.version_id
            with replacing_gone(working_copy, take_over=options.take_over):
                _fill(copy, path, *found, store, target.name, spec.options, progress, is_read_only=False)
        return _registered(copy, store, target.name, working_copy=working_copy.path)


def require_not_elsewhere(working_copy: WorkingCopy) -> None:
    """LeaseHeldError: the folder of its copy is not to be seen here, and may be in another
    container, with work."""
    if (copy := working_copy.copy) is not None:
        copy.require_not_elsewhere()


def require_mine(copy: Copy) -> None:
    """ConflictError: as of `require_not_elsewhere`, of a copy that is to be unmounted, or dropped,
    from here."""
    if not copy.exists or not copy.is_elsewhere:
        return
    record = copy.record
    forget = f"`cowfs unmount {record.volume} --discard --force`, discard(force=True)"
    if record.read_only:
        forget = f"`cowfs unmount {shlex.quote(record.mount_path)} --force`, unmount(force=True)"
    raise ConflictError(
        f"the copy of {record.volume} at {record.mount_path} was made in {record.process.where}, and is not to be seen here: it "
        "may be in use there",
        hint=f"Unmount it there. If that container is gone, or nobody needs what it has: {forget} forgets the copy, and leaves "
        "its folder alone.",
        details={"where": record.mount_path},
    )


def tell_if_gone(working_copy: WorkingCopy) -> bool:
    """Whether the folder with its work is gone, or not to be seen here: says so before its mount
    ends, or it is dropped."""
    copy = working_copy.copy
    if copy is None or not copy.is_out_of_sight:
        return False
    _log.warning("%s. %s", _gone(copy), LOST)
    return True


def _gone(copy: Copy) -> str:
    record = copy.record
    if copy.is_elsewhere:
        return (
            f"the folder of the copy of volume {record.volume}, {record.mount_path}, was made in {record.process.where}, and is not "
            "to be seen here; what was written there since the last commit is in no version"
        )
    other = " (another one is in its place)" if os.path.lexists(record.mount_path) else ""
    return (
        f"the folder of the copy of volume {record.volume}, {record.mount_path}, is gone{other}, and with it what was written "
        "there since the last commit"
    )


@contextmanager
def replacing_gone(working_copy: WorkingCopy, *, take_over: bool) -> Iterator[None]:
    """Around what mounts the volume anew: a copy whose folder is gone is forgotten once it is
    mounted, and not if that fails. The folder may come back. LeaseHeldError, but for take_over: as
    of `require_not_elsewhere`, of a copy that was made since that was asked."""
    copy = working_copy.copy
    if copy is None or not copy.is_out_of_sight:
        yield
        return
    if not take_over:
        copy.require_not_elsewhere()
    gone = _gone(copy)
    entries = _entries(working_copy)

    def is_served() -> bool:
        holder = working_copy.holder()
        return holder is not None and holder.process != processes.this_process()

    with copy.given_up(is_served):
        yield
    _log.warning("%s. The mount begins with what was committed. %s `cowfs upload` publishes it", gone, LOST)
    for entry in entries:
        registry.unregister(entry)


def tidied(working_copy: WorkingCopy) -> bool:
    """After a mount that is no more: removes its copy if that has no work. Whether there is one
    with work."""
    copy = working_copy.copy
    if copy is None:
        return False
    with _turn(working_copy.path):
        is_whole = _settled(copy, working_copy) and copy.record.stage == "whole" and copy.is_there
        return is_whole and not _removed(copy, working_copy)


def has_work(working_copy: WorkingCopy, options: MountOptions) -> bool:
    """Whether a copy has work of the volume that is about to be mounted. InvalidStateError: it has,
    and a mount by FUSE is asked for, which would not show it. A folder that is gone has none."""
    if not tidied(working_copy):
        return False
    if options.mode == "fuse":
        from cowfs.session.acquiring import require_no_copy

        require_no_copy(working_copy)
    return True


def _settled(copy: Copy, working_copy: WorkingCopy) -> bool:
    """As `Copy.settle`; what is no copy any more is mounted no more, either."""
    if copy.settle():
        return True
    _unregister(working_copy)
    return False


def _removed(copy: Copy, working_copy: WorkingCopy) -> bool:
    """Whether the folder had no work, and has gone; then it is mounted no more."""
    base = WorkingCopy(working_copy.path).state.base_version  # as it is now: a commit may have come since
    if not copy.remove_unchanged(base):
        return False
    _unregister(working_copy)
    return True


def _unregister(working_copy: WorkingCopy) -> None:
    for entry in _entries(working_copy):
        registry.unregister(entry)


def _entries(working_copy: WorkingCopy) -> list[MountEntry]:
    return [entry for entry in registry.list_mounts() if entry.is_copy and entry.working_copy == str(working_copy.path)]


def left_behind(working_copy: WorkingCopy, given: str | os.PathLike[str] | None) -> Copy | None:
    """The copy that has the volume's work, to go on with at its path. One without work, elsewhere,
    or half made, goes; one whose folder is gone is left to `replacing_gone`. InvalidStateError: it
    has work, and another path is asked for."""
    copy = working_copy.copy
    if copy is None or not _settled(copy, working_copy):
        return None
    record = copy.record
    if record.stage == "filling":
        # Whoever fills it holds the lock: of a process of another container nothing else tells that
        # it has ended.
        with working_copy.lock(LockHolder.for_a_moment(f"(tidying {record.mount_path})")):
            copy.remove_filling()
        return None
    if not copy.is_there:
        return None
    if given is None or mount_paths.checked(given) == record.mount_path:
        return copy
    if _removed(copy, working_copy):
        return None
    raise InvalidStateError(
        f"uncommitted work of volume {working_copy.volume!r} is in the copy at {record.mount_path}",
        hint=f"Mount it there (`cowfs mount {working_copy.volume} {record.mount_path}`, mount()), and commit it; "
        f"or drop it (`cowfs unmount {working_copy.volume} --discard`, discard()).",
    )


def mount_version(
    spec: SessionSpec,
    store: stores.OpenStore,
    given: str | os.PathLike[str] | None,
    name: str,
    version_bytes: int,
    why: MountFailedError | None,
) -> MountEntry:
    """A read-only copy of a version, or of a folder of it. name: of the default directory."""
    from cowfs.session.copy_filling import size_bytes
    from cowfs.session.reading import reading

    assert spec.version is not None
    version = VersionId.from_hex(spec.version)
    sweep()
    if spec.folder:
        folders.require(store, spec.volume, version, spec.folder, spec.options.cache_path)
    else:
        _require_within(spec.options, version_bytes, name, why)
    with reading(spec, access=store.access) as tree, mount_paths.chosen(given, name, store.record.store_id) as path:
        if spec.folder and version_bytes > spec.options.copy_limit_bytes:
            _require_within(spec.options, size_bytes(tree), f"{name}:{spec.folder}", why)
        registration = registry.new_id()
        copy = copies.of_version(registration)
        _tell(why)
        _fill(copy, path, tree, version, store, spec.volume, spec.options, lambda _: None, is_read_only=True)
    return _registered(
        copy,
        store,
        spec.volume,
        registration=registration,
        version=version,
        folder=spec.folder,
        sharing_key=spec.options.sharing_key,
    )


def _is_current(left: Copy, working_copy: WorkingCopy, store: stores.OpenStore) -> bool:
    """Whether a copy is gone on with: not one without work, of a version that is not the newest any
    more."""
    state = WorkingCopy(working_copy.path).state
    head = volumes.read_head(store.objects, working_copy.volume).version
    if head == state.base_version or state.intent is not None:  # a head of its own, perhaps
        return True
    if _removed(left, working_copy):
        return False
    stands_on = f"version {state.base_version.hex()[:12]}" if state.base_version is not None else "the empty volume"
    newest = head.hex() if head is not None else ""
    _log.warning("%s", kept_work.overtaken(working_copy.volume, store.url, stands_on, newest))
    return True


def sweep() -> None:
    """Removes what copies have left behind whose mounts are no more: folders of read-only ones, and
    entries of those that a process with another runtime directory has unmounted."""
    entries = [entry for entry in registry.list_mounts() if entry.is_copy]
    for entry in entries:
        with suppress(CowfsError):
            if _has_ended(entry):
                registry.unregister(entry)
    copies.sweep({entry.id for entry in entries})


def _has_ended(entry: MountEntry) -> bool:
    """Whether the copy was unmounted: its record goes last, and a later one has another path. Not
    while the disk that it lies on is missing."""
    copy = mount_paths.copy_of(entry)
    if not copy.exists:
        return entry.working_copy is None or not WorkingCopy(Path(entry.working_copy)).is_out_of_reach
    return registry.canonical(copy.record.mount_path) != entry.mount_path


def _fill(
    copy: Copy,
    path: str,
    tree: VersionTree,
    version: VersionId | None,
    store: stores.OpenStore,
    volume: str,
    options: MountOptions,
    progress: ProgressListener,
    *,
    is_read_only: bool,
) -> None:
    from cowfs.session.cloned_files import ClonedFiles
    from cowfs.session.copy_filling import fill

    is_made = mounting.prepare_directory(path, may_be_mount=True)  # a container's volume, for one
    record = copies.new_record(
        path,
        is_made=is_made,
        version=version,
        read_only=is_read_only,
        store_url=store.url,
        store_id=store.record.store_id.hex(),
        volume=volume,
    )
    try:
        with errors_of_ours(path, "Choose another mount path."):
            aside = copy.begin(record)
            clones = ClonedFiles(options.cache_path, options.cache_size_bytes)
            written = fill(tree, aside, read_only=is_read_only, report=progress, clones=clones)
            clones.trim()
            try:
                copy.end_filling(version, written)
            except PermissionError as error:
                raise _closed(volume, os.fsencode(error.filename or aside).removeprefix(aside)) from error
    except BaseException:
        with suppress(OSError):  # then the next mount does
            copy.remove_filling()
        raise


def _closed(volume: str, path: bytes) -> AccessDeniedError:
    return AccessDeniedError(
        f"{os.fsdecode(path)!r} of {volume} is a directory that its owner may not read: in a copy nobody could see whether "
        "something has changed there",
        hint='Mount by FUSE (mode="fuse", --mode fuse), or as root; or read it without a mount: `cowfs cp`, files.',
    )


def _registered(
    copy: Copy,
    store: stores.OpenStore,
    volume: str,
    *,
    registration: str | None = None,
    working_copy: Path | None = None,
    version: VersionId | None = None,
    folder: str = "",
    sharing_key: str = "",
) -> MountEntry:
    return registry.register(
        registration or registry.new_id(),
        mount_path=Path(copy.record.mount_path),
        socket=None,
        store_url=store.url,
        store_id=store.record.store_id.hex(),
        volume=volume,
        version_id=version.hex() if version is not None else None,
        read_only=working_copy is None,
        working_copy=working_copy,
        is_copy=True,
        folder=folder,
        sharing_key=sharing_key,
    )


def _require_within(options: MountOptions, size: int, name: str, why: MountFailedError | None) -> None:
    if size <= options.copy_limit_bytes:
        return
    reason = f"; this machine cannot mount it: {why.message}" if why is not None else ""
    raise NeedsFuseError(
        f"{name} has {sizes.shown(size)}, and a copy may have {sizes.shown(options.copy_limit_bytes)}{reason}",
        hint="Allow a larger copy (copy_limit=, --copy-limit); read and write without a mount (vol.files, `cowfs ls`, `cat`, "
        "`cp`); mount one folder of a version (LOCATOR/FOLDER); download what is needed (`cowfs download`, files.download()); or "
        f"let the machine mount. {CONTAINER}.",
        details={"bytes": size, "copy_limit": options.copy_limit_bytes},
    )


def _tell(why: MountFailedError | None) -> None:
    """Once a process, of copies that nobody asked for."""
    if why is None or os.getpid() in _told:
        return
    _told.add(os.getpid())
    _log.warning(
        "this machine cannot mount (%s), so the mount path is a copy: plain files, read when they are committed. "
        "`cowfs doctor` says what mounting needs; mode='copy' or --mode copy asks for this and is not told",
        why.message,
    )


# -- committing


def commit(
    target: Target, options: MountOptions, request: CommitRequest, progress: ProgressListener | None
) -> tuple[Base, bool]:
    """Publishes what is in the folder; the version that the volume stands on now, and whether this
    has made it. ConflictError: the volume has a newer version, or a file never stood still."""
    from cowfs.session.local_files import LocalFiles
    from cowfs.session.publishing import publishing

    working_copy = target.working_copy

    def published(progress: ProgressListener | None) -> tuple[str, Uploaded, Base, bool]:
        with _turn(working_copy.path):
            copy = Copy(working_copy.path)
            path = required(copy)
            kept_work.require_all(working_copy, target.store)
            spec = tree_publishing.writing(target, replace(options, take_over=False))
            with errors_of_ours(path, LOST), ExitStack() as stack:
                reading = copy.begin_reading()
                tree = stack.enter_context(LocalFiles(os.fsencode(path)))
                line = stack.enter_context(publishing(spec, access=target.store.access, is_copy=True))
                plan = _plan(copy, line.publisher.base.version_id, line.owner)
                done, base, is_new = tree_publishing.publish_tree(line, tree, plan, request, progress)
                assert plan.stamps is not None
                copy.move_base(base.version_id, plan.stamps.seen, reading)
            return path, done, base, is_new

    if progress is None:
        path, done, base, is_new = apart.run(partial(published, None))
    else:
        path, done, base, is_new = apart.run_heard(published, progress)
    if done.skipped:
        _log.warning(
            "%d devices, pipes or sockets in %s are in no version: a copy cannot keep them (%s%s)",
            done.skipped,
            path,
            ", ".join(map(repr, done.skipped_paths)),
            ", …" if done.skipped > len(done.skipped_paths) else "",
        )
    return base, is_new


def compared(target: Target, options: MountOptions, wanted: Comparison) -> Compared:
    """What became of a version in the folder as it is now: what a commit would change, of the
    version that the volume stands on. Neither the store nor what is known of the folder changes.
    ConflictError: a file never stood still."""
    from cowfs.session import copy_comparing

    with _turn(target.working_copy.path):
        copy = Copy(target.working_copy.path)
        path = required(copy)
        spec = tree_publishing.writing(target, replace(options, take_over=False))
        with errors_of_ours(path, LOST):
            return copy_comparing.compared(spec, path, partial(_plan, copy), wanted, access=target.store.access)


def read(working_copy: WorkingCopy, path: str) -> bytes:
    """A file of the folder, mounted or not."""
    from cowfs.session.mounted_files import MountedFiles

    with _turn(working_copy.path):
        root = required(Copy(working_copy.path))
        with MountedFiles(os.fsencode(root)) as files, files.open(os.fsencode(path), os.O_RDONLY) as file:
            return file.read(0, file.size())


def _plan(copy: Copy, base: VersionId | None, owner: tuple[int, int]) -> UploadPlan:
    """What a commit of the folder uploads, on top of that version."""
    from cowfs.session.copy_stamps import CopyStamps
    from cowfs.session.upload_plan import UploadPlan

    root = os.fsencode(copy.record.mount_path)
    return UploadPlan(b"", b"", owner, delete=True, stamps=CopyStamps(root, stamps.load(copy.stamps_path, base)))


def required(copy: Copy) -> str:
    """Its path. InvalidStateError: the folder is not there, and nobody knows what was in it."""
    record = copy.record
    path = record.mount_path
    if not copy.settle() or copy.record.stage != "whole" or not copy.is_there:
        if copy.exists and copy.is_elsewhere:
            raise InvalidStateError(
                f"the copy at {path} was made in {record.process.where}, and is not to be seen here; nothing was published",
                hint=f"Commit it there. If that container is gone: `cowfs mount {shlex.quote(record.volume)} PATH --take-over`, "
                "mount() with take_over=True, begins with what was committed.",
            )
        raise InvalidStateError(
            f"the copy at {path} is not there any more, or is another directory; nothing was published",
            hint=f"{LOST} Move it back; or mount the volume again (`cowfs mount {shlex.quote(record.volume)} PATH`, mount()), "
            "which begins with what was committed, and upload the folder to that.",
        )
    return path


def target_of(entry: MountEntry) -> Target:
    """The volume of a copy, as this process may ask its store."""
    assert entry.working_copy is not None
    return Target(entry.volume, stores.open_located(entry.store_url), WorkingCopy(Path(entry.working_copy)))


@contextmanager
def turn(entry: MountEntry) -> Iterator[None]:
    """Of calls that look at the folder or change what is known of it, one at a time."""
    with _turn(Path(entry.working_copy or entry.id)):
        yield


@contextmanager
def _turn(place: Path) -> Iterator[None]:
    with reservation.turn(f"copy {place}", lambda: False, doing="works on this copy"):
        yield
