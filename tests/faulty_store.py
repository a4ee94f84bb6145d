"""A store that misbehaves as stores do: errors before the effect, replies lost after it, short
bodies, flipped bits, delays.

`FaultyStore(store, seed=…)` wraps any store; `inject` arms a fault for the next calls, or for a
random part of them. The seed is printed, so that a failing run can be repeated. `calls` lists
(method, key) in order. Thread-safe as far as the wrapped store is.
"""

from __future__ import annotations

import builtins
import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from cowfs.errors import CowfsError, UnavailableError
from cowfs.format.sealing import Sealing
from cowfs.store.contract import Data, ObjectInfo, ObjectStore
from cowfs.store.readonly import ReadOnlyStore
from cowfs.store.sealed import sealing_of

T = TypeVar("T")


class Fault(Enum):
    FAIL = "the call does nothing and raises"
    LOSE_REPLY = "the call takes effect and raises"
    TRUNCATE = "the body ends early"
    FLIP_BIT = "one bit of the body is wrong"
    DELAY = "the call takes 10 ms longer"


@dataclass
class _Armed:
    fault: Fault
    methods: frozenset[str]
    key_part: str
    left: float
    probability: float
    error: CowfsError
    skip: int


class FaultyStore:
    def __init__(self, store: ObjectStore, *, seed: int = 0) -> None:
        print(f"faulty store: seed {seed}")
        self._store = store
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._armed: list[_Armed] = []
        self.calls: list[tuple[str, str]] = []

    def inject(
        self,
        fault: Fault,
        *methods: str,
        times: float = 1,
        probability: float = 1.0,
        key_part: str = "",
        skip: int = 0,
        error: CowfsError | None = None,
    ) -> None:
        """Arms a fault for calls of `methods` (none named: of any) whose key holds key_part; times
        may be math.inf.

        The first `skip` of these calls pass.
        """
        error = error or UnavailableError(f"injected: {fault.value}")
        with self._lock:
            self._armed.append(_Armed(fault, frozenset(methods), key_part, times, probability, error, skip))

    def heal(self) -> None:
        with self._lock:
            self._armed.clear()

    def count(self, method: str) -> int:
        with self._lock:
            return sum(called == method for called, _ in self.calls)

    # -- the contract

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def sealing(self) -> Sealing:
        return sealing_of(self._store)

    def get(self, key: str) -> bytes:
        return self._call("get", key, lambda: self._store.get(key))

    def get_range(self, key: str, offset: int, length: int) -> Data:
        return self._call("get_range", key, lambda: self._store.get_range(key, offset, length))

    def size(self, key: str) -> int | None:
        return self._call("size", key, lambda: self._store.size(key))

    def put(self, key: str, data: Data) -> None:
        self._call("put", key, lambda: self._store.put(key, data))

    def put_if_absent(self, key: str, data: Data) -> None:
        self._call("put_if_absent", key, lambda: self._store.put_if_absent(key, data))

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        return self._call("list", prefix, lambda: self._store.list(prefix, start_after=start_after, limit=limit))

    def delete(self, keys: Iterable[str]) -> None:
        doomed = tuple(keys)
        self._call("delete", " ".join(doomed), lambda: self._store.delete(doomed))

    def read_only(self) -> ObjectStore:
        return ReadOnlyStore(self)

    def close(self) -> None:
        self._store.close()

    def _call(self, method: str, key: str, action: Callable[[], T]) -> T:
        faults = self._due(method, key)
        for armed in faults:
            if armed.fault is Fault.DELAY:
                time.sleep(0.01)
            if armed.fault is Fault.FAIL:
                raise armed.error
        result = action()
        for armed in faults:
            if armed.fault is Fault.LOSE_REPLY:
                raise armed.error
            if isinstance(result, bytes):
                result = self._spoil(armed.fault, result)  # type: ignore[assignment]
        return result

    def _due(self, method: str, key: str) -> builtins.list[_Armed]:
        with self._lock:
            self.calls.append((method, key))
            due = []
            for armed in self._armed:
                is_meant = not armed.methods or method in armed.methods
                if not is_meant or armed.key_part not in key or armed.left <= 0:
                    continue
                if armed.skip > 0:
                    armed.skip -= 1
                    continue
                if self._random.random() < armed.probability:
                    armed.left -= 1
                    due.append(armed)
            return due

    def _spoil(self, fault: Fault, body: bytes) -> bytes:
        with self._lock:
            if fault is Fault.TRUNCATE:
                return body[: self._random.randrange(len(body))] if body else body
            if fault is Fault.FLIP_BIT and body:
                spoilt = bytearray(body)
                spoilt[self._random.randrange(len(body))] ^= 1 << self._random.randrange(8)
                return bytes(spoilt)
            return body


class PagesInstead(FaultyStore):
    """Something on the way answers, with status 200 and a page of its own, the next `times`
    questions for an object below `prefix` and whether it is there."""

    page = b"<html>log in</html>"

    def __init__(self, store: ObjectStore, prefix: str, *, times: float = 0) -> None:
        super().__init__(store)
        self._prefix = prefix
        self.times = times

    def get(self, key: str) -> bytes:
        return self.page if self._is_answered(key) else super().get(key)

    def size(self, key: str) -> int | None:
        return len(self.page) if self._is_answered(key) else super().size(key)

    def _is_answered(self, key: str) -> bool:
        is_answered = key.startswith(self._prefix) and self.times > 0
        self.times -= is_answered
        return is_answered
