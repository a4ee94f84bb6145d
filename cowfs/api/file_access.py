"""How `vol.files` reaches the files of a version or a volume, for the length of one call.

    a version                      the session of this process, read-only; one for all objects of the version
    a volume mounted here          its mount's path: what the mount's programs see, and what it commits
    a volume that is not           the session of this process, with lease, journal and recovery of a mount

When a session ends is the volume object's business
(docs/decisions/0038-whose-session-a-file-call-uses.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from cowfs import log
from cowfs import store as stores_layer
from cowfs.api import copied_stores, copies, file_session, kept_work, mount_paths, stores
from cowfs.api.file_session import FileSession, SessionEnded
from cowfs.control import MountOptions, SessionSpec
from cowfs.errors import InvalidStateError, LeaseHeldError
from cowfs.ids import StoreId
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy

if TYPE_CHECKING:
    from cowfs.session.mounted_files import MountedFiles
    from cowfs.session.opened_file import FileTree, OpenedFile

_log = log.get("volume")


class SessionAccess:
    """By a session of this process. session: gives a usable one."""

    def __init__(self, session: Callable[[], FileSession]) -> None:
        self._session = session

    @contextmanager
    def tree(self) -> Iterator[FileTree]:
        """The files, for one call."""
        with ExitStack() as stack:
            yield self._entered(stack)[0]

    def open(self, opens: Callable[[FileTree], OpenedFile]) -> tuple[OpenedFile, FileSession | None]:
        """A file that outlives the call, and the session that each use of it enters; None: it needs
        none."""
        with ExitStack() as stack:
            tree, held = self._entered(stack)
            return opens(tree), held

    def _entered(self, stack: ExitStack) -> tuple[FileTree, FileSession | None]:
        while True:
            held = self._session()
            try:
                return stack.enter_context(held.used()).files, held
            except SessionEnded:
                continue


class VolumeAccess(SessionAccess):
    """live: the volume's mount on this machine; found: the session that this process has open."""

    def __init__(
        self,
        live: Callable[[], MountEntry | None],
        found: Callable[[], FileSession | None],
        session: Callable[[], FileSession],
    ) -> None:
        super().__init__(session)
        self._live = live
        self._found = found

    def _entered(self, stack: ExitStack) -> tuple[FileTree, FileSession | None]:
        if self._found() is None:  # while there is one, there is no mount
            entry = self._live()
            if entry is not None and (files := _mounted(entry, stack)) is not None:
                return files, None
        try:
            return super()._entered(stack)
        except (LeaseHeldError, InvalidStateError):
            entry = self._live()
            if entry is None or (files := _mounted(entry, stack)) is None:
                raise
            return files, None  # somebody has mounted it since


def _mounted(entry: MountEntry, stack: ExitStack) -> MountedFiles | None:
    """None: the mount is gone. Looked at again once its root is open: before, it could go, and what
    lies below its path be taken for it."""
    from cowfs.session.mounted_files import MountedFiles

    if not mount_paths.is_there(entry):
        copies.is_whole(entry)  # an unmount that was killed ends, and the files are the volume's
        return None
    with ExitStack() as opening:
        try:
            files = opening.enter_context(MountedFiles(os.fsencode(entry.mount_path)))
        except FileNotFoundError:
            return None
        if not mount_paths.is_there(entry):
            return None
        stack.enter_context(opening.pop_all())
    return files


def of_version(store: stores.OpenStore, volume: str, version: str, folder: bytes) -> FileSession:
    """The process's session of one version, or of a folder of it."""

    def spec() -> SessionSpec:
        return SessionSpec(
            store_url=store.url,
            volume=volume,
            mode="ro",
            version=version,
            folder=os.fsdecode(folder),
            options=replace(MountOptions(), resident=False).resolved(),
        )

    return file_session.shared((store.url, store.storage, version, folder), spec, store.access)


def of_volume(store: stores.OpenStore, working_copy: WorkingCopy, options: MountOptions) -> FileSession:
    """The process's session of a volume. LeaseHeldError: another process or machine writes to
    it."""
    stores_layer.require_writable(store.record, accept_unsafe=options.accept_unsafe_store)
    key = key_of(store.record.store_id, working_copy.volume)

    def spec() -> SessionSpec:
        kept_work.warn(working_copy, store)
        return SessionSpec(
            store_url=store.url,
            volume=working_copy.volume,
            mode="rw",
            options=replace(options, take_over=False, resident=False).resolved(),
            working_copy=str(working_copy.path),
        )

    try:
        held = file_session.shared(key, spec, store.access)
    except LeaseHeldError as error:
        if not file_session.was_inherited(key):
            raise
        raise LeaseHeldError(
            f"this process was forked from one that has volume {working_copy.volume!r} open: {error.message}",
            hint="Only one process writes to a volume. Write in the parent, give each process a fork of the volume, or mount it: "
            "processes share a mount.",
            details=error.details,
        ) from error
    copied_stores.require_session_of(store, held, working_copy.volume)
    _warn_if_overtaken(held, working_copy.volume)
    return held


def key_of(store_id: StoreId, volume: str) -> tuple[str, str]:
    return store_id.hex(), volume


def _warn_if_overtaken(held: FileSession, volume: str) -> None:
    try:
        with held.used() as session:
            newer = session.writer.overtaken_by if session.writer is not None else None
            if newer is not None:
                version = session.base.version_id
                stands_on = f"version {version.hex()[:12]}" if version is not None else "the empty volume"
                _log.warning("%s", kept_work.overtaken(volume, session.spec.store_url, stands_on, newer.hex()))
    except SessionEnded:
        pass
