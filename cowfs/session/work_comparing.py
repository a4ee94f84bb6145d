"""What differs between a version and the volume as it is now, committed or not.

    version's index ─┐
                     ├─ version.differences ─▶ changes
    working index  ──┘      (`Committer.working_index`: the base's pages, with what was changed over them)

Of a session with a writer, behind a mount or without one. Nothing is published or stored. Bytes
that were written since the last commit are read from local disk, to be named as chunks; of the
version only what differs is read, and no contents.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from cowfs.control.messages import Compared, Comparison
from cowfs.errors import InvalidStateError, NotFoundError
from cowfs.ids import VersionId
from cowfs.index import open_index
from cowfs.store.packs import PackReader
from cowfs.version.ancestry import Ancestry
from cowfs.version.differences import compare
from cowfs.version.named_changes import joined, named

if TYPE_CHECKING:
    from cowfs.index import Index
    from cowfs.session.session import Session


def compared(session: Session, wanted: Comparison) -> Compared:
    """What became of the version in the working copy. NotFoundError: the version is gone, or
    neither has the path."""
    folder, path = os.fsencode(wanted.folder), os.fsencode(wanted.path)
    with working_pair(session, wanted.version) as (old, now, shared, version):
        found = compare(
            old,
            now,
            shared=shared,
            path=joined(folder, path),
            new_path=path,
            times=wanted.times,
            renames=wanted.renames,
        )
        return Compared(version, tuple(named(each, len(folder), 0) for each in found))


@contextmanager
def working_pair(session: Session, version: VersionId | None) -> Iterator[tuple[Index, Index, int, VersionId | None]]:
    """The indexes of a version (None: the base) and of the volume as it is now; below which number
    an inode is the same file in both; which version it is. Commits wait meanwhile."""
    if session.writer is None:
        raise InvalidStateError(
            f"{session.spec.place} has no working copy of a volume", hint="Compare two versions instead."
        )
    committer = session.writer.committer
    with ExitStack() as stack:
        now = stack.enter_context(committer.working_index())
        base = committer.base.version_id  # within: no commit moves it
        if version is None or version == base:
            yield committer.index, now, committer.index.next_ino, base
            return
        ancestry = Ancestry(session.store)
        old = stack.enter_context(_opened(session, ancestry, version))
        common = ancestry.numbered_alike(version, base) if base is not None else None
        shared = 0
        if common == version:
            shared = old.next_ino
        elif common is not None and common == base:
            shared = committer.index.next_ino
        elif common is not None and ancestry.manifest(common) is not None:
            shared = stack.enter_context(_opened(session, ancestry, common)).next_ino
        yield old, now, shared, version


def _opened(session: Session, ancestry: Ancestry, version: VersionId) -> Index:
    manifest = ancestry.manifest(version)
    if manifest is None:
        raise NotFoundError(
            f"version {version.hex()[:12]} is gone", hint="`cowfs log` and history() show which versions are there."
        )
    cache_dir = session.spec.options.cache_path
    return open_index(session.store, PackReader(session.store), manifest.index, cache_dir=cache_dir)
