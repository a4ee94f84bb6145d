"""Reads the bytes of linked files from the linked objects, in the state that the version names.

A linked file has a row in the index instead of extents (`index.links`). The engine, and code that
copies files out of a version, see extents as for any other file (`content_with_links`), so
residency, read-ahead, the chunk cache, passthrough and `copy_file_range` need to know nothing of
links. The name of such a chunk identifies the bytes; each read checks with the origin that the
object is in that state. The name is not a hash of the bytes: it is never looked up among stored
chunks, and never written to a version. A commit stores such bytes as chunks (`staged_contents`).
The journal refers to the numbers of such packs, which is why an index keeps the rows of former
links.

If an object changed or is gone, only its file fails, with SourceChangedError. The URL comes from a
version, which can come from anyone: credentials of the environment go only to servers that the user
named, those given for the store only to the store's own bucket, and a directory of this machine is
read only if the user has linked it here (`store.credentials.trust`). Any thread may call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from cowfs.base.errors import CorruptError, InvalidStateError
from cowfs.index.links import FIRST_NUMBER, Link, range_name
from cowfs.store import AMBIENT, Access
from cowfs.store.origin import OriginObject
from cowfs.store.origin.open_origin import RepeatingOrigin, open_linked
from cowfs.store.packs import ChunkRequest
from cowfs.store.reliability.patience import Patience

if TYPE_CHECKING:
    from cowfs.index import Index

REQUEST_BYTES = 4 << 20


def is_linked(pack: int) -> bool:
    """Whether a pack number stands for a linked object."""
    return pack >= FIRST_NUMBER


class LinkedBytes:
    """For one opened version or volume. store_url, access: of its store. limit_s: the longest wait
    for an origin that does not answer."""

    def __init__(self, store_url: str = "", access: Access = AMBIENT, limit_s: float | None = None) -> None:
        self._store_url = store_url
        self._access = access
        self._limit_s = limit_s
        self._lock = Lock()  # guards the next two; never held during a request
        self._origins: dict[str, RepeatingOrigin] = {}
        self._is_closed = False

    def close(self) -> None:
        """Closes all origins; running reads may fail."""
        with self._lock:
            self._is_closed = True
            origins = [*self._origins.values()]
            self._origins.clear()
        for origin in origins:
            origin.close()

    def read_each(
        self, pack: int, requests: Sequence[ChunkRequest], find: Callable[[int], Link | None]
    ) -> Iterator[tuple[int, bytes]]:
        """Yields (index, bytes) for these chunks of one linked object. find: `Index.link`.
        SourceChangedError: the object was replaced, or is gone."""
        link = find(pack - FIRST_NUMBER)
        if link is None:
            raise CorruptError(f"the version has no link of inode {pack - FIRST_NUMBER}", hint="Read another version.")
        origin = self._origin(link.url)
        for run in _runs(requests):
            start = requests[run[0]].offset
            end = requests[run[-1]].offset + requests[run[-1]].raw_length
            for i in run:
                if requests[i].hash != range_name(link, requests[i].offset, requests[i].raw_length):
                    raise CorruptError(f"inode {pack - FIRST_NUMBER} is linked to a different object than its extents")
            data = memoryview(origin.read(_object(link), start, end - start))
            for i in run:
                at = requests[i].offset - start
                yield i, bytes(data[at : at + requests[i].raw_length])

    def read(self, index: Index, ino: int, offset: int, length: int) -> bytes:
        """Reads bytes of a linked file with one request. Raises SourceChangedError."""
        link = index.link(ino)
        if link is None:
            raise CorruptError(f"the version has no link of inode {ino}", hint="Read another version.")
        return self._origin(link.url).read(_object(link), offset, length)

    def _origin(self, url: str) -> RepeatingOrigin:
        with self._lock:
            if (found := self._origins.get(url)) is not None:
                return found
        patience = Patience() if self._limit_s is None else Patience(self._limit_s)
        opened = open_linked(url, store_url=self._store_url, access=self._access, patience=patience)
        with self._lock:
            kept = None if self._is_closed else self._origins.setdefault(url, opened)
        if kept is not opened:
            opened.close()
        if kept is None:
            raise InvalidStateError("the version was closed", hint="Open it again.")
        return kept


def _object(link: Link) -> OriginObject:
    return OriginObject(os.fsdecode(link.key), link.size, link.mtime_ns, link.tag)


def _runs(requests: Sequence[ChunkRequest]) -> Iterator[list[int]]:
    """Groups the indexes of adjacent requests into runs of at most REQUEST_BYTES."""
    run: list[int] = []
    start = end = 0
    for i in sorted(range(len(requests)), key=lambda i: requests[i].offset):
        offset, length = requests[i].offset, requests[i].raw_length
        if run and (offset != end or offset + length - start > REQUEST_BYTES):
            yield run
            run = []
        if not run:
            start = offset
        run.append(i)
        end = offset + length
    if run:
        yield run
