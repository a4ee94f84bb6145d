"""Repeats calls that the store's own client does not repeat.

`put_if_absent` is not repeated inside, since the caller could not tell its own object from
another's. Callers that look at the existing object anyway, or start again with another key, need
not tell them apart: a single "busy" answer must not end a run of hours. Refs, whose records must be
told apart, have `refs.append`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cowfs.base import clock
from cowfs.base.errors import UnavailableError
from cowfs.store.contract import Data, ObjectStore
from cowfs.store.refs import refs
from cowfs.store.reliability.patience import Patience, Pauses, patience_of

T = TypeVar("T")


def create(store: ObjectStore, key: str, data: Data) -> None:
    """As `put_if_absent`, repeated while the store's patience lasts.

    ConflictError: something is there, another's or of an attempt of this call whose outcome was
    not known. UnavailableError: it may be there.
    """
    repeat_while_unavailable(store, lambda: store.put_if_absent(key, data))


def repeat_while_unavailable(store: ObjectStore, call: Callable[[], T]) -> T:
    """What `call` returns, made anew after an UnavailableError while the store's patience lasts."""
    patience, pauses, began_s = patience_of(store) or Patience(refs.APPEND_S), Pauses(), clock.monotonic_s()
    while True:
        try:
            return call()
        except UnavailableError as error:
            patience.tell(error, began_s)
            if not patience.wait_to_repeat(error, pauses, began_s):
                raise
