"""How much of a store a group of versions needs. Plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StoredBytes:
    """group: a version's id, a volume's name, an owner, or the store's URL. versions: how many it
    has. stored_bytes: that they need of the store, compressed; unique_bytes: of these, that nothing
    else needs; shared_bytes: the others."""

    group: str
    versions: int
    stored_bytes: int
    unique_bytes: int
    shared_bytes: int
