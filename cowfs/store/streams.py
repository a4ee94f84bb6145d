"""Ranges of objects piece by piece, as they arrive: what a request costs in memory then does not
depend on its length.

    store         has `stream_range`      what it gives
    directory     yes                     PIECE_BYTES at a time, always in the same buffer
    S3            yes                     what has arrived, at least PIECE_BYTES at a time
    retrying      yes                     goes on behind the last piece when the store fails
    any other     no                      ranges of RANGE_BYTES, one after the other

`stream_range` is optional in the contract, like this: pieces in order, `length` bytes in all, never
empty; errors as those of `get_range`, by any piece. A piece stays as it is only until the next one
is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from cowfs.store.contract import Data, ObjectStore

PIECE_BYTES = 1 << 20
RANGE_BYTES = 4 << 20


@runtime_checkable
class Streaming(Protocol):
    def stream_range(self, key: str, offset: int, length: int) -> Iterator[Data]: ...


def stream_range(store: ObjectStore, key: str, offset: int, length: int) -> Iterator[Data]:
    """The range of any store."""
    if isinstance(store, Streaming):
        return store.stream_range(key, offset, length)
    return _ranges(store, key, offset, length)


def _ranges(store: ObjectStore, key: str, offset: int, length: int) -> Iterator[Data]:
    for done in range(0, length, RANGE_BYTES):
        yield store.get_range(key, offset + done, min(RANGE_BYTES, length - done))
