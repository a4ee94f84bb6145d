"""The writable side of a session: working copy, lease and protection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cowfs.base.errors import InvalidStateError, LeaseLostError
from cowfs.base.ids import VersionId
from cowfs.machine.working_copy import WorkingCopy
from cowfs.store.refs.leases import Lease
from cowfs.version.publish.protection import Protection

if TYPE_CHECKING:
    from cowfs.session.committer import Committer


class Writer:
    """The writable side of a session. `lease_lost` is set once another writer has taken over;
    commits then raise it. `overtaken_by`: the version that another writer has made, if this session
    noticed it when it was opened on older, uncommitted work, or when it committed."""

    def __init__(self, working_copy: WorkingCopy, lease: Lease, protection: Protection) -> None:
        self.working_copy = working_copy
        self.lease = lease
        self.protection = protection
        self.lease_lost: LeaseLostError | None = None
        self.overtaken_by: VersionId | None = None
        self._committer: Committer | None = None

    @property
    def committer(self) -> Committer:
        if self._committer is None:
            raise InvalidStateError("the mount is not open yet", hint="Try again in a moment.")
        return self._committer

    def commit_with(self, committer: Committer) -> None:
        self._committer = committer
