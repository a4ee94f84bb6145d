"""The differences between a version and the folder of a copy (`machine.folders.folder`):
`work_comparing` without an engine.

    folder ── tree_upload.drafted ──▶ change set ── Index.apply ──▶ working index ── work_comparing ──▶ changes
              (files are cut and named, `version.publish.unstored_chunks`)

A commit of the copy would publish the same draft. Nothing is stored or published, and the
copy's stamps stay as they are. There is neither a lease nor a pin, so a comparison works beside
another writer and with read-only access to the store. The working copy is locked meanwhile, so that
base, stamps and folder belong together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.base.errors import NotFoundError
from cowfs.base.ids import VersionId
from cowfs.control import SessionSpec
from cowfs.control.messages import Compared, Comparison
from cowfs.index import Stream
from cowfs.machine.folders import stamps
from cowfs.machine.folders.folder import Copy
from cowfs.machine.lock import LockHolder
from cowfs.machine.working_copy import WorkingCopy
from cowfs.native.constants import ROOT_INO
from cowfs.session.work_comparing import compare_pair, pair
from cowfs.store import AMBIENT, Access, load_record
from cowfs.store.packs import PackReader
from cowfs.store.refs import refs
from cowfs.transfer.local_files import LocalFiles
from cowfs.transfer.upload.folder_stamps import CopyStamps
from cowfs.transfer.upload.tree_upload import draft_changes
from cowfs.transfer.upload.upload_plan import UploadPlan
from cowfs.version.publish.contents import files_of
from cowfs.version.publish.pack_numbers import PackNumbers
from cowfs.version.publish.unstored_chunks import NOT_STORED, UnstoredChunks
from cowfs.writer import owners
from cowfs.writer.acquiring import check_cache_dir, open_base, open_base_index, open_session_store

if TYPE_CHECKING:
    from cowfs.base.beneath import Root
    from cowfs.format.sealing import Sealing
    from cowfs.index import Index
    from cowfs.machine.state import State
    from cowfs.store import ObjectStore


def plan_commit(copy: Copy, root: Root, base: VersionId | None, owner: tuple[int, int]) -> UploadPlan:
    """The upload that a commit of the folder makes, on top of that version."""
    known = stamps.load(copy.stamps_path, base)
    return UploadPlan(b"", b"", owner, delete=True, stamps=CopyStamps(os.fstat(root.fileno()).st_dev, known))


def compare(spec: SessionSpec, copy: Copy, folder: Root, wanted: Comparison, *, access: Access = AMBIENT) -> Compared:
    """Compares the version with the folder. NotFoundError: the version does not exist, or neither
    has the path. ConflictError: a file kept changing."""
    assert spec.working_copy is not None
    cache_dir = spec.options.cache_path
    check_cache_dir(cache_dir)
    working_copy = WorkingCopy(Path(spec.working_copy))
    with ExitStack() as stack:
        stack.enter_context(working_copy.lock(LockHolder.make_brief(f"(comparing {os.fsdecode(folder.path)})")))
        tree = stack.enter_context(LocalFiles(folder.path, folder.fileno()))
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
            raise index.damage_error("it has no root directory")
        plan = plan_commit(copy, folder, base.version_id, owners.resolve_owner((root[3], root[4]), spec.options))
        now = stack.enter_context(_working_index(index, tree, plan, packs.sealing))
        return compare_pair(
            stack.enter_context(pair(store, cache_dir, (index, base.version_id), now, wanted.version)), wanted
        )


def _base_version(store: ObjectStore, state: State) -> VersionId | None:
    """The base. If the outcome of a commit is unknown, the version that it has made, if any."""
    if (intent := state.intent) is not None:
        try:
            if refs.read(store, refs.head(state.volume), intent.number).write_id == intent.write_id:
                return intent.version_id
        except NotFoundError:
            pass
    return state.base_version


@contextmanager
def _working_index(index: Index, tree: LocalFiles, plan: UploadPlan, sealing: Sealing) -> Iterator[Index]:
    """The folder as an unpublished index, for this thread."""
    numbers = PackNumbers(index)
    found = draft_changes(index, UnstoredChunks(sealing, partial(numbers.number, NOT_STORED)), tree, plan)
    if found.changes.is_empty:
        yield index
        return
    contents = found.contents
    rows = Stream(lambda: ((ino, rows) for ino, _, rows in files_of(contents)))
    packs = numbers.new_among(contents.packs())
    with (
        index.apply(replace(found.changes.changes(), contents=rows, packs=packs)) as delta,
        delta.open_unpublished() as now,
    ):
        yield now
