"""Versions as commands show them: one record for --json everywhere, one line for people."""

from __future__ import annotations

import dataclasses
from typing import Any

from cowfs.api.readable import ReadableVersion
from cowfs.cli import output
from cowfs.format.locator import Locator
from cowfs.format.store_url import StoreUrl
from cowfs.ids import VersionId
from cowfs.machine.registry import MountEntry


def of_mount(entry: MountEntry, version: VersionId) -> ReadableVersion:
    return ReadableVersion(Locator(StoreUrl.parse(entry.store_url), entry.volume, version))


def record(version: ReadableVersion) -> dict[str, Any]:
    """locator, version, volume, and the manifest's fields (null when the version is pruned)."""
    names = {
        "locator": str(version.locator),
        "volume": version.locator.volume,
        "version": version.locator.version.hex(),
        "is_pruned": version.is_pruned,
    }
    if version.is_pruned:
        return names
    manifest = version.manifest
    return {
        **names,
        "message": manifest.message,
        "author": manifest.author,
        "created_ns": manifest.created_ns,
        "parents": [parent.hex() for parent in manifest.parents],
        "labels": dict(manifest.labels),
        "produced_by": dict(manifest.produced_by),
        "stats": dataclasses.asdict(manifest.stats),
    }


def summary(version: ReadableVersion) -> str:
    stats = version.manifest.stats
    return (
        f"Version {version.locator.version.hex()[:12]} of {version.locator.volume}: {stats.files} files, "
        f"{output.size(stats.bytes)}, {output.size(stats.stored_bytes_added)} uploaded"
    )
