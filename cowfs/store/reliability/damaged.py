"""Asks again for objects that seem damaged: our own, and those of an origin (`store.origin`), where
only the length shows damage.

An answer may be damaged on its way, or be the one to another question, while the object is right.
So damage counts only when two answers in a row are the same, or ASKS answers are all damaged.

Memory: one answer, and the hash of the one before it, since packs are read in this way as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from blake3 import blake3

from cowfs.base.errors import CorruptError
from cowfs.store.contract import ObjectStore

ASKS = 4

T = TypeVar("T")


def read_as(store: ObjectStore, key: str, decode: Callable[[bytes], T], data: bytes | None = None) -> T:
    """What `decode` makes of an object. data: the first answer, if there was one already.
    NotFoundError; CorruptError: it is damaged (details: key)."""
    try:
        return ask_until_agreed(lambda: store.get(key), decode, data)
    except CorruptError as error:
        error.details.setdefault("key", key)
        raise


def read_range_as(store: ObjectStore, key: str, offset: int, length: int, decode: Callable[[bytes], T]) -> T:
    """The same of a range of it."""
    return ask_until_agreed(lambda: bytes(store.get_range(key, offset, length)), decode)


def ask_until_agreed(ask: Callable[[], bytes], decode: Callable[[bytes], T], data: bytes | None = None) -> T:
    """Decodes the bytes that `ask` returns, asking again while they seem damaged. An answer that
    `ask` itself refuses (CorruptError) equals no other."""
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
                        "It was asked for again. If that stays so, its stored bytes were altered: take it from a copy of "
                        "the store. Or something between this machine and the server changes answers: a cache, or another proxy."
                    )
                raise
            before, data = found, None
