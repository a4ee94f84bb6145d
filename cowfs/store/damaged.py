"""Objects that are looked at again when they seem damaged.

An answer may be damaged on its way, or be the one to another question, while the object is right.
So damage counts only when two answers in a row are the same, or ASKS answers are all damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cowfs.errors import CorruptError
from cowfs.store.contract import ObjectStore

ASKS = 4

T = TypeVar("T")


def read_as(store: ObjectStore, key: str, decode: Callable[[bytes], T], data: bytes | None = None) -> T:
    """What `decode` makes of an object. data: the first answer, if there was one already.
    NotFoundError; CorruptError: it is damaged."""
    asks, before = 0, None
    while True:
        asks += 1
        try:
            if data is None:
                data = store.get(key)
            return decode(data)
        except CorruptError as error:
            if asks == ASKS or (data is not None and data == before):
                if not error.hint:
                    error.set_hint(
                        "It was asked for again. If that stays so, its stored bytes were altered; take it from a copy of "
                        "the store."
                    )
                raise
            before, data = data, None
