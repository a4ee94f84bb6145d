"""The result of a push or pull. Plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PushReport:
    """locator: of the version at the target; its id is the same as at the source. versions: ids
    added to the target's volume besides, oldest first. packs: needed by the versions; put_packs,
    put_bytes: those that the target did not have. tags: that were set. made_store: URL of the new
    store at the target, if it is new. mended: versions whose records were damaged there, and were
    put again. left_out: ids of earlier versions that all_versions did not add, since the volume
    there has a later one; left_out_tags: names of tags on them."""

    locator: str
    is_new: bool
    versions: list[str]
    packs: int
    put_packs: int
    put_bytes: int
    tags: list[str]
    made_store: str | None
    mended: list[str]
    left_out: list[str]
    left_out_tags: list[str]
