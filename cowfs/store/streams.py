"""Reads ranges of objects piece by piece, as they arrive, so that the memory of a request does not
depend on its length.

    store         has `stream_range`      pieces
    directory     yes                     PIECE_BYTES at a time, always in the same buffer
    S3            yes                     the bytes that have arrived, at least PIECE_BYTES at a time
    fsspec        yes                     ranges of RANGE_BYTES, one after the other
    retrying      yes                     those of its backend; continues after the last one when the store fails
    others        no                      ranges of RANGE_BYTES, one after the other

`stream_range` is optional in the contract. It yields pieces in order, `length` bytes in all, none
of them empty. Any piece may raise the errors of `get_range`. A piece is valid only until the next
one is requested. For a range that goes beyond the end of the object it yields the bytes that exist,
and then raises CorruptError. A wrapper has `has_partial_ranges`, which says whether its store does
so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cowfs.store.contract import Data, ObjectStore

PIECE_BYTES = 1 << 20
RANGE_BYTES = 4 << 20


def has_partial_ranges(store: ObjectStore) -> bool:
    """Whether a range that goes beyond the object's end yields the bytes that exist, before it
    raises."""
    found: bool = getattr(store, "has_partial_ranges", hasattr(store, "stream_range"))
    return found


def stream_range(store: ObjectStore, key: str, offset: int, length: int) -> Iterator[Data]:
    """A range of an object, from any store."""
    own: Callable[[str, int, int], Iterator[Data]] | None = getattr(store, "stream_range", None)
    return own(key, offset, length) if own is not None else _ranges(store, key, offset, length)


def _ranges(store: ObjectStore, key: str, offset: int, length: int) -> Iterator[Data]:
    for done in range(0, length, RANGE_BYTES):
        yield store.get_range(key, offset + done, min(RANGE_BYTES, length - done))
