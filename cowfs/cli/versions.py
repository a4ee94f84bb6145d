"""Versions as commands show them: one record for --json everywhere, one line for people."""

from __future__ import annotations

import dataclasses
from typing import Any

from cowfs.blocking import ROVolume
from cowfs.cli import output
from cowfs.format.locator import Locator
from cowfs.format.store_url import StoreUrl
from cowfs.ids import VersionId
from cowfs.machine.registry import MountEntry


def of_mount(entry: MountEntry, version: VersionId) -> ROVolume:
    return ROVolume(Locator(StoreUrl.parse(entry.store_url), entry.volume, version))


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
    stats = version.stats
    return (
        f"Version {version.id[:12]} of {version.name}: {stats.files} files, "
        f"{output.size(stats.bytes)}, {output.size(stats.stored_bytes_added)} uploaded"
    )
