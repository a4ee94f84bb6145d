"""What a volume's store says about versions beside what they say themselves: tags, and whether a
collection may delete them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cowfs.api import stores
from cowfs.api.twins.one_type import OneType
from cowfs.api.versions import cards
from cowfs.api.versions.version_list import MOST_SHOWN, count_versions, describe, frame
from cowfs.base.short_repr import short_repr
from cowfs.version import purged_versions

if TYPE_CHECKING:
    from cowfs.api.ro_volume import ROVolume
    from cowfs.api.versions.changes import Change


@short_repr
@dataclass(frozen=True)
class VersionNames:
    """tag_names: of the version, in its volume. is_collectable: the volume has pruned it, so that a
    collection may delete it. is_purged: it was purged as a whole; its files are gone."""

    tag_names: list[str]
    is_collectable: bool
    is_purged: bool = False


@dataclass(frozen=True)
class VersionLog(metaclass=OneType):
    """The versions of a volume, newest first, as `ROVolume.history` lists them, and their names;
    of a path, those that changed it. Empty before the first version."""

    volume: str
    versions: list[ROVolume]
    names: dict[str, VersionNames]
    """By version id."""
    changes: dict[str, list[Change]] = field(default_factory=dict)
    """By version id, of the log of a path: what the version changed there against its first
    parent."""

    def __repr__(self) -> str:
        lines = [describe(each) + self._tags_of(each) for each in self.versions[:MOST_SHOWN]]
        return frame(self._title, lines, len(self.versions))

    def _repr_html_(self) -> str:
        tags = {version: each.tag_names for version, each in self.names.items()}
        return cards.show_versions(self.versions, self._title, tags)

    @property
    def _title(self) -> str:
        return f"log of {self.volume}: {count_versions(self.versions)}"

    def _tags_of(self, version: ROVolume) -> str:
        tags = self.names[version.id].tag_names if version.id in self.names else []
        return f"  ({', '.join(tags)})" if tags else ""


def names_of(
    store: stores.OpenStore, volume: str, here: list[str], gone: Iterable[str] = ()
) -> dict[str, VersionNames]:
    """The names of these versions, by id. here, gone: ids of versions that are in the store, and
    that are not. Nothing is known of a store that refuses to be listed."""
    from cowfs.api.upkeep import pruning
    from cowfs.api.versions import tagging

    tags = tagging.by_version(store, volume)
    collectable = pruning.collectable(store, volume, here, tags) if here else set()
    purged = {each.hex() for each in purged_versions.find_purged_versions(store.objects)} if here else set[str]()
    return {
        each: VersionNames(tags.get(each, []), is_collectable=each in collectable, is_purged=each in purged)
        for each in (*here, *gone)
    }
