"""The report of a purge: what it takes, from which versions, and what it cannot reach."""

from __future__ import annotations

from dataclasses import dataclass

from cowfs.api.upkeep.collect_report import Waiting
from cowfs.base.short_repr import short_repr

BEYOND = (
    "copies elsewhere: other stores (push, pull), downloads, exports, mounts without FUSE",
    "caches of other machines and users, until a collection or a purge runs there",
    "running mounts: they keep the bytes that they have read, until they end",
    "uncommitted work and journals in working copies",
    "other files that contain the bytes, as an archive does: they are cut into other chunks",
    "linked files (import with links): their bytes stay in place",
    "the bucket's own copies: earlier object versions, object lock, replicas, backups, trash",
)
"""Places that a purge does not reach, in words."""


@short_repr
@dataclass(frozen=True)
class PurgedVersion:
    """What one version loses. volume: the one that it was made in. kept_by: the heads, tags, pins
    and mounts that name it; empty: none does any more. files: how many files cannot be read
    afterwards; paths: the first ten. is_whole: the version itself cannot be opened any more."""

    version: str
    volume: str
    kept_by: list[str]
    files: int
    paths: list[str]
    is_whole: bool


@short_repr
@dataclass(frozen=True)
class PurgeReport:
    """volume: the volume's name, which is to be typed. chunks: how many, each counted once.
    freed_bytes: their size in the store. freed_packs: those that are deleted; written_bytes: of
    their other blobs, which are written to new packs. versions: all that lose something, the
    target's own included. beyond: places that a purge does not reach.

    is_done: no object of the store holds the chunks any more. Until then the next purge, or a
    collection, continues; waits_for: writers that have to answer first. stored_again: how many of
    the chunks a writer with the same bytes has stored again meanwhile, which the next purge takes.
    """

    store_url: str
    source: str
    volume: str
    chunks: int
    freed_bytes: int
    freed_packs: int
    written_bytes: int
    versions: list[PurgedVersion]
    beyond: list[str]
    waits_for: list[Waiting]
    stored_again: int
    is_done: bool

    @property
    def volumes(self) -> list[str]:
        """The volumes in which these versions were made."""
        return sorted({each.volume for each in self.versions})
