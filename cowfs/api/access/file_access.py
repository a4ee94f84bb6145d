"""Chooses how `vol.files` reaches the files of a version or a volume during one call.

    a version                      the session of this process, read-only; one for all objects of the version
    a volume mounted here          its mount's path: the same files as programs see, and as it commits
    a volume that is not
        this process has it open   that session: it includes the writes of this process
        to write, or there is      a session of this process, with lease, journal and recovery of a mount
        uncommitted work here
        to read, otherwise         its newest version, as above: no lease and no lock, so a writer is not blocked

The volume object decides when a session ends
(docs/decisions/0038-whose-session-a-file-call-uses.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from cowfs import store as stores_layer
from cowfs.api import stores
from cowfs.api.access import file_session
from cowfs.api.access.file_session import FileSession, SessionEnded
from cowfs.api.mounts import kept_work
from cowfs.api.mounts.base import mount_of
from cowfs.api.upkeep import copied_stores
from cowfs.api.versions.located_version import LocatedVersion
from cowfs.base import log
from cowfs.base.errors import InvalidStateError, LeaseHeldError
from cowfs.control import MountOptions, SessionSpec
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy

if TYPE_CHECKING:
    from cowfs.session.mounted_files import MountedFiles
    from cowfs.session.opened_file import FileTree, OpenedFile

_log = log.get("volume")


Opens = Callable[[], FileSession]
"""Returns a usable session on each call."""


class SessionAccess:
    """Access through a session of this process."""

    def __init__(self, session: Opens) -> None:
        self._session = session

    @contextmanager
    def tree(self, *, writes: bool = False) -> Iterator[FileTree]:
        """The files, for one call."""
        with ExitStack() as stack:
            yield self._enter(stack, writes=writes)[0]

    def open(
        self, opens: Callable[[FileTree], OpenedFile], *, writes: bool = False
    ) -> tuple[OpenedFile, FileSession | None]:
        """A file that outlives the call, and the session that each use of it enters; None: no
        session is needed."""
        with ExitStack() as stack:
            tree, held = self._enter(stack, writes=writes)
            return opens(tree), held

    def steady(self) -> SessionAccess:
        """For a call that reads the files several times. Versions that others publish meanwhile are
        not seen."""
        return self

    def _enter(self, stack: ExitStack, *, writes: bool) -> tuple[FileTree, FileSession | None]:
        return _use(self._session, stack)


class TreeAccess(SessionAccess):
    """Access to files that stay open longer than any call."""

    def __init__(self, files: FileTree) -> None:
        self._files = files

    @contextmanager
    def tree(self, *, writes: bool = False) -> Iterator[FileTree]:
        yield self._files

    def open(
        self, opens: Callable[[FileTree], OpenedFile], *, writes: bool = False
    ) -> tuple[OpenedFile, FileSession | None]:
        return opens(self._files), None


class VolumeAccess(SessionAccess):
    """live: the volume's mount on this machine. found: the session that this process has open.
    session: opens that session. newest: opens the newest version; None if this machine may have
    work that the version lacks."""

    def __init__(
        self,
        live: Callable[[], MountEntry | None],
        found: Callable[[], FileSession | None],
        session: Opens,
        newest: Callable[[], Opens | None],
    ) -> None:
        super().__init__(session)
        self._live = live
        self._found = found
        self._newest = newest

    def steady(self) -> SessionAccess:
        return VolumeAccess(self._live, self._found, self._session, cache(self._newest))

    def _enter(self, stack: ExitStack, *, writes: bool) -> tuple[FileTree, FileSession | None]:
        if self._found() is None:  # an open session rules out a mount
            entry = self._live()
            if entry is not None and (files := _find_mount(entry, stack)) is not None:
                return files, None
            if not writes and (newest := self._newest()) is not None:
                return _use(newest, stack)
        try:
            return super()._enter(stack, writes=writes)
        except (LeaseHeldError, InvalidStateError):
            entry = self._live()
            if entry is None or (files := _find_mount(entry, stack)) is None:
                raise
            return files, None  # it has been mounted since


def _use(session: Opens, stack: ExitStack) -> tuple[FileTree, FileSession]:
    while True:
        held = session()
        with suppress(SessionEnded):
            return stack.enter_context(held.used()).files, held


def _find_mount(entry: MountEntry, stack: ExitStack) -> MountedFiles | None:
    """None: the mount has ended."""
    from cowfs.session.mounted_files import MountedFiles

    mount = mount_of(entry)
    if not mount.is_there():
        mount.settle()  # completes a killed unmount; the files are then those of the volume
        return None
    if (root := mount.open_root()) is None:
        return None
    with root:
        return stack.enter_context(MountedFiles(root.path, root.fileno()))


def open_version(version: LocatedVersion) -> FileSession:
    """The process's session of a version, or of its folder."""
    return of_version(version.open_store(), version.name, version.id, version.folder)


def of_version(store: stores.OpenStore, volume: str, version: str | None, folder: bytes) -> FileSession:
    """The process's session of one version, or of a folder of it. version None: of the volume
    before its first version, which is empty."""

    def spec() -> SessionSpec:
        return SessionSpec(
            store_url=store.url,
            volume=volume,
            mode="ro",
            version=version,
            folder=os.fsdecode(folder),
            options=replace(MountOptions(), resident=False).resolved(),
        )

    return file_session.shared((store.url, store.storage, version or (volume,), folder), spec, store.access)


def of_volume(store: stores.OpenStore, working_copy: WorkingCopy, options: MountOptions) -> FileSession:
    """The process's session of a volume. LeaseHeldError: another process or machine writes to
    it."""
    stores_layer.require_writable(store.record, accept_unsafe=options.accept_unsafe_store)
    key = file_session.key_of(store.record.store_id, working_copy.volume)

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


def _warn_if_overtaken(held: FileSession, volume: str) -> None:
    try:
        with held.used() as session:
            newer = session.writer.overtaken_by if session.writer is not None else None
            if newer is not None:
                said = kept_work.overtaken(volume, session.spec.store_url, session.base.version_id, newer)
                _log.warning("%s", said)
    except SessionEnded:
        pass
