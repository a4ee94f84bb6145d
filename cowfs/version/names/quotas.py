"""The quota of a volume, from its record: the bytes that its files, link targets and extended
attributes may have together.

A mount refuses changes that exceed it (the engine, EDQUOT). Publishing without a mount, or work
from before the quota was known, is checked for the whole version (`check`). Changes that make the
volume smaller are never refused, even beyond the quota, which may have been lowered. A writer uses
the quota that it found when it opened the volume.

Not here: the volume's size (the index counts it), and reading the record (`settings`).
"""

from __future__ import annotations

from dataclasses import replace

from cowfs.base import byte_sizes
from cowfs.base.errors import NoSpaceError
from cowfs.base.hints import Command
from cowfs.format.records import MetaRecord
from cowfs.store import ObjectStore
from cowfs.version.names import described

NONE = 0


def of(record: MetaRecord | None) -> int:
    """Bytes; NONE: without limit."""
    return (record.quota_bytes or NONE) if record is not None else NONE


def save(store: ObjectStore, volume: str, quota_bytes: int) -> None:
    """NONE removes it. NotFoundError: no such volume."""
    described.change(store, volume, lambda meta: replace(meta, quota_bytes=quota_bytes or None))


def check(volume: str, quota_bytes: int, before_bytes: int, bytes: int) -> None:
    """NoSpaceError: a version of so many bytes exceeds the quota and is larger than the version
    before."""
    if quota_bytes and bytes > max(quota_bytes, before_bytes):
        raise NoSpaceError(
            f"volume {volume!r} may have {byte_sizes.format_size(quota_bytes)} of files, and would have {byte_sizes.format_size(bytes)}",
            hint=f"Nothing was published. Remove files, or raise the quota: {Command('quota', volume, 'SIZE')}, Store().set_quota().",
            details={"quota_bytes": quota_bytes, "bytes": bytes},
        )
