"""The bytes of linked files: read where they lie, in the state that the version names.

A linked file has a row in the index instead of extents (`index.links`). To the engine, and to
whoever copies files out of a version, it has extents like any other (`content_with_links`). So
residency, read-ahead, the cache of chunks, passthrough and `copy_file_range` need to know nothing
of links. The name of such a chunk says which bytes are meant; whether they are those, the origin is
asked with each read. It is no hash of bytes: never looked up among stored chunks, and never written
to a version. A commit stores such bytes as chunks (`staged_contents`). The numbers of such packs
are in the journal, which is why an index keeps rows of links that are none any more.

An object that changed or is gone is a SourceChangedError for its file alone. The URL comes from a
version, which anybody may have made: credentials of the environment go only to servers that the
user named, those that were given for the store only to the store's own bucket, and a directory of
this machine is read only if the user has linked it here (`store.trust`). Any thread may call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from cowfs.errors import CorruptError, InvalidStateError
from cowfs.index.links import FIRST_NUMBER, Link, range_name
from cowfs.store import AMBIENT, Access
from cowfs.store.origin import OriginObject
from cowfs.store.origin.open import RepeatingOrigin, open_linked
from cowfs.store.packs import ChunkRequest
from cowfs.store.patience import Patience

if TYPE_CHECKING:
    from cowfs.index import Index

REQUEST_BYTES = 4 << 20


def is_linked(pack: int) -> bool:
    """Whether the number of a pack stands for a linked object."""
    return pack >= FIRST_NUMBER


class LinkedBytes:
    """Of one opened version or volume. store_url, access: of the store that it lies in. limit_s:
    how long an origin that does not answer is waited for."""

    def __init__(self, store_url: str = "", access: Access = AMBIENT, limit_s: float | None = None) -> None:
        self._store_url = store_url
        self._access = access
        self._limit_s = limit_s
        self._lock = Lock()  # guards the next two; never held during a request
        self._origins: dict[str, RepeatingOrigin] = {}
        self._is_closed = False

    def close(self) -> None:
        """Reads under way may fail."""
        with self._lock:
            self._is_closed = True
            origins = [*self._origins.values()]
            self._origins.clear()
        for origin in origins:
            origin.close()

    def read_each(
        self, pack: int, requests: Sequence[ChunkRequest], find: Callable[[int], Link | None]
    ) -> Iterator[tuple[int, bytes]]:
        """(index, bytes) of these chunks of one linked object. find: `Index.link`.
        SourceChangedError: the object is another one, or gone."""
        link = find(pack - FIRST_NUMBER)
        if link is None:
            raise CorruptError(f"the version has no link of inode {pack - FIRST_NUMBER}", hint="Read another version.")
        origin = self._origin(link.url)
        for run in _runs(requests):
            start = requests[run[0]].offset
            end = requests[run[-1]].offset + requests[run[-1]].raw_length
            for i in run:
                if requests[i].hash != range_name(link, requests[i].offset, requests[i].raw_length):
                    raise CorruptError(f"inode {pack - FIRST_NUMBER} is linked to another object than its extents say")
            data = memoryview(origin.read(_object(link), start, end - start))
            for i in run:
                at = requests[i].offset - start
                yield i, bytes(data[at : at + requests[i].raw_length])

    def read(self, index: Index, ino: int, offset: int, length: int) -> bytes:
        """Bytes of a linked file, by one request. SourceChangedError."""
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
    """Indexes of requests that follow one another, in runs of at most REQUEST_BYTES."""
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
