"""Compares a version with the current state of the volume, committed or not.

    version's index ─┐
                     ├─ version.differences ─▶ changes
    working index  ──┘      (`Committer.working_index`: the base's pages, with what was changed over them)

For a session with a writer, mounted or not; `copy_comparing` does it for a copy. Nothing is
published or stored. Bytes written since the last commit are read from local disk to compute their
chunk hashes. Of the version only differing parts are read, and no contents.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from cowfs.base.errors import InvalidStateError, NotFoundError
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.control.messages import Compared, Comparison
from cowfs.index import Index, open_index
from cowfs.store.packs import PackReader
from cowfs.version.ancestry import Ancestry
from cowfs.version.differences import compare
from cowfs.version.named_changes import describe, join_path

if TYPE_CHECKING:
    from pathlib import Path

    from cowfs.session.session import Session
    from cowfs.store import ObjectStore

Pair = tuple[Index, Index, int, VersionId | None]
"""(old index, current index, limit, old version). Below the limit, an inode number means the same
file in both indexes."""


def compare_working(session: Session, wanted: Comparison) -> Compared:
    """Compares a version with the working copy. NotFoundError: the version is gone, or neither has
    the path."""
    with working_pair(session, wanted.version) as pair:
        return compare_pair(pair, wanted)


def compare_pair(pair: Pair, wanted: Comparison) -> Compared:
    """NotFoundError: neither has the path."""
    old, now, shared, version = pair
    folder, path = os.fsencode(wanted.folder), os.fsencode(wanted.path)
    found = compare(
        old,
        now,
        shared=shared,
        path=join_path(folder, path),
        new_path=path,
        times=wanted.times,
        renames=wanted.renames,
    )
    return Compared(version, tuple(describe(each, len(folder), 0) for each in found))


@contextmanager
def working_pair(session: Session, version: VersionId | None) -> Iterator[Pair]:
    """As `pair`, for a session. Commits wait meanwhile."""
    if session.writer is None:
        raise InvalidStateError(
            f"{session.spec.place} has no working copy of a volume", hint="Compare two versions instead."
        )
    committer = session.writer.committer
    with ExitStack() as stack:
        now = stack.enter_context(committer.working_index())
        base = committer.base.version_id  # read inside working_index: no commit moves it
        cache_dir = session.spec.options.cache_path
        yield stack.enter_context(pair(session.store, cache_dir, (committer.index, base), now, version))


@contextmanager
def pair(
    store: ObjectStore, cache_dir: Path, base: tuple[Index, VersionId | None], now: Index, version: VersionId | None
) -> Iterator[Pair]:
    """base: the version that `now` is based on. version: the one to compare with; None: the
    base."""
    index, stands_on = base
    if version is None or version == stands_on:
        yield index, now, index.next_ino, stands_on
        return
    with ExitStack() as stack:
        ancestry = Ancestry(store)
        open_old = partial(_open_version, store, cache_dir, ancestry)
        old = stack.enter_context(open_old(version))
        common = ancestry.find_shared_numbering(version, stands_on) if stands_on is not None else None
        shared = 0
        if common == version:
            shared = old.next_ino
        elif common is not None and common == stands_on:
            shared = index.next_ino
        elif common is not None and ancestry.manifest(common) is not None:
            shared = stack.enter_context(open_old(common)).next_ino
        yield old, now, shared, version


def _open_version(store: ObjectStore, cache_dir: Path, ancestry: Ancestry, version: VersionId) -> Index:
    manifest = ancestry.manifest(version)
    if manifest is None:
        raise NotFoundError(
            f"version {version.hex()[:12]} is gone", hint=f"{Command('log')} and history() list the existing versions."
        )
    return open_index(store, PackReader(store), manifest.index, cache_dir=cache_dir)
