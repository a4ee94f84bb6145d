"""Packs: many chunks (or index blocks) in one immutable object, written by `PackUploader`, read by
`PackReader`."""

from __future__ import annotations

from cowfs.store.packs.directories import DirectoryCache
from cowfs.store.packs.moved import earlier_moved_records, places_now, read_moved_records
from cowfs.store.packs.purged import NOTHING, Purged, append_purged, load_purged, require_unpurged
from cowfs.store.packs.read import GAP_BYTES, ChunkRequest, Lead, PackReader
from cowfs.store.packs.upload import PackLocation, PackReceipt, PackUploader

__all__ = [
    "GAP_BYTES",
    "NOTHING",
    "ChunkRequest",
    "DirectoryCache",
    "Lead",
    "PackLocation",
    "PackReader",
    "PackReceipt",
    "PackUploader",
    "Purged",
    "append_purged",
    "earlier_moved_records",
    "load_purged",
    "places_now",
    "read_moved_records",
    "require_unpurged",
]
