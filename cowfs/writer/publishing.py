"""Opens a volume only for publishing: lease, pin, index and publisher, as for a mount, but no
engine, no journal and no staging.

    working copy's lock → store and its record → lease → pin → head settled → base index → publisher

There is no uncommitted work to lose. The working copy's `uploads` lists uploaded data that is in no
version yet, protected by its pin; the next writer on this machine uses it. A working copy with
uncommitted work is refused, since the version would not contain it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from cowfs.base import interruptible
from cowfs.base.errors import ConflictError, InvalidStateError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.control import SessionSpec
from cowfs.machine.lock import LockHolder
from cowfs.machine.working_copy import WorkingCopy
from cowfs.native.constants import ROOT_INO
from cowfs.store import AMBIENT, Access, load_record, require_writable
from cowfs.store.packs import PackReader
from cowfs.store.reliability.patience import CLOSING_S, Patience, patience_of
from cowfs.version.publish.pack_numbers import PackNumbers
from cowfs.version.publish.publisher import Publisher
from cowfs.version.publish.uploads import UploadLog
from cowfs.writer import owners
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
from cowfs.writer.during_opening import keep_renewed
from cowfs.writer.writer import Writer


@dataclass(frozen=True)
class Line:
    """The volume's line, for its one writer. owner: user and group stored for this process's files,
    as on a mount."""

    publisher: Publisher
    owner: tuple[int, int]
    patience: Patience | None

    def hurry(self) -> None:
        """Makes requests that wait for a store that does not answer give up soon, because the
        upload ends."""
        if self.patience is not None:
            self.patience.limit_s = min(self.patience.limit_s, CLOSING_S)


@contextmanager
def publishing(spec: SessionSpec, *, access: Access = AMBIENT, from_folder: bool = False) -> Iterator[Line]:
    """Opens a volume for the length of a block, in which lease and pin are renewed. In the main
    thread it must run on a helper thread (`cowfs.base.interruptible`): an exception in the middle
    of the head's put would leave its outcome unknown, and the lease with it. from_folder: the
    working copy's folder (`machine.folders.folder`) is published, which is based on the working
    copy's version: ConflictError when the volume has a newer version."""
    assert spec.working_copy is not None
    check_cache_dir(spec.options.cache_path)
    working_copy = WorkingCopy(Path(spec.working_copy))
    with ExitStack() as stack:
        stack.enter_context(working_copy.lock(LockHolder.this_process(spec.place)))
        store = open_session_store(spec, stack, access)
        record = load_record(store)
        require_writable(record, accept_unsafe=spec.options.accept_unsafe_store)
        prepare_working_copy(spec, working_copy, store, record)
        if not from_folder:
            require_no_copy(working_copy)
        packs = PackReader(store)
        with (
            interruptible.meanwhile(partial(settings_of, spec, store)) as settings,
            early_base(spec, store, packs, working_copy) as take_early,
        ):
            writer, head = claim(spec, stack, store, working_copy)
            writer.protection.read_lists()  # before any lookup, or opening another version
            stack.enter_context(interruptible.meanwhile(writer.protection.catch_up))
            if working_copy.has_records:
                raise has_uncommitted(spec.volume)
            if from_folder and head.version != working_copy.state.base_version:
                raise _overtaken(spec.volume, str(head.version or ""))
            working_copy.rebase(head.number, head.version)
            writer.protection.follow(head.number)
            early = take_early(head, stack)
        if early is not None:
            base, index = early
        else:
            with moving_on(store, working_copy):
                base = open_base(store, head.number, head.version)
                index = open_base_index(spec, stack, store, packs, base)
        base = replace(base, head_check=head.check)
        root = index.inode(ROOT_INO)
        if root is None:
            raise index.damage_error("it has no root directory")
        kept = settings()
        publisher = Publisher(
            store,
            store_id=record.store_id,
            volume=spec.volume,
            epoch=writer.lease.epoch,
            base=base,
            index=index,
            packs=packs,
            numbers=PackNumbers(index),
            protection=writer.protection,
            record_intent=working_copy.record_intent,
            record_published=working_copy.record_published,
            drop_intent=working_copy.drop_intent,
            max_uploads=spec.options.max_uploads,
            uploads=UploadLog(working_copy.uploads_path),
            quota_bytes=kept.quota_bytes,
            compress=kept.compress,
            keeps_work=from_folder,
        )
        is_done = threading.Event()
        stack.callback(_leave, writer, publisher, is_done)
        stack.enter_context(keep_renewed(writer, publisher.acknowledge))
        if (patience := patience_of(store)) is not None:
            patience.limit_s = spec.options.store_timeout_s
        line = Line(publisher, owners.resolve_owner((root[3], root[4]), spec.options), patience)
        with interruptible.register_stop(line.hurry):
            yield line
        is_done.set()


def has_uncommitted(volume: str, fate: str = "") -> InvalidStateError:
    """fate: what would happen to the work; empty: the new version would not contain it."""
    return InvalidStateError(
        f"volume {volume!r} has uncommitted work on this machine, which {fate or 'the new version would not have'}",
        hint=f"Check first what it changed ({Command('diff', volume)}, diff()). Then publish it "
        f"({Command('commit', volume)}, commit()), or "
        f"drop it ({Command('unmount', volume, '--discard')}, discard()).",
    )


def _overtaken(volume: str, newer: str) -> ConflictError:
    return ConflictError(
        f"another writer has made version {newer[:12]} of volume {volume!r} meanwhile; this copy is based on an older one, and "
        "can no longer be committed to it",
        hint=f"Nothing is lost; the folder is unchanged. Save it as a volume of its own ({Command('fork', volume, 'NAME')}, fork()), or "
        f"drop it ({Command('unmount', volume, '--discard')}, discard()) and mount the newer version.",
        details={"newer_version": newer},
    )


def _leave(writer: Writer, publisher: Publisher, is_done: threading.Event) -> None:
    """Ends the upload. Chunks uploaded for a version that was not made are kept under their pin for
    the next attempt."""
    left = not is_done.is_set() and publisher.chunks.list_uploaded_packs()
    try_cleanup("end the upload", publisher.close)
    try_cleanup("close the index", publisher.index.close)
    if left or writer.working_copy.state.intent is not None:
        return
    try_cleanup("remove the pin", writer.protection.remove)
    writer.working_copy.record_lease(writer.lease.epoch, None)
