"""The session of this process that a volume's object uses while the volume is not mounted: found,
opened, committed through, ended. Whichever object of this process has opened it: they count as one.

It is opened by the first call of `vol.files`. commit keeps it; finalize, unmount, discard, mount,
the end of a block, the end of the last object and that of the interpreter end it.

Threads: any; the volume's lock guards opening and ending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cowfs import apart
from cowfs.api import file_access, file_session, stores
from cowfs.api.copied_stores import are_apart
from cowfs.api.file_session import FileSession, SessionEnded
from cowfs.control import MountOptions
from cowfs.machine.working_copy import WorkingCopy

if TYPE_CHECKING:
    from cowfs.ids import VersionId
    from cowfs.version.commit import Base, CommitRequest, ProgressListener


class UsedFiles:
    def __init__(self) -> None:
        self._held: FileSession | None = None

    def found(self, store: stores.OpenStore | None, volume: str) -> FileSession | None:
        """The open session, if there is one. store None: the volume was not looked up yet."""
        if self._held is not None and self._held.is_usable:
            return self._held
        if store is not None:
            found = file_session.find(file_access.key_of(store.record.store_id, volume))
            self._held = found if found is None or not are_apart(found.store_url, store.url) else None
        return self._held if store is not None else None

    def opened(self, store: stores.OpenStore, working_copy: WorkingCopy, options: MountOptions) -> FileSession:
        """LeaseHeldError: another process or machine writes to the volume."""
        held = self.found(store, working_copy.volume)
        if held is None:
            held = self._held = file_access.of_volume(store, working_copy, options)
        return held

    def is_dirty(self) -> bool | None:
        """Whether there is work in no version; None: no session is open."""
        try:
            if self._held is not None:
                with self._held.used() as session:
                    return session.engine.is_dirty()
        except SessionEnded:
            pass
        return None

    def commit(self, request: CommitRequest, progress: ProgressListener) -> tuple[VersionId | None, Base] | None:
        """The version before, and what is published now; None: no session is open."""
        try:
            if (held := self._held) is not None:
                return apart.run_heard(lambda tell: _committed(held, request, tell), progress)
        except SessionEnded:
            pass
        return None

    def works_in(self, working_copy: WorkingCopy) -> bool:
        """Whether the session's work lies there."""
        try:
            if self._held is not None:
                with self._held.used() as session:
                    return session.spec.working_copy == str(working_copy.path)
        except SessionEnded:
            pass
        return False

    def end(self, *, force: bool, discard: bool = False) -> bool:
        """Whether a session was open. ConflictError while files of it are open; not with force."""
        held = self._held
        if held is None or not held.is_usable:
            return False
        if not force:
            held.require_unused()
        self._held = None
        held.end(discard=discard)
        return True


def _committed(held: FileSession, request: CommitRequest, progress: ProgressListener) -> tuple[VersionId | None, Base]:
    with held.used() as session:
        before = session.base.version_id
        return before, session.commit(request, progress)
