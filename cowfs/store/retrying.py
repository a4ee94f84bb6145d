"""A store whose idempotent calls are repeated while the store does not answer.

    repeated        get, get_range, size, list, put, delete       on UnavailableError only
    never repeated  put_if_absent                                 a repeat could be refused by our own first attempt

Waits between attempts double from 0.2 s to 5 s, each shortened by a random part (many clients of one store must not come back
together). The last error is raised after 6 attempts, or when the next one would start later than 30 s after the first.
A plain put may be repeated because every object cowfs replaces (heartbeats, pins) has one writer, and every other is immutable.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import TypeVar

from cowfs import clock, log
from cowfs.errors import UnavailableError
from cowfs.store.contract import Data, ObjectInfo, ObjectStore
from cowfs.store.readonly import ReadOnlyStore

T = TypeVar("T")

_ATTEMPTS = 6
_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 5.0
_DEADLINE_S = 30.0

_log = log.get("store")


class RetryingStore:
    """Wraps `store`; thread-safe as far as it is."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def url(self) -> str:
        return self._store.url

    def get(self, key: str) -> bytes:
        return _repeat(lambda: self._store.get(key))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return _repeat(lambda: self._store.get_range(key, offset, length))

    def size(self, key: str) -> int | None:
        return _repeat(lambda: self._store.size(key))

    def put(self, key: str, data: Data) -> None:
        _repeat(lambda: self._store.put(key, data))

    def put_if_absent(self, key: str, data: Data) -> None:
        self._store.put_if_absent(key, data)

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        return _repeat(lambda: self._store.list(prefix, start_after=start_after, limit=limit))

    def delete(self, keys: Iterable[str]) -> None:
        doomed = tuple(keys)
        _repeat(lambda: self._store.delete(doomed))

    def read_only(self) -> ObjectStore:
        return ReadOnlyStore(self)

    def close(self) -> None:
        self._store.close()


def _repeat(call: Callable[[], T]) -> T:
    deadline_s = clock.monotonic_s() + _DEADLINE_S
    wait_s = _FIRST_WAIT_S
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return call()
        except UnavailableError as error:
            pause_s = wait_s * (1 - clock.jitter() / 2)
            if attempt == _ATTEMPTS or clock.monotonic_s() + pause_s > deadline_s:
                raise
            _log.info("attempt %d failed, the next one in %.1f s: %s", attempt, pause_s, error)
        clock.sleep_s(pause_s)
        wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
    raise AssertionError("the last attempt returns or raises")
