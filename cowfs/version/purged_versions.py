"""Versions that were purged as a whole: the error of opening one, and which to show as purged.

Opening such a version fails when a block of its index is read. Only then are the purged records
read, and the volume's history, to name a version that can still be used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice

from cowfs.base.errors import AccessDeniedError, CorruptError, CowfsError, PurgedError, UnsupportedFormatError
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.store import ObjectStore
from cowfs.store.packs import Purged, load_purged
from cowfs.version.history import LINE_LIMIT, history
from cowfs.version.names.volumes import find_head
from cowfs.version.retention.kept_behind import KeptBehind


def find_purged_versions(store: ObjectStore) -> frozenset[VersionId]:
    """For display: none if the records cannot be read. One list request for a store without
    them."""
    with suppress(AccessDeniedError, CorruptError, UnsupportedFormatError):
        return load_purged(store).versions
    return frozenset()


@contextmanager
def naming_purged_version(store: ObjectStore, volume: str, version: VersionId) -> Iterator[None]:
    """Wraps opening a version's index: a PurgedError of one of its blocks names the version and
    says what to do, if all of the version was purged."""
    try:
        yield
    except PurgedError as error:
        purged = None
        with suppress(CowfsError):
            purged = load_purged(store)
        if purged is None or version not in purged.versions:
            raise
        raise _error(store, volume, version, purged) from error


def _error(store: ObjectStore, volume: str, version: VersionId, purged: Purged) -> PurgedError:
    left = _find_left(store, volume, purged)
    fork = (
        f"Version {left.hex()[:12]} was not purged as a whole: {Command('fork', f'{volume}@{left.hex()[:12]}', 'NEW')} "
        "continues from it, without the bytes that both had. "
        if left is not None
        else "No other version of the volume is left. "
    )
    return PurgedError(
        f"version {version.hex()[:12]} of volume {volume!r} was purged as a whole; its files are gone",
        hint=f"{fork}{Command('delete', volume)} removes the volume.",
        details={"volume": volume, "version": version.hex()},
    )


def _find_left(store: ObjectStore, volume: str, purged: Purged) -> VersionId | None:
    """The newest version in the volume's history that was not purged; None: none is found."""
    with suppress(CowfsError):
        head = find_head(store, volume)
        if head is not None and head.version is not None:
            line = history(store, head.version, KeptBehind(store, volume))
            for past in islice(line, LINE_LIMIT):
                if past.manifest is not None and past.version not in purged.versions:
                    return past.version
    return None
