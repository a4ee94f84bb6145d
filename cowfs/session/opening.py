"""Opens a volume or version: store, lease, pin, index, engine, committer. Opened in this order,
closed in reverse.

    writable    working copy's lock → store and its record → lease → pin → head settled (a crashed commit's intent, fences)
                → base index (opened beside lease and pin) → engine → journal replayed → committer
    read-only   store and its record → manifest → index → engine without staging
    scratch     a working copy that is deleted with the session → as read-only, engine with staging (scratch.py)

Everything is entered into the caller's ExitStack as it is acquired. After a failure at any step,
and at the end of the session, the engine is synced and closed first, then pin and lease are
released, and the lock last.

A working copy without uncommitted work follows the volume's head. One with uncommitted work stays
on the version it is based on. If the head has moved on since, the working copy is mounted
unchanged, and its commits raise LeaseLostError (it can be forked).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from blake3 import blake3

from cowfs.base import config, interruptible, log
from cowfs.base.errors import ConflictError, CorruptError, from_local_disk
from cowfs.base.ids import VersionId
from cowfs.control import SessionSpec
from cowfs.format.records import StoreRecord
from cowfs.format.store_url import StoreUrl
from cowfs.index import Index, Subtree
from cowfs.machine import processes
from cowfs.machine.lock import LockHolder
from cowfs.machine.state import State
from cowfs.machine.working_copy import WorkingCopy
from cowfs.native import Engine, JournalCorrupt, Recovery
from cowfs.native.constants import ROOT_INO
from cowfs.session.claiming import Claiming
from cowfs.session.committer import Committer
from cowfs.session.lost import LostFiles
from cowfs.session.profiles import profile_files
from cowfs.session.profiles.recording import Recorder
from cowfs.session.profiles.replaying import Replayer
from cowfs.session.residency.residency import Residency, count_base
from cowfs.session.room import is_near
from cowfs.session.scratch import Scratch
from cowfs.session.session import Resumed, Session
from cowfs.session.survival import Survival
from cowfs.session.work_restoring import remove_left
from cowfs.store import AMBIENT, Access, ObjectStore, load_record, require_writable
from cowfs.store.packs import PackReader
from cowfs.transfer.linked import LinkedBytes
from cowfs.version.commit import Base, Progress, ProgressListener
from cowfs.version.names import quotas
from cowfs.version.names.volumes import Head, read_head
from cowfs.version.publish.heads import is_only_fenced
from cowfs.version.publish.publisher import Publisher
from cowfs.version.publish.uploads import UploadLog
from cowfs.writer.acquiring import (
    check_cache_dir,
    claim,
    early_base,
    moving_on,
    open_base,
    open_base_index,
    open_session_store,
    prepare_working_copy,
    require_no_copy,
    settings_of,
    try_cleanup,
)
from cowfs.writer.during_opening import keep_renewed, report_replay
from cowfs.writer.writer import Writer

LOGGED_LOST_FILES = 1000
MEMORY_CACHE_BYTES = 88 << 20
"""Memory for recently decoded chunks: about the read-ahead of a mount
(native/engine/src/base/ahead.rs)."""
MEMORY_CACHE_PART = 8
"""The share of the process's memory for it, where a control group sets a limit."""

_logger = log.get("mount")


@contextmanager
def enter_session(
    spec: SessionSpec,
    report: ProgressListener = lambda _: None,
    discard: threading.Event | None = None,
    *,
    access: Access = AMBIENT,
) -> Iterator[Session]:
    """Opens a session for the length of a block, in this process: no kernel, no daemon. Uncommitted
    work stays in the working copy, unless the block sets `discard`.

    The lease and the pin of a writer are renewed meanwhile.
    """
    with ExitStack() as stack:
        session = open_session(spec, stack, discard or threading.Event(), report, access=access)
        if session.writer is not None:
            stack.enter_context(keep_renewed(session.writer))
        session.wait_patiently()
        yield session


def open_session(
    spec: SessionSpec,
    stack: ExitStack,
    discard: threading.Event,
    report: ProgressListener = lambda _: None,
    *,
    access: Access = AMBIENT,
    may_be_given_up: bool = False,
    survival: Survival | None = None,
) -> Session:
    """Raises only cowfs errors; resources acquired until then are on the stack. report: see
    `during_opening.report_replay`. access: credentials and options for the store. may_be_given_up:
    others that want the volume wait until the session's `mark_ready`, instead of being refused.
    survival: of a writable mount that goes on in another process if this one is killed.

    If `discard` is set when the stack is closed, the working copy is deleted, still under its lock.
    """
    check_cache_dir(spec.options.cache_path)
    if spec.mode != "rw":
        session = _open_scratch(spec, stack, access) if spec.kind == "scratch" else _open_read_only(spec, stack, access)
        _prepare(session, stack)
        return session
    with ExitStack() as opening:
        holder = replace(LockHolder.this_process(spec.place), is_opening=may_be_given_up)
        session = _open_writable(spec, stack, access, discard, opening, report, holder, survival)
        _prepare(session, stack)
        return session


def _failures_file(working_copy: WorkingCopy) -> Path:
    """The file that records failed syncs until the machine restarts: a control socket's directory
    is in memory on most systems."""
    name = blake3(os.fsencode(working_copy.path.resolve())).hexdigest(16)
    return config.runtime_dir() / f"{name}.failed-syncs"


def _prepare(session: Session, stack: ExitStack) -> None:
    """Applies the mount options to an opened engine."""
    options, residency, folder = session.spec.options, session.residency, os.fsencode(session.spec.folder)
    stack.callback(session.room.end)
    if options.resident:
        residency.load_namespace()
    if options.replay is not None:  # before the same file is recorded
        ranges = profile_files.load(Path(options.replay))
        session.replayer = Replayer(session.engine, residency, session.room, ranges, folder)
    if options.record is not None:
        session.recorder = Recorder(session.engine, Path(options.record), folder)
        stack.callback(session.recorder.finish)


def _open_read_only(spec: SessionSpec, stack: ExitStack, access: Access) -> Session:
    store = open_session_store(spec, stack, access).read_only()
    record = load_record(store)
    linked = LinkedBytes(store.url, access, spec.options.store_timeout_s)
    base, engine, residency = open_version_engine(spec, stack, store, linked)
    return Session(spec, store, record, engine, residency, base)


def open_version_engine(
    spec: SessionSpec,
    stack: ExitStack,
    store: ObjectStore,
    linked: LinkedBytes,
    memory_cache_bytes: int | None = None,
) -> tuple[Base, Engine, Residency]:
    """Opens the engine of the version that a read-only specification names."""
    version = spec.version or ""
    base = open_base(store, 0, VersionId.from_hex(version) if version else None)
    packs = PackReader(store)
    index = open_base_index(spec, stack, store, packs, base)
    if spec.folder:
        index = Subtree(index, os.fsencode(spec.folder), f"{spec.volume}@{version[:12]}")
        stack.callback(try_cleanup, "close the folder's index", index.close)
    engine = _open_engine(spec, stack, index, memory_cache_bytes=memory_cache_bytes)
    return base, engine, _residency(stack, engine, index, packs, linked)


def _open_scratch(spec: SessionSpec, stack: ExitStack, access: Access) -> Session:
    assert spec.working_copy is not None
    working_copy = WorkingCopy(Path(spec.working_copy))
    stack.enter_context(working_copy.lock(LockHolder.this_process(spec.place)))
    stack.callback(working_copy.delete)
    store = open_session_store(spec, stack, access)
    record = load_record(store)
    base = open_base(store, 0, VersionId.from_hex(spec.version) if spec.version is not None else None)
    working_copy.create_if_absent(State(store.url, record.store_id, spec.volume, 0, base.version_id))
    packs = PackReader(store)
    index = open_base_index(spec, stack, store, packs, base)
    discard = threading.Event()
    discard.set()
    engine = _open_engine(spec, stack, index, working_copy, discard)
    working_copy.give_up_ballast = engine.give_up_ballast
    residency = _residency(stack, engine, index, packs, LinkedBytes(store.url, access, spec.options.store_timeout_s))
    engine.recover()  # finds nothing: the directory is new
    engine.replay()
    session = Session(spec, store, record, engine, residency, base)
    session.scratch = Scratch(lambda volume, held: _adopt(session, index, packs, working_copy, volume, held))
    stack.callback(session.scratch.close)
    return session


def _adopt(
    session: Session, index: Index, packs: PackReader, working_copy: WorkingCopy, volume: str, held: ExitStack
) -> None:
    """Makes the scratch's session the writer of a volume with the same version. index: the index of
    the version the session was opened on."""
    store, base = session.store, session.base
    require_writable(session.record, accept_unsafe=session.spec.options.accept_unsafe_store)
    if session.writer is not None:
        session.writer.committer.require_settled()
        index = session.writer.committer.index
    head = read_head(store, volume)
    working_copy.store_state(
        replace(working_copy.state, volume=volume, head_number=head.number, epoch=0, pin=None, intent=None)
    )
    spec = replace(session.spec, volume=volume, mode="rw", version=None)
    with interruptible.meanwhile(partial(settings_of, spec, store)) as settings:
        writer, head = claim(spec, held, store, working_copy)
    held.callback(try_cleanup, "remove the pin", writer.protection.remove)
    if head.version != base.version_id:
        raise ConflictError(
            f"the last version of volume {volume!r} is no longer the one that this scratch is based on",
            hint="Commit the scratch under another name.",
        )
    kept = settings()
    # Until now no quota limited the writes.
    quotas.check(volume, kept.quota_bytes, index.counted_bytes, session.engine.statfs()[0])
    session.engine.set_quota(kept.quota_bytes)
    working_copy.rebase(head.number, head.version)
    writer.protection.follow(head.number)
    _commit_with(
        session, writer, index, packs, Base(head.number, head.version, base.manifest, head.check), kept.compress, held
    )
    session.writer = writer


def _open_writable(
    spec: SessionSpec,
    stack: ExitStack,
    access: Access,
    discard: threading.Event,
    opening: ExitStack,
    report: ProgressListener,
    holder: LockHolder,
    survival: Survival | None,
) -> Session:
    assert spec.working_copy is not None
    working_copy = WorkingCopy(Path(spec.working_copy))
    is_continued = survival is not None and survival.is_continued
    stack.enter_context(working_copy.lock(holder, survival.lock if survival is not None else None))
    require_no_copy(working_copy)
    stack.callback(lambda: working_copy.delete() if discard.is_set() else None)
    working_copy.make_room()
    store = open_session_store(spec, stack, access)
    record = load_record(store)
    prepare_working_copy(spec, working_copy, store, record)
    packs = PackReader(store)
    if is_continued and working_copy.state.intent is None:
        return _go_on(spec, stack, access, discard, report, survival, working_copy, store, record)
    with (
        interruptible.meanwhile(partial(settings_of, spec, store)) as settings,
        early_base(spec, store, packs, working_copy) as take_early,
    ):
        writer, head = claim(spec, stack, store, working_copy)
        opening.enter_context(keep_renewed(writer))
        opening.enter_context(interruptible.meanwhile(writer.protection.catch_up))
        if head.version != working_copy.state.base_version and not (is_continued or working_copy.may_have_uncommitted):
            working_copy.rebase(head.number, head.version)  # its old base may have been collected
            writer.protection.follow(head.number)
        inner = stack.enter_context(ExitStack())
        early = take_early(head, inner)

    base, index = early or _open_base(spec, inner, store, packs, working_copy)
    engine, recovery = _open_base_engine(spec, inner, index, working_copy, discard, report, survival)
    state = working_copy.state
    is_moved = head.version != state.base_version
    # The kernel of a mount that goes on knows the files of this version.
    may_move = recovery.records == 0 and not is_continued
    if may_move or (not is_moved and is_only_fenced(store, spec.volume, state.head_number, head)):
        working_copy.rebase(head.number, head.version)
        writer.protection.follow(head.number)
        if is_moved:
            inner.close()
            base, index = _open_base(spec, inner, store, packs, working_copy)
            engine, recovery = _open_base_engine(spec, inner, index, working_copy, discard, report, survival)
    else:
        _note_overtaken(writer, head)

    kept = settings()
    engine.set_quota(kept.quota_bytes)
    working_copy.give_up_ballast = engine.give_up_ballast
    residency = _residency(stack, engine, index, packs, LinkedBytes(store.url, access, spec.options.store_timeout_s))
    resumed = _replay(engine, residency, recovery, report)
    if is_continued:  # and a head was put whose outcome was not known
        engine.expect_earlier_references()
    number = working_copy.state.head_number
    base = replace(base, head_number=number, head_check=head.check if number == head.number else None)
    session = Session(spec, store, record, engine, residency, base, resumed, writer, is_continued=is_continued)
    committer = _commit_with(session, writer, index, packs, base, kept.compress, stack)
    session.resumed = replace(resumed, lost_files=_log_lost(committer.lost))
    remove_left(session, working_copy)
    stack.callback(_drop_pin, session, discard)
    return session


def _go_on(
    spec: SessionSpec,
    stack: ExitStack,
    access: Access,
    discard: threading.Event,
    report: ProgressListener,
    survival: Survival | None,
    working_copy: WorkingCopy,
    store: ObjectStore,
    record: StoreRecord,
) -> Session:
    """The session of a mount whose process was killed. It becomes the volume's writer beside its
    requests, which wait for no store but for bytes that are only there."""
    claiming, packs = Claiming(), PackReader(store)
    stack.callback(claiming.give_back)
    base, index = _open_base(spec, stack, store, packs, working_copy)
    engine, recovery = _open_base_engine(spec, stack, index, working_copy, discard, report, survival)
    engine.set_quota(spec.quota_bytes or 0)
    working_copy.give_up_ballast = engine.give_up_ballast
    residency = _residency(stack, engine, index, packs, LinkedBytes(store.url, access, spec.options.store_timeout_s))
    resumed = _replay(engine, residency, recovery, report)
    engine.expect_earlier_references()
    session = Session(spec, store, record, engine, residency, base, resumed, is_continued=True, claiming=claiming)
    remove_left(session, working_copy)
    stack.callback(_drop_pin, session, discard)
    stack.callback(claiming.stop)
    claiming.start(partial(_claim_again, session, index, packs, working_copy, claiming))
    return session


def _claim_again(
    session: Session, index: Index, packs: PackReader, working_copy: WorkingCopy, claiming: Claiming
) -> None:
    spec, store, claimed = session.spec, session.store, ExitStack()
    with claimed:
        writer, head = claim(spec, claimed, store, working_copy)
        state = working_copy.state
        is_moved = head.version != state.base_version
        if not is_moved and is_only_fenced(store, spec.volume, state.head_number, head):
            working_copy.rebase(head.number, head.version)
            writer.protection.follow(head.number)
        else:
            _note_overtaken(writer, head)
        writer.protection.catch_up()
        kept = settings_of(spec, store)
        session.engine.set_quota(kept.quota_bytes)
        number = working_copy.state.head_number
        base = replace(session.opened, head_number=number, head_check=head.check if number == head.number else None)
        committer = _commit_with(session, writer, index, packs, base, kept.compress, claiming.committing)
        claiming.lease.enter_context(claimed.pop_all())
    session.resumed = replace(session.resumed, lost_files=_log_lost(committer.lost))
    session.writer = writer


def _note_overtaken(writer: Writer, head: Head) -> None:
    writer.overtaken_by = head.version
    _logger.warning(
        "another writer has committed to volume %s; the uncommitted work here can only be forked", writer.lease.volume
    )


def _commit_with(
    session: Session, writer: Writer, index: Index, packs: PackReader, base: Base, compress: bool, stack: ExitStack
) -> Committer:
    """Gives the writer its committer. index: the base's, which engine and residency use as well."""
    working_copy, residency = writer.working_copy, session.residency
    publisher = Publisher(
        session.store,
        store_id=session.record.store_id,
        volume=writer.lease.volume,
        epoch=writer.lease.epoch,
        base=base,
        index=index,
        packs=packs,
        numbers=residency.pack_numbers,
        protection=writer.protection,
        record_intent=working_copy.record_intent,
        record_published=working_copy.record_published,
        drop_intent=working_copy.drop_intent,
        max_uploads=session.spec.options.max_uploads,
        uploads=UploadLog(working_copy.uploads_path),
        compress=compress,
    )
    committer = Committer(session.engine, residency, publisher)
    stack.callback(try_cleanup, "close the committer", committer.close)
    writer.commit_with(committer)
    return committer


def _open_base(
    spec: SessionSpec, stack: ExitStack, store: ObjectStore, packs: PackReader, working_copy: WorkingCopy
) -> tuple[Base, Index]:
    with moving_on(store, working_copy):
        base = open_base(store, working_copy.state.head_number, working_copy.state.base_version)
        return base, open_base_index(spec, stack, store, packs, base)


def _open_base_engine(
    spec: SessionSpec,
    stack: ExitStack,
    index: Index,
    working_copy: WorkingCopy,
    discard: threading.Event,
    report: ProgressListener,
    survival: Survival | None,
) -> tuple[Engine, Recovery]:
    engine = _open_engine(spec, stack, index, working_copy, discard)
    if survival is not None:
        engine.keep_for_next_server(survival.table)
    try:
        with report_replay(engine, report):
            recovery = engine.recover()
    except JournalCorrupt as error:
        raise _corrupt_journal(working_copy, error) from error
    return engine, recovery


def _residency(stack: ExitStack, engine: Engine, index: Index, packs: PackReader, linked: LinkedBytes) -> Residency:
    residency = Residency(engine, index, packs, linked)
    stack.callback(try_cleanup, "end the running fetches", residency.close)
    return residency


def _open_engine(
    spec: SessionSpec,
    stack: ExitStack,
    index: Index,
    working_copy: WorkingCopy | None = None,
    discard: threading.Event | None = None,
    *,
    memory_cache_bytes: int | None = None,
) -> Engine:
    if memory_cache_bytes is None:
        memory_cache_bytes = _memory_cache_bytes()
    root = index.inode(ROOT_INO)
    if root is None:
        raise CorruptError("the version's index has no root directory", hint="Mount another version; report this.")
    try:
        engine = Engine.open(
            root=root,
            next_ino=index.next_ino,
            cache_dir=str(spec.options.cache_path),
            memory_cache_bytes=memory_cache_bytes,
            # A profile's chunks must go to the disk cache, and a smaller memory cache cannot hold
            # the read-ahead.
            store_is_near=is_near(StoreUrl.parse(spec.store_url), spec.options.cache_path)
            and not spec.options.replay
            and memory_cache_bytes >= MEMORY_CACHE_BYTES,
            staging_dir=str(working_copy.path) if working_copy is not None else None,
            failures_file=str(_failures_file(working_copy)) if working_copy is not None else None,
            after_layer=working_copy.state.committed_layer if working_copy is not None else 0,
            boot_id=processes.boot_id(),
        )
    except OSError as error:
        raise from_local_disk(error, "the working copy cannot be opened") from error
    except JournalCorrupt as error:
        assert working_copy is not None
        raise _corrupt_journal(working_copy, error) from error
    stack.callback(_close_engine, engine, discard)
    count_base(engine, index)
    return engine


def _memory_cache_bytes() -> int:
    limits = (processes.memory_limit_bytes(), config.memory_limit_bytes)
    parts = [each // MEMORY_CACHE_PART for each in limits if each is not None]
    return min([MEMORY_CACHE_BYTES, *parts])


def _close_engine(engine: Engine, discard: threading.Event | None) -> None:
    """Makes remaining work durable. A working copy that will be deleted is not synced."""
    if discard is not None:
        if discard.is_set():
            engine.abandon()
            return
        try:
            engine.checkpoint_before_close()
        except OSError as error:
            _logger.info("the journal could not be shortened: %s", error)
    try:
        engine.close()
    except OSError as error:
        raise from_local_disk(error, "the working copy cannot be closed") from error


def _replay(engine: Engine, residency: Residency, recovery: Recovery, report: ProgressListener) -> Resumed:
    if recovery.cut_bytes:
        _logger.warning("cut %d bytes of an unfinished record off the journal", recovery.cut_bytes)
    residency.load_for_replay(recovery, lambda done, total: report(Progress("load", done, total)))
    with report_replay(engine, report):
        dropped = engine.replay()
    if dropped:
        _logger.error("%d writes that were not fsynced were lost in a power failure", dropped)
    return Resumed(recovery.records, recovery.cut_bytes, dropped)


def _log_lost(lost: LostFiles) -> tuple[str, ...]:
    """Logs the lost files and returns their paths."""
    files = lost.paths()
    for path, size in files[:LOGGED_LOST_FILES]:
        _logger.error("the local disk has lost %d bytes of %s that were not committed", size, path)
    if files:
        _logger.error(
            "%d files have lost bytes: reading those fails with EIO, and commits until the files are rewritten or removed",
            len(files),
        )
    return tuple(path for path, _ in files)


def _drop_pin(session: Session, discard: threading.Event) -> None:
    """Work that stays here turns its pin into a hold: it protects the version the work stands on,
    and what it has uploaded."""
    writer = session.writer
    is_dirty = session.engine.is_broken() or session.engine.is_dirty()
    session.is_left_dirty = is_dirty and not discard.is_set()
    if writer is None:
        return
    if session.is_left_dirty:
        try_cleanup("turn the pin into a hold", writer.committer.hold)
        return
    try_cleanup("remove the pin", writer.protection.remove)
    if not discard.is_set():
        writer.working_copy.record_lease(writer.lease.epoch, None)


def _corrupt_journal(working_copy: WorkingCopy, error: JournalCorrupt) -> CorruptError:
    return CorruptError(
        f"the journal of {working_copy.path} is damaged: {error}",
        hint="No file was changed. Copy the directory elsewhere first, and report this. The volume can be "
        "mounted without that work once the directory is moved away.",
    )
