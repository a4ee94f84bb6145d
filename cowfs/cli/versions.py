"""Versions as commands show them: one record for --json everywhere, one line for people."""

from __future__ import annotations

import dataclasses
from typing import Any

from cowfs import sizes
from cowfs.blocking import ROVolume


def record(version: ROVolume) -> dict[str, Any]:
    """locator, version, volume, and the manifest's fields (null when the version is pruned)."""
    names = {
        "locator": version.locator,
        "volume": version.name,
        "version": version.id,
        "is_pruned": version.is_pruned,
    }
    if version.is_pruned:
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


def summary(version: ROVolume) -> str:
    """Of a commit's result."""
    stats = version.stats
    if not version.is_new:
        return f"Nothing has changed: version {version.id[:12]} of {version.name} stays the last one"
    return (
        f"Version {version.id[:12]} of {version.name}: {stats.files} files, "
        f"{sizes.shown(stats.bytes)}, {sizes.shown(stats.stored_bytes_added)} uploaded"
    )
