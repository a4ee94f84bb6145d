"""Answers the requests of a mount's control socket (`control.messages` defines them and their
types).

Requests run on connection threads, one commit at a time. A commit begins with `Mappings.flush`, so
that it includes everything that was written or stored before it was requested. Progress of a
commit, and waits for the store, are reported to all callers that have requested one. Only the
caller of the commit hears that it is frozen: what the others write is in their own commits.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from cowfs.base import clock, failpoints, log
from cowfs.base.errors import AccessDeniedError, CowfsError, InvalidStateError, ReadOnlyError
from cowfs.base.hints import Command
from cowfs.control import Handler, Listener, MountSpec, messages
from cowfs.control.binding import Binding
from cowfs.control.handover import Handover
from cowfs.control.messages import (
    Adoption,
    Committed,
    Compared,
    Comparison,
    Ending,
    Left,
    LostFile,
    Measured,
    MountStatus,
    Nothing,
    Pong,
    Restoration,
    Restored,
    Waiting,
    Work,
    WriterStatus,
)
from cowfs.control.protocol import fitting
from cowfs.daemon import stale_names
from cowfs.daemon.audience import Audience
from cowfs.daemon.feeding import Feeding
from cowfs.daemon.mappings import Mappings
from cowfs.format import backends
from cowfs.session.keeper import Keeper
from cowfs.session.session import Session
from cowfs.session.work_comparing import compare_working
from cowfs.session.work_restoring import Stale, find_path, restore
from cowfs.store.backends.s3.s3_errors import refusal_of
from cowfs.store.credentials import aws
from cowfs.store.refs import refs
from cowfs.version.commit import FROZEN, Base, CommitRequest, Progress
from cowfs.version.names.volumes import locator
from cowfs.writer.acquiring import open_base
from cowfs.writer.writer import Writer

_log = log.get("mount")

STATUS_WAITS_S = 2.0
"""For a session that goes on with a mount to become the volume's writer: usually no wait."""
LOOKED_AT = 16
"""How many heads are searched for that of a commit whose answer was lost."""


class Requests:
    """`end(force, discard)` takes the mount down and returns once everything is released; raises
    ConflictError while in use. `detach()` takes it off its path; it ends when its last user is
    gone. `transport()` returns what carries the kernel's requests, `waiting()` those that wait.
    `feeding`: the source of the store's credentials. `adopted(volume)` records the volume that a
    scratch writes to. `bind(binding)` binds the mount to a process, or ends that.
    `unsupervised()`: why the mount ends with this process."""

    def __init__(
        self,
        spec: MountSpec,
        session: Session,
        keeper: Keeper,
        mappings: Mappings,
        end: Callable[[bool, bool], None],
        detach: Callable[[], None],
        transport: Callable[[], str],
        waiting: Callable[[], Waiting | None] = lambda: None,
        feeding: Feeding | None = None,
        adopted: Callable[[str], None] = lambda volume: None,
        bind: Callable[[Binding], None] = lambda binding: None,
        unsupervised: Callable[[], str] = lambda: "",
    ) -> None:
        self._spec = spec
        self._session = session
        self._mappings = mappings
        self._keeper = keeper
        self._end = end
        self._take_off = detach
        self._transport = transport
        self._waiting = waiting
        self._feeding = feeding or Feeding(Handover())
        self._adopted = adopted
        self._bind_process = bind
        self._unsupervised = unsupervised
        self._since_ns = clock.now_ns()
        self._commits = threading.Lock()
        self._audience = Audience()
        session.hear_of_waits(self._audience.wait)
        self._ended = False
        self.is_committing = False

    @property
    def handlers(self) -> Mapping[str, Handler]:
        answers = (
            messages.PING.make_handler(self._ping),
            messages.STATUS.make_handler(self._status),
            messages.COMMIT.make_handler(self._commit),
            messages.COMPARE.make_handler(self._compare),
            messages.RESTORE.make_handler(self._restore),
            messages.ADOPT.make_handler(self._adopt),
            messages.UNMOUNT.make_handler(self._unmount),
            messages.DETACH.make_handler(self._detach),
            messages.DISCARD.make_handler(self._discard),
            messages.FEED.make_handler(lambda offer, _: self._feeding.offer(offer)),
            messages.BIND.make_handler(self._bind),
            messages.MEASURE.make_handler(self._measure),
            messages.ACKNOWLEDGE.make_handler(self._acknowledge),
        )
        return dict(answers)

    def finish(self, timeout_s: float) -> None:
        """Prevents new commits, and waits for a running one, at most timeout_s."""
        self._ended = True
        if self._commits.acquire(timeout=timeout_s):
            self._commits.release()

    @property
    def has_writer(self) -> bool:
        return self._session.writer is not None

    def wait_for_commit(self) -> None:
        """Returns when no commit is under way."""
        with self._commits:
            pass

    def commit_left(self, request: CommitRequest) -> Committed | None:
        """Publishes work whose process is gone, after a commit under way. None: there is none."""
        self.wait_for_commit()
        self._mappings.flush()
        if not self._session.engine.is_dirty():
            return None
        return self._commit(request, lambda _: None)

    def _bind(self, binding: Binding, listener: Listener) -> Nothing:
        self._bind_process(self.spare_earlier_work(binding))
        return Nothing()

    def spare_earlier_work(self, binding: Binding) -> Binding:
        """With "keep" for "discard", if there is work that the process did not write."""
        is_spared = binding.on_error == "discard" and self.has_writer and self._session.engine.is_dirty()
        return replace(binding, on_error="keep") if is_spared else binding

    def _measure(self, _: Nothing, listener: Listener) -> Measured:
        if self._session.claiming is not None:
            self._session.claiming.wait()
        writer, base = self._session.writer, self._session.base
        found = writer.committer.measure_work() if writer is not None else None
        if found is None:
            return Measured(None)
        since_ns = base.manifest.created_ns if base.manifest is not None else None
        return Measured(Work(*found, base.version_id, since_ns))

    def _acknowledge(self, _: Nothing, listener: Listener) -> Nothing:
        """As the heartbeat does, without its pause."""
        writer = self._session.writer
        if writer is not None and writer.lease_lost is None:
            writer.committer.acknowledge_collections()
        return Nothing()

    def _ping(self, _: Nothing, listener: Listener) -> Pong:
        return Pong(os.getpid())

    def _status(self, _: Nothing, listener: Listener) -> MountStatus:
        session, spec = self._session, self._spec
        if session.claiming is not None:
            session.claiming.wait(STATUS_WAITS_S)
        base = session.base
        return MountStatus(
            pid=os.getpid(),
            registration=spec.registration,
            mount_path=spec.mount_path,
            source=spec.source,
            store_url=session.store.url,
            store_id=session.record.store_id.hex(),
            volume=session.volume,
            read_only=spec.is_read_only,
            is_scratch=spec.kind == "scratch",
            version=base.version_id,
            head_number=base.head_number,
            since_ns=self._since_ns,
            cache_dir=str(spec.options.cache_path),
            working_copy=spec.working_copy,
            transport=self._transport(),
            unsupervised=self._unsupervised() or None,
            inodes_in_memory=session.engine.inodes_in_memory(),
            memory_bytes=_memory_bytes(),
            abandoned_loads=self._keeper.abandoned_loads,
            waiting=self._waiting(),
            credentials_problem=self._feeding.problem or session.refusal,
            writer=None if session.writer is None and session.claiming is None else self._writer_status(session.writer),
        )

    def _writer_status(self, writer: Writer | None) -> WriterStatus:
        """writer None: the session is not the writer again yet (`claiming`)."""
        keeper, lease_lost = self._keeper, writer.lease_lost if writer is not None else None
        return WriterStatus(
            is_dirty=self._session.engine.is_dirty(),
            is_committing=self.is_committing,
            epoch=writer.lease.epoch if writer is not None else 0,
            lease_lost=lease_lost.message if lease_lost is not None else None,
            heartbeat_age_s=round(clock.monotonic_s() - keeper.renewed_s, 1),
            uploaded_bytes=keeper.uploaded_bytes,
            upload_error=keeper.upload_error.message if keeper.upload_error else None,
            resumed_records=self._session.resumed.records,
            lost_files=tuple(LostFile(*each) for each in writer.committer.lost.paths()) if writer is not None else (),
            overtaken_by=writer.overtaken_by if writer is not None else None,
        )

    def _commit(self, request: CommitRequest, listener: Listener) -> Committed:
        writer = self._writer()
        with self._asking(listener), self._commits:
            self._require_not_ended()
            if (done := self._find_done(request)) is not None:
                return self._make_answer(done, is_new=True)
            if writer.lease_lost is not None:
                raise writer.lease_lost
            self.is_committing = True
            try:
                before = writer.committer.base
                self._mappings.flush()
                self._mappings.check()
                failpoints.hit("commit-mappings-flushed")
                base = self._session.commit(request, partial(self._report, listener))
            finally:
                self._audience.end()
                self.is_committing = False
        return self._make_answer(base, is_new=base.version_id != before.version_id)

    def _find_done(self, request: CommitRequest) -> Base | None:
        """What the process before this one has made of the request, without answering it."""
        session = self._session
        if not (session.is_continued and request.write_id):
            return None
        heads = refs.backwards(session.store, refs.head(session.volume), session.base.head_number)
        for number, record in islice(heads, LOOKED_AT):
            if record.write_id.hex() == request.write_id:
                return open_base(session.store, number, record.version)
        return None

    def _report(self, caller: Listener, progress: Progress) -> None:
        if progress.stage == FROZEN:
            self._audience.tell_one(caller, progress)
        else:
            self._audience.tell(progress)

    def _compare(self, wanted: Comparison, listener: Listener) -> Compared:
        self._writer()
        with self._asking(listener), self._commits:
            self._mappings.flush()
            found = compare_working(self._session, wanted)
        if fitting(found.changes) < len(found.changes):
            raise InvalidStateError(
                f"the comparison has {len(found.changes)} changes, more than one reply can hold",
                hint=f"Compare folder by folder ({Command('diff', 'NAME:FOLDER')}, path=), or commit, and compare the two versions.",
            )
        return found

    def _restore(self, wanted: Restoration, listener: Listener) -> Restored:
        working_copy = self._writer().working_copy.path
        stale = Stale(expect=partial(stale_names.note, working_copy))
        with self._asking(listener), self._commits:
            self._require_not_ended()
            self._mappings.flush()
            self._mappings.check()
            self._forget_stale(working_copy)
            try:
                done = restore(self._session, wanted, stale)
                failpoints.hit("restore-done")
            finally:
                self._mappings.forget(stale.names, stale.inodes)
                stale_names.forget(working_copy)
        count = fitting(done.paths)
        return replace(done, paths=done.paths[:count], more=len(done.paths) - count)

    def end_killed_restore(self, working_copy: Path) -> None:
        """Makes the kernel forget what a restore has changed whose process was killed."""
        try:
            with self._commits:
                self._forget_stale(working_copy)
        except (CowfsError, OSError) as error:
            _log.warning("programs may see names and files as before a restore that was killed: %s", error)

    def _forget_stale(self, working_copy: Path) -> None:
        if (stale := stale_names.recall(working_copy, partial(find_path, self._session))) is not None:
            self._mappings.forget(stale.names, stale.inodes)
            stale_names.forget(working_copy)

    def _adopt(self, adoption: Adoption, listener: Listener) -> Nothing:
        if (scratch := self._session.scratch) is None:
            raise InvalidStateError(
                f"{self._spec.mount_path} is not a scratch mount",
                hint="Commit it without a name, and fork the version.",
            )
        with self._asking(listener), self._commits:
            scratch.adopt(adoption.volume)
            self._adopted(adoption.volume)
        return Nothing()

    def _unmount(self, ending: Ending, listener: Listener) -> Left:
        self._end(ending.force, False)
        base = self._session.base
        return Left(base.version_id, base.head_number, self._session.is_left_dirty)

    def _detach(self, _: Nothing, listener: Listener) -> Nothing:
        self._take_off()
        return Nothing()

    def _discard(self, ending: Ending, listener: Listener) -> Nothing:
        if self._session.scratch is None and self._session.claiming is None:
            self._writer()
        self._end(ending.force, True)
        return Nothing()

    @contextmanager
    def _asking(self, listener: Listener) -> Iterator[None]:
        """For the length of a block that may need the store: reports waits to the listener, and
        explains that refused credentials are the mount's, not the caller's."""
        with self._audience.listen(listener):
            try:
                yield
            except AccessDeniedError as error:
                is_clock = error.details.get("code") == "RequestTimeTooSkewed"
                if (
                    is_clock
                    or self._feeding.access.identity is not None
                    or not error.message.startswith(self._session.store.url)
                ):
                    raise
                hint = self._own_credentials(has_expired=refusal_of(error) == "expired")
                raise AccessDeniedError(error.message, hint=hint, details=error.details) from error

    def _own_credentials(self, *, has_expired: bool) -> str:
        path = self._spec.mount_path
        uses = f"The mount at {path} uses the credentials that it was started with, even if the shell or program has others now."
        is_of_configuration = aws.has_configuration() and not aws.are_in_variables()
        if has_expired and is_of_configuration and backends.of_url(self._session.store.url).has_aws_credentials:
            return (
                "The mount takes its credentials from the AWS configuration of the user who mounted it, and reads them again when "
                "the store reports them as expired. Renew them there (`aws sso login`, or what credential_process runs), and repeat "
                "this; nothing is lost."
            )
        if self._session.scratch is not None:
            return f"{uses} A scratch keeps nothing when it ends: copy valuable files to another place first."
        return (
            f"{uses} Nothing is lost: unmount it and mount it again with valid ones ({Command('unmount', path)}, then "
            f"{Command('mount', self._spec.volume, path)}; unmount(), then mount())."
        )

    def _require_not_ended(self) -> None:
        if self._ended:
            raise InvalidStateError("the mount is being taken down", hint="Mount the volume again; its work is kept.")

    def _writer(self) -> Writer:
        if (claiming := self._session.claiming) is not None:
            claiming.wait()
        writer = self._session.writer
        if writer is None and self._session.scratch is not None:
            raise InvalidStateError(
                f"{self._spec.mount_path} is a scratch mount: it has no volume to commit to",
                hint=f"Name a new one: {Command('commit', self._spec.mount_path, '--name', 'NAME')}, or commit_scratch() of the version.",
            )
        if writer is None:
            raise ReadOnlyError(
                f"{self._spec.mount_path} is a read-only mount of {self._spec.source}",
                hint="Fork the version and mount the fork.",
            )
        return writer

    def _make_answer(self, base: Base, *, is_new: bool) -> Committed:
        assert base.version_id is not None
        assert base.manifest is not None
        name = str(locator(self._session.store, self._session.volume, base.version_id))
        told = Committed.make_text(base.manifest, base.version_id)
        return Committed(base.version_id, name, base.head_number, is_new, told)


def _memory_bytes() -> int:
    """The resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
