"""What differs between a version and the volume as it is now, committed or not.

    version's index ─┐
                     ├─ version.differences ─▶ changes
    working index  ──┘      (`Committer.working_index`: the base's pages, with what was changed over them)

Of a session with a writer, behind a mount or without one; `copy_comparing` does it of a copy.
Nothing is published or stored. Bytes that were written since the last commit are read from local
disk, to be named as chunks; of the version only what differs is read, and no contents.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from cowfs.control.messages import Compared, Comparison
from cowfs.errors import InvalidStateError, NotFoundError
from cowfs.ids import VersionId
from cowfs.index import Index, open_index
from cowfs.store.packs import PackReader
from cowfs.version.ancestry import Ancestry
from cowfs.version.differences import compare
from cowfs.version.named_changes import joined, named

if TYPE_CHECKING:
    from pathlib import Path

    from cowfs.session.session import Session
    from cowfs.store import ObjectStore

Pair = tuple[Index, Index, int, VersionId | None]
"""The index of a version, that of the volume as it is now, below which number an inode is the same
file in both, and which version it is."""


def compared(session: Session, wanted: Comparison) -> Compared:
    """What became of the version in the working copy. NotFoundError: the version is gone, or
    neither has the path."""
    with working_pair(session, wanted.version) as pair:
        return told(pair, wanted)


def told(pair: Pair, wanted: Comparison) -> Compared:
    """NotFoundError: neither has the path."""
    old, now, shared, version = pair
    folder, path = os.fsencode(wanted.folder), os.fsencode(wanted.path)
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
def working_pair(session: Session, version: VersionId | None) -> Iterator[Pair]:
    """As `pair`, of a session. Commits wait meanwhile."""
    if session.writer is None:
        raise InvalidStateError(
            f"{session.spec.place} has no working copy of a volume", hint="Compare two versions instead."
        )
    committer = session.writer.committer
    with ExitStack() as stack:
        now = stack.enter_context(committer.working_index())
        base = committer.base.version_id  # within: no commit moves it
        cache_dir = session.spec.options.cache_path
        yield stack.enter_context(pair(session.store, cache_dir, (committer.index, base), now, version))


@contextmanager
def pair(
    store: ObjectStore, cache_dir: Path, base: tuple[Index, VersionId | None], now: Index, version: VersionId | None
) -> Iterator[Pair]:
    """base: what `now` stands on. version: what it is compared with; None: the base."""
    index, stands_on = base
    if version is None or version == stands_on:
        yield index, now, index.next_ino, stands_on
        return
    with ExitStack() as stack:
        ancestry = Ancestry(store)
        open_old = partial(_opened, store, cache_dir, ancestry)
        old = stack.enter_context(open_old(version))
        common = ancestry.numbered_alike(version, stands_on) if stands_on is not None else None
        shared = 0
        if common == version:
            shared = old.next_ino
        elif common is not None and common == stands_on:
            shared = index.next_ino
        elif common is not None and ancestry.manifest(common) is not None:
            shared = stack.enter_context(open_old(common)).next_ino
        yield old, now, shared, version


def _opened(store: ObjectStore, cache_dir: Path, ancestry: Ancestry, version: VersionId) -> Index:
    manifest = ancestry.manifest(version)
    if manifest is None:
        raise NotFoundError(
            f"version {version.hex()[:12]} is gone", hint="`cowfs log` and history() show which versions are there."
        )
    return open_index(store, PackReader(store), manifest.index, cache_dir=cache_dir)
