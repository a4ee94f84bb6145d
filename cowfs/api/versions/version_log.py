"""What a volume's store says about versions beside what they say themselves: tags, and whether a
collection may delete them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cowfs.api import stores
from cowfs.api.upkeep import pruning
from cowfs.api.versions import tagging

if TYPE_CHECKING:
    from cowfs.api.ro_volume import ROVolume


@dataclass(frozen=True)
class VersionNames:
    """tags: of the version, in its volume. is_collectable: the volume has pruned it, so that a
    collection may delete it."""

    tags: list[str]
    is_collectable: bool


@dataclass(frozen=True)
class VersionLog:
    """The versions of a volume, newest first, as `ROVolume.history` lists them, and their names.
    Empty before the first version."""

    volume: str
    versions: list[ROVolume]
    names: dict[str, VersionNames]
    """By version id."""


def names_of(
    store: stores.OpenStore, volume: str, here: list[str], gone: Iterable[str] = ()
) -> dict[str, VersionNames]:
    """The names of these versions, by id. here, gone: ids of versions that are in the store, and
    that are not. Nothing is known of a store that refuses to be listed."""
    tags = tagging.by_version(store, volume)
    collectable = pruning.collectable(store, volume, here, tags) if here else set()
    return {each: VersionNames(tags.get(each, []), is_collectable=each in collectable) for each in (*here, *gone)}
