"""The contract of every object store, independent of its backend.

A store maps keys (`packs/ab/ab12…`, ASCII, `/`-separated, never starting or ending with one) to
immutable or replaceable byte strings. Blocking; every method may be called from any number of
threads.

    call            when it returns                                           otherwise
    get             the whole object                                          NotFoundError; CorruptError: larger than such an object
                                                                              may be (`format/object_kinds`)
    get_range       exactly `length` bytes                                    NotFoundError; CorruptError: object too short
    size            length in bytes, None when absent
    put             the object is durable and visible whole, or not at all
    put_if_absent   as put, and nothing was there before                      ConflictError: something is there
    list            keys that start with `prefix`, after `start_after`,       InvalidInputError: it has no lists (http)
                    in byte order, at most `limit`                            CorruptError: an entry that is no object (directory)
    delete          none of the keys exists (absent ones are fine)

Every call may also raise UnavailableError (the store does not answer, or the outcome is unknown),
AccessDeniedError, ReadOnlyError, NoSpaceError. After an error of `put` or `put_if_absent` the
object may or may not be there: `put_if_absent` is never repeated inside; `cowfs.store.refs.refs`
shows how to find out. A list sees every put that returned before it started.

Optional calls and properties. Callers find them by `isinstance` or `hasattr` and do without them:

    stream_range          a long range in pieces                      `streams`; without it ranges are read one after the other
    list_carefully        believe only complete, genuine lists        `ListsCarefully`; without it every list is believed
    has_partial_ranges    of wrappers: as `streams` says              `streams`
    patience              how long calls wait for a silent store      `patience.HasPatience`; of `RetryingStore`
    sealing               how records are encrypted                   `sealed.HasSealing`; of `RetryingStore`
    key_source, seal_with the source of the key, and its use          `sealed.Sealable`; of `RetryingStore`
    memory                what this machine has seen of the store     `remembering.HasMemory`; of `RetryingStore`

A backend provides at most the first two. `RetryingStore` is around every backend; `readonly` and
`sealed` pass on the rest.

Not here: what the bytes mean (`cowfs.format`), hashes (packs and their callers verify), retries
(`retrying`).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol, runtime_checkable

from cowfs.base.errors import InvalidInputError

Data = bytes | bytearray | memoryview
AcceptsSize = Callable[[int], None]
"""Raises CorruptError for an object of so many bytes (`object_kinds.check_read`): before it is
read, and for the bytes that have arrived."""


def any_size(size_bytes: int) -> None:
    """Accepts it."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """mtime_ns is the store's own clock; many stores round it to a second. tag: what names this
    state of the object, where the backend asks for it; "": nothing does."""

    key: str
    size: int
    mtime_ns: int
    tag: str = ""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def nanoseconds(moment: datetime | float) -> int:
    """To the microsecond, which is what clients of stores keep; a float of so many seconds is no
    more exact. So a time that is given in both ways is the same. ValueError, OverflowError: a
    float that is no time."""
    if isinstance(moment, datetime):
        return (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1) * 1000
    return round(moment * 1_000_000) * 1000


@runtime_checkable
class ListsCarefully(Protocol):
    """A store whose usual way to list believes any answer."""

    def list_carefully(self) -> None: ...


def list_carefully(store: ObjectStore) -> None:
    """From now on a list of the store is believed only if it is genuine and complete: for callers
    that delete objects which no list names. Slower, if the store has another way."""
    if isinstance(store, ListsCarefully):
        store.list_carefully()


@runtime_checkable
class ObjectStore(Protocol):
    @property
    def url(self) -> str:
        """Canonical URL, without credentials."""
        ...

    def get(self, key: str) -> bytes: ...

    def get_range(self, key: str, offset: int, length: int) -> Data: ...

    def size(self, key: str) -> int | None: ...

    def put(self, key: str, data: Data) -> None: ...

    def put_if_absent(self, key: str, data: Data) -> None: ...

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]: ...

    def delete(self, keys: Iterable[str]) -> None: ...

    def read_only(self) -> ObjectStore:
        """A view of the same store whose writing calls raise ReadOnlyError."""
        ...

    def close(self) -> None:
        """Closes connections. Calls in flight may fail; further calls are not allowed."""
        ...


def check_key(key: str) -> None:
    """InvalidInputError unless every backend can hold the key: it never leaves its store, and is
    never hidden."""
    if (
        not key.isascii()
        or not key.isprintable()
        or any(part in ("", ".", "..") for part in key.split("/"))
        or key[0] == "."
    ):
        raise InvalidInputError(
            f"{key!r} is not a key of an object store", hint="Report this: keys come from cowfs alone."
        )
