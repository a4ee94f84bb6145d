"""Versions as commands show them: one record for --json everywhere, one line for people.

The mount's daemon makes a commit and may have credentials that the command lacks. The published
version is then shown without the fields that only the store contains.
"""

from __future__ import annotations

from typing import Any

from cowfs.blocking import ROVolume, VersionNames
from cowfs.errors import AccessDeniedError, CowfsError, UnavailableError
from cowfs.rendering import count, describe_version, format_size, name_version

_UNREADABLE = (AccessDeniedError, UnavailableError)


def record(version: ROVolume, *, is_published_now: bool = False) -> dict[str, Any]:
    """locator, version, volume, and the manifest's fields (missing if the version is not there, or
    the store denies reading it). is_published_now: this command published it, so an error in
    reading it back is not a failure."""
    if version.is_pruned or not _is_readable(version, CowfsError if is_published_now else _UNREADABLE):
        return name_version(version)
    return describe_version(version)


def record_named(version: ROVolume, names: VersionNames) -> dict[str, Any]:
    """`record`, and further fields of each version in a history. made_in: null if the version is
    not there."""
    made_in = None if version.is_pruned else version.made_in
    return {
        **record(version),
        "made_in": made_in,
        "tag_names": names.tag_names,
        "is_collectable": names.is_collectable,
        "is_purged": names.is_purged,
    }


def summary(version: ROVolume) -> str:
    """The summary of a commit's result."""
    if not version.is_new:
        return f"Nothing has changed: version {version.id[:12]} of {version.name} stays the last one"
    if not _is_readable(version, CowfsError):
        return f"Version {version.id[:12]} of {version.name} is published; the store does not let this command read it"
    stats = version.stats
    linked = f" ({format_size(stats.linked_bytes)} linked)" if stats.linked_bytes else ""
    return (
        f"Version {version.id[:12]} of {version.name}: {count(stats.files, 'file')}, "
        f"{format_size(stats.bytes)}{linked}, {format_size(stats.stored_bytes_added)} uploaded"
    )


def _is_readable(version: ROVolume, errors: type[CowfsError] | tuple[type[CowfsError], ...]) -> bool:
    """Costs at most one request."""
    try:
        version.resolve()
    except errors:
        return False
    return True
