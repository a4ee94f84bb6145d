"""The session of this process that a volume's object uses while the volume is not mounted. All
objects of this process share it, whichever of them has opened it.

The first call of `vol.files` that writes, or that finds uncommitted work on this machine, opens it.
commit keeps it; finalize, unmount, discard, mount, the end of a block, the end of the last object
and that of the interpreter end it. Without a session, calls read the newest version.

Threads: any; the volume's lock guards opening and ending.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cowfs.api import stores
from cowfs.api.access import file_access, file_session
from cowfs.api.access.file_session import FileSession, SessionEnded
from cowfs.api.mounts import kept_work
from cowfs.api.upkeep.copied_stores import are_apart
from cowfs.base import interruptible
from cowfs.control import MountOptions
from cowfs.machine.working_copy import WorkingCopy
from cowfs.version.names import volumes

if TYPE_CHECKING:
    from cowfs.base.ids import VersionId
    from cowfs.version.commit import Base, CommitRequest, ProgressListener


class UsedFiles:
    def __init__(self) -> None:
        self._held: FileSession | None = None
        self._read: FileSession | None = None
        self._head_number = 0

    def found(self, store: stores.OpenStore | None, volume: str) -> FileSession | None:
        """The open session, if there is one. store None: the volume was not looked up yet."""
        if self._held is not None and self._held.is_usable:
            return self._held
        if store is not None:
            found = file_session.find(file_session.key_of(store.record.store_id, volume))
            self._held = found if found is None or not are_apart(found.store_url, store.url) else None
        return self._held if store is not None else None

    def opened(self, store: stores.OpenStore, working_copy: WorkingCopy, options: MountOptions) -> FileSession:
        """LeaseHeldError: another process or machine writes to the volume."""
        held = self.found(store, working_copy.volume)
        if held is None:
            held = self._held = file_access.of_volume(store, working_copy, options)
        return held

    def newest(self, store: stores.OpenStore, working_copy: WorkingCopy) -> file_access.Opens | None:
        """Opens the newest version without a lease. Costs two requests if it is the version of the
        last call. None: this machine may have work that it lacks, or a session of the volume."""
        volume = working_copy.volume
        if self.found(store, volume) is not None:
            return None
        if working_copy.may_have_uncommitted or kept_work.elsewhere(working_copy, store):
            return None
        head = volumes.read_head(store.objects, volume, likely=self._head_number)
        version = head.version.hex() if head.version is not None else None
        opens = partial(file_access.of_version, store, volume, version, b"")
        self._head_number, self._read = head.number, opens()  # stays open for the next call
        return opens

    def is_dirty(self) -> bool | None:
        """Whether there is work in no version; None: no session is open."""
        try:
            if self._held is not None:
                with self._held.used() as session:
                    return session.engine.is_dirty()
        except SessionEnded:
            pass
        return None

    def measure_work(self) -> tuple[int, int] | None:
        """Files with contents in no version, and their bytes that are not in the store; None: there
        is no work, or no session is open."""
        try:
            if self._held is not None:
                with self._held.used() as session:
                    return session.writer.committer.measure_work() if session.writer is not None else None
        except SessionEnded:
            pass
        return None

    def commit(self, request: CommitRequest, progress: ProgressListener) -> tuple[VersionId | None, Base] | None:
        """The version before, and the published one; None: no session is open."""
        try:
            if (held := self._held) is not None:
                return interruptible.run_with_listener(lambda tell: _commit(held, request, tell), progress)
        except SessionEnded:
            pass
        return None

    def works_in(self, working_copy: WorkingCopy) -> bool:
        """Whether the session's work is in that working copy."""
        try:
            if self._held is not None:
                with self._held.used() as session:
                    return session.spec.working_copy == str(working_copy.path)
        except SessionEnded:
            pass
        return False

    def end(self, *, force: bool, discard: bool = False) -> bool:
        """Returns whether a session was open. ConflictError, unless forced, while files of it are
        open."""
        self._read = None
        held = self._held
        if held is None or not held.is_usable:
            return False
        if not force:
            held.require_unused()
        self._held = None
        held.end(discard=discard)
        return True


def _commit(held: FileSession, request: CommitRequest, progress: ProgressListener) -> tuple[VersionId | None, Base]:
    with held.used() as session:
        before = session.base.version_id
        return before, session.commit(request, progress)
