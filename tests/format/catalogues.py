"""Entries of catalogues as they are stored."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from cowfs.format.catalogue import CatalogueEntry


def catalogue_entries(entries: Iterable[CatalogueEntry]) -> bytes:
    return b"".join(sorted({struct.pack(">8sII", each.prefix, each.pack, each.offset) for each in entries}))
