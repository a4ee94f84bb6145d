"""How much of a store a group of versions needs. Plain values."""

from __future__ import annotations

from dataclasses import dataclass

from cowfs.base.short_repr import has_card


@has_card
@dataclass(frozen=True)
class StoredBytes:
    """group: a version's id, a volume's name, an owner, or the store's URL. version_count: their
    number. stored_bytes: the bytes they need in the store, compressed; unique_bytes: those of them
    that nothing else needs; shared_bytes: the others. is_deleted: the group is a deleted volume,
    which takes space as long as it can be restored. purged_count: of the versions, those that were
    purged as a whole, which need nothing."""

    group: str
    version_count: int
    stored_bytes: int
    unique_bytes: int
    shared_bytes: int
    is_deleted: bool = False
    purged_count: int = 0
