"""Which chunks are fetched by one request, and who hears when some of them have come.

    chunks ─▶ runs: neighbours of a pack, at most REQUEST_BYTES ─▶ parts of PART_BYTES, a Load each

A Request is what one task fetches; its loads end one after the other, as its bytes arrive. So who
waits for its first chunk does not wait for its last. For one thread at a time: the one that makes a
request, then the one that fetches it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from cowfs.session.linked import REQUEST_BYTES as LINKED_BYTES
from cowfs.session.linked import is_linked
from cowfs.store.packs import GAP_BYTES

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
        """Those of chunks that nobody has asked for yet."""
        self._load_of: list[Load] = []

    def add(self, load: Load, chunks: list[ChunkRef]) -> None:
        self.chunks += chunks
        if load not in self.along:
            self.loads.append(load)
        self._load_of += [load] * len(chunks)
        load.left = len(chunks)

    def bring_along(self, load: Load) -> None:
        """Before anybody may wait for it."""
        self.along.append(load)

    def arrived(self, number: int) -> Load | None:
        """Chunk `number` is here. With it a load, perhaps."""
        load = self._load_of[number]
        load.left -= 1
        return load if load.left == 0 else None


class Load(Future[None]):
    """Of some neighbouring chunks of a request, of which `left` are not here yet."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self.request = request
        self.left = 0


def runs(chunks: Iterable[ChunkRef]) -> list[list[ChunkRef]]:
    """Chunks by pack and offset, in runs of neighbours that one request can fetch: as few as it
    takes, and of about the same length."""
    found: list[list[ChunkRef]] = []
    for together in _neighbourhoods(chunks):
        size = sum(chunk.stored_length for chunk in together)
        most = LINKED_BYTES if is_linked(together[0].pack) else REQUEST_BYTES
        share = max(size / max(math.ceil(size / most), 1), 1)
        found += _split(together, share)
    return found


def _neighbourhoods(chunks: Iterable[ChunkRef]) -> list[list[ChunkRef]]:
    """By pack and offset; between two there is more than a request would skip."""
    found: list[list[ChunkRef]] = []
    pack, end = -1, 0
    for chunk in sorted(chunks, key=lambda chunk: (chunk.pack, chunk.offset)):
        if chunk.pack != pack or chunk.offset - end > GAP_BYTES:
            found.append([])
        found[-1].append(chunk)
        pack, end = chunk.pack, chunk.offset + chunk.stored_length
    return found


def parts(run: list[ChunkRef]) -> list[list[ChunkRef]]:
    """What is told of together when it has come."""
    return _split(run, PART_BYTES)


def _split(run: list[ChunkRef], share_bytes: float) -> list[list[ChunkRef]]:
    """In order, a part ends where the sum of all before passes a multiple of share_bytes."""
    found: list[list[ChunkRef]] = []
    number, before = -1, 0
    for chunk in run:
        if int(before / share_bytes) != number:
            number = int(before / share_bytes)
            found.append([])
        found[-1].append(chunk)
        before += chunk.stored_length
    return found
