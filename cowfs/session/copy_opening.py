"""The version that a copy of a volume is made of, while nobody else writes to the volume: working
copy's lock, lease, pin, head, as for a mount; index and packs, no engine.

A copy keeps no lease while it is worked with (docs/decisions/0043-mounts-without-fuse.md). It takes
one here, so that somebody who mounts beside another writer is told at once, and when it is
committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from cowfs.control import SessionSpec
from cowfs.machine.lock import LockHolder
from cowfs.machine.working_copy import WorkingCopy
from cowfs.session.acquiring import (
    check_cache_dir,
    claim,
    open_base,
    open_base_index,
    open_session_store,
    prepare_working_copy,
    within,
)
from cowfs.session.during_opening import renewed
from cowfs.session.publishing import has_uncommitted
from cowfs.session.session import Writer
from cowfs.session.version_tree import VersionTree
from cowfs.store import AMBIENT, Access, load_record
from cowfs.store.packs import PackReader
from cowfs.store.patience import patience_of
from cowfs.values import dataclass
from cowfs.version.commit import Base


@dataclass(frozen=True)
class CopyBase:
    base: Base
    tree: VersionTree


@contextmanager
def copy_base(spec: SessionSpec, *, access: Access = AMBIENT) -> Iterator[CopyBase]:
    """For the length of a block; the working copy stands on the volume's newest version then.
    InvalidStateError: it has uncommitted work in a journal."""
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
        stack.enter_context(renewed(writer))
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
        within("remove the pin", writer.protection.pin.remove)
        writer.working_copy.record_lease(writer.lease.epoch, None)
