"""A store in memory, and the clock of a world. The clock says how late it is by the store's; who
acts may have one that differs."""

from __future__ import annotations

import builtins
import random
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable

from cowfs.base import clock
from cowfs.errors import ConflictError, NotFoundError
from cowfs.format.sealing import PLAIN
from cowfs.store.contract import Data, ObjectInfo, ObjectStore
from cowfs.store.readonly import ReadOnlyStore
from cowfs.store.sealed import is_record


class WorldClock(clock.SystemClock):
    """skew_s: of the clock of whoever acts."""

    def __init__(self, seed: int) -> None:
        self.elapsed_s = 0.0
        self.skew_s = 0.0
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def now_ns(self) -> int:
        return self.store_now_ns() + int(self.skew_s * 1e9)

    def store_now_ns(self) -> int:
        return int((1.8e9 + self.elapsed_s) * 1e9)

    def monotonic_s(self) -> float:
        return self.elapsed_s

    def sleep_s(self, seconds: float) -> None:
        self.elapsed_s += seconds

    def random_bytes(self, length: int) -> bytes:
        with self._lock:
            return self._random.randbytes(length)

    def jitter(self) -> float:
        return 0.5


class MemoryStore:
    """The objects, without faults. sealing: how they are sealed in `objects`; packs and manifests
    come sealed."""

    url = "memory://simulated"

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._sorted: list[str] = []
        self.objects: dict[str, tuple[bytes, int]] = {}
        """Bytes as they are stored, and modification times. Changed by nobody else."""
        self.sealing = PLAIN

    def get(self, key: str) -> bytes:
        try:
            data = self.objects[key][0]
        except KeyError:
            raise NotFoundError(f"{key} does not exist") from None
        return self.sealing.open_object(key, data, what=key) if is_record(key) else data

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return self.get(key)[offset : offset + length]

    def size(self, key: str) -> int | None:
        found = self.objects.get(key)
        return None if found is None else len(found[0])

    def put(self, key: str, data: Data, *, begun_ns: int | None = None) -> None:
        """begun_ns: what counts as the object's time; None: now."""
        self.set(key, (self._stored(key, data), self._now_ns() if begun_ns is None else begun_ns))

    def put_if_absent(self, key: str, data: Data) -> None:
        stored = self._stored(key, data)
        with self._lock:
            if key in self.objects:
                raise ConflictError(f"{key} exists")
            insort(self._sorted, key)
            self.objects[key] = stored, self._now_ns()

    def _stored(self, key: str, data: Data) -> bytes:
        return bytes(self.sealing.seal_object(key, data) if is_record(key) else data)

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        with self._lock:
            begin = max(bisect_left(self._sorted, prefix), bisect_right(self._sorted, start_after))
            end = bisect_left(self._sorted, prefix + "\x7f", begin)
            found = self._sorted[begin : end if limit is None else min(end, begin + limit)]
            return [ObjectInfo(key, len(self.objects[key][0]), self.objects[key][1]) for key in found]

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.set(key, None)

    def set(self, key: str, stored: tuple[bytes, int] | None) -> None:
        """The object as it is stored, and its modification time; None: it is gone."""
        with self._lock:
            is_there = key in self.objects
            if stored is None:
                if is_there:
                    del self.objects[key]
                    del self._sorted[bisect_left(self._sorted, key)]
                return
            self.objects[key] = stored
            if not is_there:
                insort(self._sorted, key)

    def read_only(self) -> ObjectStore:
        return ReadOnlyStore(self)

    def close(self) -> None:
        pass
