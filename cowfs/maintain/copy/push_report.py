"""The result of a push or pull. Plain values."""

from __future__ import annotations

from dataclasses import dataclass

from cowfs.base.short_repr import short_repr


@short_repr
@dataclass(frozen=True)
class PushReport:
    """locator: of the version at the target; its id is the same as at the source. version_ids: ids
    added to the target's volume besides, oldest first. packs: needed by the versions; put_packs,
    put_bytes: those that the target did not have. tag_names: tags that were set. made_store_url:
    URL of the new store at the target, if it is new. mended_version_ids: versions whose records
    were damaged there, and were put again. left_out_version_ids: ids of earlier versions that
    all_versions did not add, since the volume there has a later one; left_out_tag_names: names of
    tags on them."""

    locator: str
    is_new: bool
    version_ids: list[str]
    packs: int
    put_packs: int
    put_bytes: int
    tag_names: list[str]
    made_store_url: str | None
    mended_version_ids: list[str]
    left_out_version_ids: list[str]
    left_out_tag_names: list[str]
