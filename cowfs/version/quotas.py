"""How many bytes the regular files of a volume may have together, as the volume's record says.

A mount refuses what would make the volume larger (the engine, EDQUOT); whoever publishes without
one, or what was written before there was a quota to go by, refuses the version (`check`). What
makes it smaller is never refused, also beyond the quota, which may have been lowered. A writer goes
by the quota that it found when it opened the volume.

The first record, which is made with the volume, has none, so that a writer who sees no other need
not read it. Not here: what the volume has (the index counts).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from cowfs import log, sizes
from cowfs.errors import CorruptError, NoSpaceError, NotFoundError, UnsupportedFormatError
from cowfs.format.records import MetaRecord
from cowfs.store import ObjectStore
from cowfs.version import described

NONE = 0

_log = log.get("volumes")


def of(record: MetaRecord | None) -> int:
    """Bytes; NONE: as many as there is room for."""
    return (record.quota_bytes or NONE) if record is not None else NONE


def read(store: ObjectStore, volume: str) -> int:
    """As `of`, for who opens the volume. Three requests."""
    return found(volume, partial(described.read, store, volume))


def found(volume: str, read: Callable[[], MetaRecord | None]) -> int:
    """As `of`, of the record that is read; NONE where it cannot be made out: that keeps nobody from
    his files."""
    try:
        return of(read())
    except (CorruptError, UnsupportedFormatError, NotFoundError) as error:
        _log.warning("volume %s is opened without a quota: %s", volume, error)
        return NONE


def save(store: ObjectStore, volume: str, quota_bytes: int) -> None:
    """NONE removes it. NotFoundError: no such volume."""
    described.change(store, volume, lambda meta: replace(meta, quota_bytes=quota_bytes or None))


def check(volume: str, quota_bytes: int, before_bytes: int, bytes: int) -> None:
    """NoSpaceError: a version of so many bytes would be too large, and larger than the one
    before."""
    if quota_bytes and bytes > max(quota_bytes, before_bytes):
        raise NoSpaceError(
            f"volume {volume!r} may have {sizes.shown(quota_bytes)} of files, and would have {sizes.shown(bytes)}",
            hint=f"Nothing was published. Remove files, or raise the quota: `cowfs quota {volume} SIZE`, Volume.set_quota().",
            details={"quota_bytes": quota_bytes, "bytes": bytes},
        )
