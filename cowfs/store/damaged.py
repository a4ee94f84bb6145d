"""Objects that are looked at again when they seem damaged: ours, and those of an origin
(`store.origin`), of which only the length tells.

An answer may be damaged on its way, or be the one to another question, while the object is right.
So damage counts only when two answers in a row are the same, or ASKS answers are all damaged.

Memory: one answer. Of the one before its hash is kept: packs are read so, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from blake3 import blake3

from cowfs.errors import CorruptError
from cowfs.store.contract import ObjectStore

ASKS = 4

T = TypeVar("T")


def read_as(store: ObjectStore, key: str, decode: Callable[[bytes], T], data: bytes | None = None) -> T:
    """What `decode` makes of an object. data: the first answer, if there was one already.
    NotFoundError; CorruptError: it is damaged (details: key)."""
    try:
        return agreed(lambda: store.get(key), decode, data)
    except CorruptError as error:
        error.details.setdefault("key", key)
        raise


def read_range_as(store: ObjectStore, key: str, offset: int, length: int, decode: Callable[[bytes], T]) -> T:
    """The same of a range of it."""
    return agreed(lambda: bytes(store.get_range(key, offset, length)), decode)


def agreed(ask: Callable[[], bytes], decode: Callable[[bytes], T], data: bytes | None = None) -> T:
    """The same of whatever `ask` gives. An answer that it refuses itself (CorruptError) is like no
    other."""
    asks, before = 0, b""
    while True:
        asks += 1
        try:
            if data is None:
                data = ask()
            return decode(data)
        except CorruptError as error:
            found = blake3(data).digest() if data is not None else b""
            if asks == ASKS or (found and found == before):
                if not error.hint:
                    error.set_hint(
                        "It was asked for again. If that stays so, its stored bytes were altered; take it from a copy of "
                        "the store."
                    )
                raise
            before, data = found, None
