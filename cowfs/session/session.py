"""An opened volume or version: engine, residency, store, and what writes. `opening` makes it and
takes it down again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from cowfs import apart
from cowfs.control import SessionSpec
from cowfs.errors import (
    InvalidStateError,
    LeaseLostError,
    NoSpaceError,
)
from cowfs.format.records import StoreRecord
from cowfs.format.store_url import StoreUrl
from cowfs.ids import VersionId
from cowfs.machine.working_copy import WorkingCopy
from cowfs.native import Engine, Owners
from cowfs.session import owners
from cowfs.session.committer import Committer
from cowfs.session.files import Files, this_process
from cowfs.session.recording import Recorder
from cowfs.session.replaying import Replayer
from cowfs.session.residency import Residency
from cowfs.session.room import Room
from cowfs.session.scratch import Scratch
from cowfs.store import ObjectStore
from cowfs.store.leases import Lease
from cowfs.store.patience import CLOSING_S, Patience, patience_of
from cowfs.values import dataclass
from cowfs.version.commit import Base, CommitRequest, ProgressListener
from cowfs.version.protection import Protection


@dataclass(frozen=True)
class Resumed:
    """What a kept journal gave back: records replayed, bytes of a torn tail cut off, extents lost
    to a power failure.

    lost_files: paths of files with bytes that the local disk lost otherwise.
    """

    records: int = 0
    cut_bytes: int = 0
    dropped_extents: int = 0
    lost_files: tuple[str, ...] = ()


class Writer:
    """The writable side of a session. `lease_lost` is set once another writer has taken over;
    commits then raise it. `overtaken_by`: what another writer has made of the volume, as far as
    this session has noticed when it was opened on older, uncommitted work, or when it committed."""

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


@dataclass
class Session:
    """One opened volume or version. `writer` is None for read-only mounts, and for a scratch until
    it has adopted a volume. Engine, residency and committer are
    thread-safe.

    owners: whom a mount shows in whose place. files: the volume's files, for this process.
    is_left_dirty: whether uncommitted work stayed in the working copy; known once the session is
    closed.
    """

    spec: SessionSpec
    store: ObjectStore
    record: StoreRecord
    engine: Engine
    residency: Residency
    opened: Base
    resumed: Resumed = Resumed()
    writer: Writer | None = None
    scratch: Scratch | None = None
    recorder: Recorder | None = None
    replayer: Replayer | None = None
    is_left_dirty: bool = False
    room: Room = field(init=False)
    owners: Owners = field(init=False)
    files: Files = field(init=False)

    def __post_init__(self) -> None:
        self.room = Room(self.spec, self.engine)
        self.owners = owners.of_session(self.engine, self.spec.options)
        self.files = Files(self.engine, self.residency, this_process(self.owners), self.room.relieve)

    @property
    def base(self) -> Base:
        """The version the mount stands on now: the opened one, or the last one committed."""
        return self.writer.committer.base if self.writer is not None else self.opened

    @property
    def volume(self) -> str:
        """What commits go to; without a writer, where the version is from."""
        return self.writer.lease.volume if self.writer is not None else self.spec.volume

    def commit(self, request: CommitRequest, progress: ProgressListener = lambda _: None) -> Base:
        """Publishes what was written before the call. A store on the working copy's own disk, which
        is full, gets room that staging and caches can give up. Done apart, it ends soon when it is
        given up, and by then its outcome is known, unless the store has not told it."""
        with apart.stopped_by(self.hurry):
            try:
                return self._commit(request, progress)
            finally:
                if not apart.is_wanted():
                    self.wait_patiently()

    def _commit(self, request: CommitRequest, progress: ProgressListener) -> Base:
        assert self.writer is not None, "a writable session"
        while True:
            try:
                base = self.writer.committer.commit(request, progress)
            except LeaseLostError as error:
                if newer := error.details.get("version"):
                    self.writer.overtaken_by = VersionId.from_hex(newer)
                raise
            except NoSpaceError:
                if not self.room.makes_room_for(StoreUrl.parse(self.store.url)):
                    raise
            else:
                self.room.release_committed()
                return base

    def wait_patiently(self) -> None:
        """From now on a store that does not answer is waited for as long as the mount was told
        to."""
        self._patience.limit_s = self.spec.options.store_timeout_s

    def mark_ready(self) -> None:
        """The mount stays: whoever wants to mount the volume, too, is refused at once."""
        if self.writer is not None:
            self.writer.working_copy.mark_ready()

    def hear_of_waits(self, listener: Callable[[str], None]) -> None:
        """listener: as of `Patience`, for the session's store."""
        self._patience.listener = listener

    @property
    def refusal(self) -> str | None:
        """What the store said when it did not allow the last request; None while it does."""
        refused = self._patience.refusal
        return None if refused is None else refused.message

    def hurry(self) -> None:
        """The mount ends: calls that wait for the store give up soon, and what they would have done
        is left to the next mount."""
        self._patience.limit_s = min(self._patience.limit_s, CLOSING_S)

    def mark_ending(self) -> None:
        """The mount is over: what is left to do is brief, and whoever wants to mount the volume
        again waits for it."""
        if self.writer is not None:
            self.writer.working_copy.mark_ending()

    @property
    def _patience(self) -> Patience:
        return patience_of(self.store) or Patience()
