"""How much of a store a group of versions needs. Plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StoredBytes:
    """group: a version's id, a volume's name, an owner, or the store's URL. versions: how many it
    has. stored_bytes: that they need of the store, compressed; unique_bytes: of these, that nothing
    else needs; shared_bytes: the others. is_deleted: of a volume, that it was deleted; it takes the
    room as long as it can be brought back."""

    group: str
    versions: int
    stored_bytes: int
    unique_bytes: int
    shared_bytes: int
    is_deleted: bool = False
