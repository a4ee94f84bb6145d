"""What every object store can do, whatever lies behind it: the contract of the layer.

A store maps keys (`packs/ab/ab12…`, ASCII, `/`-separated, never starting or ending with one) to
immutable or replaceable byte strings. Blocking; every method may be called from any number of
threads.

    call            when it returns                                           otherwise
    get             the whole object                                          NotFoundError
    get_range       exactly `length` bytes                                    NotFoundError; CorruptError: object too short
    size            length in bytes, None when absent
    put             the object is durable and visible whole, or not at all
    put_if_absent   as put, and nothing was there before                      ConflictError: something is there
    list            keys that start with `prefix`, after `start_after`,       InvalidInputError: it has no lists (http)
                    in byte order, at most `limit`
    delete          none of the keys exists (absent ones are fine)

Every call may also raise UnavailableError (the store does not answer, or the outcome is unknown),
AccessDeniedError, ReadOnlyError, NoSpaceError. After an error of `put` or `put_if_absent` the
object may or may not be there: `put_if_absent` is never repeated inside; `cowfs.store.refs` shows
how to find out. A list sees every put that returned before it started.

A store may have `stream_range`, too (`streams`): a long range in pieces.

Not here: what the bytes mean (`cowfs.format`), hashes (packs and their callers verify), retries
(`retrying`).
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from cowfs.errors import InvalidInputError

Data = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """mtime_ns is the store's own clock; many stores round it to a second."""

    key: str
    size: int
    mtime_ns: int


def nanoseconds(moment: datetime) -> int:
    """Exact, as a float of so many seconds would not be."""
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000


@runtime_checkable
class ListsCarefully(Protocol):
    """A store whose usual way to list believes any answer."""

    def list_carefully(self) -> None: ...


def list_carefully(store: ObjectStore) -> None:
    """From now on a list of the store is believed only if it is one, and whole: for who deletes
    what is in none. Slower, where the store has another way."""
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
        """Lets go of connections. Calls in flight may fail; further calls are not allowed."""
        ...


def check_key(key: str) -> None:
    """InvalidInputError unless key is one that every backend can hold: it never leaves its store,
    and is never hidden."""
    if (
        not key.isascii()
        or not key.isprintable()
        or any(part in ("", ".", "..") for part in key.split("/"))
        or key[0] == "."
    ):
        raise InvalidInputError(
            f"{key!r} is not a key of an object store", hint="Report this: keys come from cowfs alone."
        )
