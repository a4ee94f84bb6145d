"""What differs between a version and the folder of a copy (`machine.copies`): `work_comparing`
where there is no engine.

    folder ── tree_upload.drafted ──▶ change set ── Index.apply ──▶ working index ── work_comparing ──▶ changes
              (files are cut and named, `version.unstored_chunks`)

The draft is the one that the copy's commit would publish. Nothing is stored or published, neither
in the store nor of the copy's stamps; there is neither lease nor pin, so that it works beside
another writer, and for who may only read the store. The working copy is locked meanwhile, so that
base, stamps and folder belong together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.control import SessionSpec
from cowfs.control.messages import Compared, Comparison
from cowfs.errors import CorruptError, NotFoundError
from cowfs.ids import VersionId
from cowfs.index import Stream
from cowfs.machine.lock import LockHolder
from cowfs.machine.working_copy import WorkingCopy
from cowfs.native.constants import ROOT_INO
from cowfs.session import owners
from cowfs.session.acquiring import check_cache_dir, open_base, open_base_index, open_session_store
from cowfs.session.local_files import LocalFiles
from cowfs.session.tree_upload import drafted
from cowfs.session.upload_plan import UploadPlan
from cowfs.session.work_comparing import pair, told
from cowfs.store import AMBIENT, Access, load_record, refs
from cowfs.store.packs import PackReader
from cowfs.version.contents import files_of
from cowfs.version.pack_numbers import PackNumbers
from cowfs.version.unstored_chunks import NOT_STORED, UnstoredChunks

if TYPE_CHECKING:
    from cowfs.format.sealing import Sealing
    from cowfs.index import Index
    from cowfs.machine.state import State
    from cowfs.store import ObjectStore

PlanOf = Callable[[VersionId | None, tuple[int, int]], UploadPlan]
"""Of a commit of the copy on top of that version, as whose what is new is kept."""


def compared(
    spec: SessionSpec, folder: str, plan_of: PlanOf, wanted: Comparison, *, access: Access = AMBIENT
) -> Compared:
    """What became of the version in the folder. NotFoundError: the version is gone, or neither has
    the path. ConflictError: a file never stood still."""
    assert spec.working_copy is not None
    cache_dir = spec.options.cache_path
    check_cache_dir(cache_dir)
    working_copy = WorkingCopy(Path(spec.working_copy))
    with ExitStack() as stack:
        stack.enter_context(working_copy.lock(LockHolder.for_a_moment(f"(comparing {folder})")))
        tree = stack.enter_context(LocalFiles(os.fsencode(folder)))
        store = open_session_store(spec, stack, access).read_only()
        load_record(store)
        packs = PackReader(store)
        try:
            base = open_base(store, 0, _base_version(store, working_copy.state))
        except NotFoundError as error:
            raise working_copy.without_base(error) from error
        index = open_base_index(spec, stack, store, packs, base)
        root = index.inode(ROOT_INO)
        if root is None:
            raise CorruptError("the version's index has no root directory", hint="Report this.")
        plan = plan_of(base.version_id, owners.kept_as((root[3], root[4]), spec.options))
        now = stack.enter_context(_working_index(index, tree, plan, packs.sealing))
        return told(stack.enter_context(pair(store, cache_dir, (index, base.version_id), now, wanted.version)), wanted)


def _base_version(store: ObjectStore, state: State) -> VersionId | None:
    """Of a commit whose outcome nobody has learnt, the version that it has made, if it has."""
    if (intent := state.intent) is not None:
        try:
            if refs.read(store, refs.head(state.volume), intent.number).write_id == intent.write_id:
                return intent.version_id
        except NotFoundError:
            pass
    return state.base_version


@contextmanager
def _working_index(index: Index, tree: LocalFiles, plan: UploadPlan, sealing: Sealing) -> Iterator[Index]:
    """The folder as an index that is published nowhere, for this thread."""
    numbers = PackNumbers(index)
    found = drafted(index, UnstoredChunks(sealing, partial(numbers.number, NOT_STORED)), tree, plan)
    if found.changes.is_empty:
        yield index
        return
    contents = found.contents
    rows = Stream(lambda: ((ino, rows) for ino, _, rows in files_of(contents)))
    packs = numbers.new_among(contents.packs())
    with index.apply(replace(found.changes.changes(), contents=rows, packs=packs)) as delta, delta.unpublished() as now:
        yield now
