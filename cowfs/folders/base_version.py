"""The version that a copy of a volume is made from. While it is read, no other process writes to
the volume: the copy holds the working copy's lock, a lease and a pin, as a mount does. It opens
index and packs, but no engine.

A copy holds no lease while programs work in it (docs/decisions/0043-mounts-without-fuse.md). It
takes one here, so that mounting beside another writer fails at once, and again when it is
committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from cowfs.base.fast_dataclass import dataclass
from cowfs.control import SessionSpec
from cowfs.machine.lock import LockHolder
from cowfs.machine.working_copy import WorkingCopy
from cowfs.store import AMBIENT, Access, load_record
from cowfs.store.packs import PackReader
from cowfs.store.reliability.patience import patience_of
from cowfs.transfer.version_tree import VersionTree
from cowfs.version.commit import Base
from cowfs.writer.acquiring import (
    check_cache_dir,
    claim,
    open_base,
    open_base_index,
    open_session_store,
    prepare_working_copy,
    try_cleanup,
)
from cowfs.writer.during_opening import keep_renewed
from cowfs.writer.publishing import has_uncommitted
from cowfs.writer.writer import Writer


@dataclass(frozen=True)
class CopyBase:
    base: Base
    tree: VersionTree


@contextmanager
def copy_base(spec: SessionSpec, *, access: Access = AMBIENT) -> Iterator[CopyBase]:
    """During the block the working copy is based on the volume's newest version. InvalidStateError:
    it has uncommitted work in a journal."""
    assert spec.working_copy is not None
    check_cache_dir(spec.options.cache_path)
    working_copy = WorkingCopy(Path(spec.working_copy))
    with ExitStack() as stack:
        stack.enter_context(working_copy.lock(LockHolder.this_process(spec.place)))
        store = open_session_store(spec, stack, access)
        record = load_record(store)
        prepare_working_copy(spec, working_copy, store, record)
        writer, head = claim(spec, stack, store, working_copy)
        stack.callback(_leave, writer)
        if working_copy.has_records:
            raise has_uncommitted(spec.volume, "a copy would not show")
        stack.enter_context(keep_renewed(writer))
        working_copy.rebase(head.number, head.version)
        writer.protection.follow(head.number)
        packs = PackReader(store)
        base = open_base(store, head.number, head.version)
        index = open_base_index(spec, stack, store, packs, base)
        if (patience := patience_of(store)) is not None:
            patience.limit_s = spec.options.store_timeout_s
        tree = stack.enter_context(closing(VersionTree(index, packs)))
        yield CopyBase(base, tree)


def _leave(writer: Writer) -> None:
    if writer.working_copy.exists and writer.working_copy.state.intent is None:
        try_cleanup("remove the pin", writer.protection.remove)
        writer.working_copy.record_lease(writer.lease.epoch, None)
