"""A version's fields in JSON documents (docs/reference/json.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cowfs.blocking import ROVolume


def name_version(version: ROVolume) -> dict[str, Any]:
    """What is known of a version without its manifest."""
    return {
        "locator": version.locator,
        "volume": version.name,
        "version": version.id,
        "is_pruned": version.is_pruned,
    }


def describe_version(version: ROVolume) -> dict[str, Any]:
    """`name_version`, and the manifest's fields of a version that is there."""
    names = name_version(version)
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
        "stats": version.stats,
    }
