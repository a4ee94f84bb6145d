"""Versions as commands show them: one record for --json everywhere, one line for people.

A commit is done by the mount's daemon, which may have credentials that the command has not. What is
published is then told without what only the store can say.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from cowfs import sizes
from cowfs.blocking import ROVolume
from cowfs.cli import output
from cowfs.errors import AccessDeniedError, CowfsError, UnavailableError

_UNREADABLE = (AccessDeniedError, UnavailableError)


def record(version: ROVolume, *, is_published_now: bool = False) -> dict[str, Any]:
    """locator, version, volume, and the manifest's fields (missing when the version is not there,
    or the store does not let it be read). is_published_now: by this command, which has not failed
    whatever keeps it from reading what it has published."""
    names = {
        "locator": version.locator,
        "volume": version.name,
        "version": version.id,
        "is_pruned": version.is_pruned,
    }
    if version.is_pruned or not _is_readable(version, CowfsError if is_published_now else _UNREADABLE):
        return names
    return {
        **names,
        "message": version.message,
        "author": version.author,
        "created_ns": version.created_ns,
        "parents": version.parents,
        "labels": version.labels,
        "produced_by": version.produced_by,
        "stats": dataclasses.asdict(version.stats),
    }


def names(version: ROVolume, tags: dict[str, list[str]], collectable: set[str]) -> dict[str, Any]:
    """What else a history tells of each version. made_in: null when it is not there."""
    return {
        "made_in": None if version.is_pruned else version.made_in,
        "tags": tags.get(version.id, []),
        "is_collectable": version.id in collectable,
    }


def summary(version: ROVolume) -> str:
    """Of a commit's result."""
    if not version.is_new:
        return f"Nothing has changed: version {version.id[:12]} of {version.name} stays the last one"
    if not _is_readable(version, CowfsError):
        return f"Version {version.id[:12]} of {version.name} is published; the store does not let this command read it"
    stats = version.stats
    linked = f" ({sizes.shown(stats.linked_bytes)} linked)" if stats.linked_bytes else ""
    return (
        f"Version {version.id[:12]} of {version.name}: {output.count(stats.files, 'file')}, "
        f"{sizes.shown(stats.bytes)}{linked}, {sizes.shown(stats.stored_bytes_added)} uploaded"
    )


def _is_readable(version: ROVolume, errors: type[CowfsError] | tuple[type[CowfsError], ...]) -> bool:
    """At most one request."""
    try:
        version.resolve()
    except errors:
        return False
    return True
