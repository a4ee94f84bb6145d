"""A volume that is opened for publishing alone: lease, pin, index and publisher, as behind a mount,
but no engine, no journal and no staging.

    working copy's lock → store and its record → lease → pin → head settled → base index → publisher

There is no uncommitted work that could be lost or left: what was uploaded and is in no version is
in the working copy's `uploads`, under its pin, and the next writer on this machine finds it there.
A working copy with uncommitted work is refused, since the version would leave it behind.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from cowfs import apart
from cowfs.control import SessionSpec
from cowfs.errors import ConflictError, CorruptError, InvalidStateError
from cowfs.machine.lock import LockHolder
from cowfs.machine.working_copy import WorkingCopy
from cowfs.native.constants import ROOT_INO
from cowfs.session import owners
from cowfs.session.acquiring import (
    check_cache_dir,
    claim,
    early_base,
    moving_on,
    open_base,
    open_base_index,
    open_session_store,
    prepare_working_copy,
    quota_of,
    require_no_copy,
    within,
)
from cowfs.session.during_opening import renewed
from cowfs.session.session import Writer
from cowfs.store import AMBIENT, Access, load_record, require_writable
from cowfs.store.packs import PackReader
from cowfs.store.patience import CLOSING_S, Patience, patience_of
from cowfs.values import dataclass
from cowfs.version.pack_numbers import PackNumbers
from cowfs.version.publish import Publisher
from cowfs.version.uploads import UploadLog


@dataclass(frozen=True)
class Line:
    """The volume's line, for its one writer. owner: user and group as which this process' files are
    kept, as behind a mount."""

    publisher: Publisher
    owner: tuple[int, int]
    patience: Patience | None

    def hurry(self) -> None:
        """The upload ends: what waits for a store that does not answer gives up soon."""
        if self.patience is not None:
            self.patience.limit_s = min(self.patience.limit_s, CLOSING_S)


@contextmanager
def publishing(spec: SessionSpec, *, access: Access = AMBIENT, is_copy: bool = False) -> Iterator[Line]:
    """For the length of a block, in which lease and pin are renewed. In the main thread only apart
    (`cowfs.apart`): an exception in the middle of the head's put would leave its outcome unknown,
    and the lease with it. is_copy: what is published is the working copy's folder
    (`machine.copies`), which stands on its base: ConflictError when the volume has a newer
    version."""
    assert spec.working_copy is not None
    check_cache_dir(spec.options.cache_path)
    working_copy = WorkingCopy(Path(spec.working_copy))
    with ExitStack() as stack:
        stack.enter_context(working_copy.lock(LockHolder.this_process(spec.place)))
        store = open_session_store(spec, stack, access)
        record = load_record(store)
        require_writable(record, accept_unsafe=spec.options.accept_unsafe_store)
        prepare_working_copy(spec, working_copy, store, record)
        if not is_copy:
            require_no_copy(working_copy)
        packs = PackReader(store)
        with (
            apart.meanwhile(partial(quota_of, spec, store)) as quota,
            early_base(spec, store, packs, working_copy) as take_early,
        ):
            writer, head = claim(spec, stack, store, working_copy)
            writer.protection.read_lists()  # before anything is looked up, or another version is opened
            stack.enter_context(apart.meanwhile(writer.protection.catch_up))
            if working_copy.has_records:
                raise has_uncommitted(spec.volume)
            if is_copy and head.version != working_copy.state.base_version:
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
        root = index.inode(ROOT_INO)
        if root is None:
            raise CorruptError("the version's index has no root directory", hint="Report this.")
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
            quota_bytes=quota(),
            keeps_work=is_copy,
        )
        is_done = threading.Event()
        stack.callback(_leave, writer, publisher, is_done)
        stack.enter_context(renewed(writer, publisher.acknowledge))
        if (patience := patience_of(store)) is not None:
            patience.limit_s = spec.options.store_timeout_s
        line = Line(publisher, owners.kept_as((root[3], root[4]), spec.options), patience)
        with apart.stopped_by(line.hurry):
            yield line
        is_done.set()


def has_uncommitted(volume: str, fate: str = "") -> InvalidStateError:
    """fate: what would become of it; empty: the new version would not have it."""
    return InvalidStateError(
        f"volume {volume!r} has uncommitted work on this machine, which {fate or 'the new version would not have'}",
        hint=f"See first what it changed (`cowfs diff {volume}`, diff()). Then publish it (`cowfs commit {volume}`, commit()), or "
        f"drop it (`cowfs unmount {volume} --discard`, discard()).",
    )


def _overtaken(volume: str, newer: str) -> ConflictError:
    return ConflictError(
        f"somebody else has made version {newer[:12]} of volume {volume!r} meanwhile; this copy stands on an older one, and "
        "cannot be committed to it any more",
        hint=f"Nothing is lost, the folder is as it is. Save it as a volume of its own (`cowfs fork {volume} NAME`, fork()), or "
        f"drop it (`cowfs unmount {volume} --discard`, discard()) and mount the newer version.",
        details={"newer_version": newer},
    )


def _leave(writer: Writer, publisher: Publisher, is_done: threading.Event) -> None:
    """What was uploaded for a version that was not made stays, under its pin, for the next try."""
    left = not is_done.is_set() and publisher.chunks.uploaded_packs()
    within("end the upload", publisher.close)
    within("close the index", publisher.index.close)
    if left or writer.working_copy.state.intent is not None:
        return
    within("remove the pin", writer.protection.pin.remove)
    writer.working_copy.record_lease(writer.lease.epoch, None)
