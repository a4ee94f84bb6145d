"""Calls that are made again although the store's own client does not repeat them.

`put_if_absent` is not repeated inside, since who repeats it cannot tell his own object from
another's. Who looks at what is there anyway, or begins anew with another key, need not tell them
apart: one answer that the store is busy must not end a run of hours. Refs, whose records must be
told apart, have `refs.append`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cowfs import clock
from cowfs.errors import UnavailableError
from cowfs.store import refs
from cowfs.store.contract import Data, ObjectStore
from cowfs.store.patience import Patience, Pauses, patience_of

T = TypeVar("T")


def create(store: ObjectStore, key: str, data: Data) -> None:
    """As `put_if_absent`, repeated while the store's patience lasts.

    ConflictError: something is there, another's or of an attempt of this call whose outcome was
    not known. UnavailableError: it may be there.
    """
    repeated(store, lambda: store.put_if_absent(key, data))


def repeated(store: ObjectStore, call: Callable[[], T]) -> T:
    """What `call` returns, made anew after an UnavailableError while the store's patience lasts."""
    patience, pauses, began_s = patience_of(store) or Patience(refs.APPEND_S), Pauses(), clock.monotonic_s()
    while True:
        try:
            return call()
        except UnavailableError as error:
            patience.tell(error, began_s)
            if not patience.wait_to_repeat(error, pauses, began_s):
                raise
