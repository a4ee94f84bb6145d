"""An opened volume or version: engine, residency, store and writer. `opening` creates and closes
it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from cowfs.base import interruptible
from cowfs.base.errors import LeaseLostError, NoSpaceError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import VersionId
from cowfs.control import SessionSpec
from cowfs.format.records import StoreRecord
from cowfs.format.store_url import StoreUrl
from cowfs.native import Engine, Owners
from cowfs.session.claiming import Claiming
from cowfs.session.files import Files, this_process
from cowfs.session.profiles.recording import Recorder
from cowfs.session.profiles.replaying import Replayer
from cowfs.session.residency.residency import Residency
from cowfs.session.room import Room
from cowfs.session.scratch import Scratch
from cowfs.store import ObjectStore
from cowfs.store.reliability.patience import CLOSING_S, Patience, patience_of
from cowfs.version.commit import Base, CommitRequest, ProgressListener
from cowfs.writer import owners
from cowfs.writer.writer import Writer


@dataclass(frozen=True)
class Resumed:
    """The work recovered from a journal: records replayed, bytes of a torn tail cut off, extents
    lost to a power failure.

    lost_files: paths of files with bytes that the local disk lost otherwise.
    """

    records: int = 0
    cut_bytes: int = 0
    dropped_extents: int = 0
    lost_files: tuple[str, ...] = ()


@dataclass
class Session:
    """One opened volume or version. `writer` is None for read-only mounts, and for a scratch until
    it has adopted a volume. Engine, residency and committer are thread-safe.

    owners: the owner mapping of a mount. files: the volume's files, for this process. is_continued:
    whether it goes on with the mount of a process that was killed. Then it gets its writer while it
    is used (`claiming`). on_version: called after each commit. is_left_dirty: whether uncommitted
    work stayed in the working copy; known once the session is closed.
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
    claiming: Claiming | None = None
    on_version: Callable[[], None] = lambda: None
    recorder: Recorder | None = None
    replayer: Replayer | None = None
    is_continued: bool = False
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
        """The version the mount is based on now: the opened one, or the last one committed."""
        return self.writer.committer.base if self.writer is not None else self.opened

    @property
    def volume(self) -> str:
        """The volume that commits go to; without a writer, the volume of the version."""
        return self.writer.lease.volume if self.writer is not None else self.spec.volume

    def commit(self, request: CommitRequest, progress: ProgressListener = lambda _: None) -> Base:
        """Publishes everything written before the call. If the store is on the working copy's own
        disk and the disk is full, staging and caches give up space for it. When it runs on a helper
        thread and is interrupted, it ends soon; its outcome is then known, unless the store has not
        confirmed it."""
        with interruptible.register_stop(self.hurry):
            try:
                return self._commit(request, progress)
            finally:
                if not interruptible.is_wanted():
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
                self.on_version()
                return base

    def wait_patiently(self) -> None:
        """Applies the store timeout of the mount options from now on."""
        self._patience.limit_s = self.spec.options.store_timeout_s
        self._patience.expect_answers()

    def mark_ready(self) -> None:
        """Marks the mount as established: other attempts to mount the volume are refused at
        once."""
        if self.writer is not None:
            self.writer.working_copy.mark_ready()

    def hear_of_waits(self, listener: Callable[[str], None]) -> None:
        """Registers a listener, as for `Patience`, for the session's store."""
        self._patience.listener = listener

    @property
    def refusal(self) -> str | None:
        """The store's message if it denied the last request; None otherwise."""
        refused = self._patience.refusal
        return None if refused is None else refused.message

    def hurry(self) -> None:
        """Makes calls that wait for the store give up soon, because the mount ends. Unfinished work
        is left to the next mount."""
        self._patience.limit_s = min(self._patience.limit_s, CLOSING_S)

    def mark_ending(self) -> None:
        """Marks the mount as ending: the remaining steps are short, and other attempts to mount the
        volume wait for them."""
        if self.writer is not None:
            self.writer.working_copy.mark_ending()

    @property
    def _patience(self) -> Patience:
        return patience_of(self.store) or Patience()
