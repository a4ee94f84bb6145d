"""Groups chunks into requests and reports each part of a request as soon as it has arrived.

    chunks ─▶ runs: neighbours of a pack, at most REQUEST_BYTES ─▶ parts of PART_BYTES, a Load each

One task fetches a Request. Its loads end one after the other as the bytes arrive, so a caller that
needs the first chunk does not wait for the last. Not thread-safe: one thread builds a request, then
hands it to the thread that fetches it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from cowfs.store.packs import GAP_BYTES
from cowfs.transfer.linked import REQUEST_BYTES as LINKED_BYTES
from cowfs.transfer.linked import is_linked

if TYPE_CHECKING:
    from cowfs.native.chunks import ChunkRef

REQUEST_BYTES = 18 << 20  # a pack, whose last chunk ends behind 16 MiB
PART_BYTES = 1 << 20


class Request:
    """What one task fetches: chunks of one pack, in loads that end one after the other."""

    def __init__(self) -> None:
        self.chunks: list[ChunkRef] = []
        self.loads: list[Load] = []
        self.along: list[Load] = []
        """The loads that no caller has requested yet."""
        self._load_of: list[Load] = []

    def add(self, load: Load, chunks: list[ChunkRef]) -> None:
        self.chunks += chunks
        if load not in self.along:
            self.loads.append(load)
        self._load_of += [load] * len(chunks)
        load.left = len(chunks)

    def bring_along(self, load: Load) -> None:
        """Adds a load before any caller can wait for it."""
        self.along.append(load)

    def mark_arrived(self, number: int) -> Load | None:
        """Counts chunk `number` as arrived. Returns its load if that is now complete."""
        load = self._load_of[number]
        load.left -= 1
        return load if load.left == 0 else None


class Load(Future[None]):
    """A group of neighbouring chunks of a request; `left` counts those that have not arrived."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self.request = request
        self.left = 0


def runs(chunks: Iterable[ChunkRef]) -> list[list[ChunkRef]]:
    """Sorts chunks by pack and offset and groups neighbours into runs, one request each: as few
    runs as possible, all of about the same length."""
    found: list[list[ChunkRef]] = []
    for together in _neighbourhoods(chunks):
        size = sum(chunk.stored_length for chunk in together)
        most = LINKED_BYTES if is_linked(together[0].pack) else REQUEST_BYTES
        share = max(size / max(math.ceil(size / most), 1), 1)
        found += _split(together, share)
    return found


def _neighbourhoods(chunks: Iterable[ChunkRef]) -> list[list[ChunkRef]]:
    """Groups chunks by pack and offset; the gap between two groups is larger than a request would
    skip."""
    found: list[list[ChunkRef]] = []
    pack, end = -1, 0
    for chunk in sorted(chunks, key=lambda chunk: (chunk.pack, chunk.offset)):
        if chunk.pack != pack or chunk.offset - end > GAP_BYTES:
            found.append([])
        found[-1].append(chunk)
        pack, end = chunk.pack, chunk.offset + chunk.stored_length
    return found


def parts(run: list[ChunkRef]) -> list[list[ChunkRef]]:
    """Splits a run into the parts that are reported as arrived together."""
    return _split(run, PART_BYTES)


def _split(run: list[ChunkRef], share_bytes: float) -> list[list[ChunkRef]]:
    """Splits in order; a part ends where the running total passes a multiple of share_bytes."""
    found: list[list[ChunkRef]] = []
    number, before = -1, 0
    for chunk in run:
        if int(before / share_bytes) != number:
            number = int(before / share_bytes)
            found.append([])
        found[-1].append(chunk)
        before += chunk.stored_length
    return found
