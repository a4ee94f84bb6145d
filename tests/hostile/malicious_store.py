"""A store that lies to those who ask it.

`Objects` are what really lies there, and all that ever did. A `View` is the store as one machine
sees it: what a `Lie` answers, where there is one, else the objects. A lie changes nothing, so when
it ends the store is honest again. Puts and deletions reach the objects, also during a lie.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cowfs.base import clock
from cowfs.errors import ConflictError, CorruptError, NotFoundError
from cowfs.format import keys, object_kinds
from cowfs.format.sealing import PLAIN, Sealing
from cowfs.store import scratch_objects
from cowfs.store.contract import Data, ObjectInfo, ObjectStore
from cowfs.store.readonly import ReadOnlyStore

MOST_REQUESTS = 5000
"""Of a command. None here needs a tenth of them."""
PLAIN_KEYS = (keys.STORE, keys.KEYS, scratch_objects.PREFIX)


class Violation(AssertionError):
    """cowfs has done what it must not do."""


class Objects:
    """Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now: dict[str, tuple[bytes, int]] = {}
        """Bytes and modification times, in the order in which keys were first put."""
        self.ever: dict[str, list[bytes]] = {}

    def copy(self) -> Objects:
        copied = Objects()
        with self._lock:
            copied.now = dict(self.now)
            copied.ever = {key: builtins.list(data) for key, data in self.ever.items()}
        return copied

    def snapshot(self) -> dict[str, bytes]:
        with self._lock:
            return {key: data for key, (data, _) in self.now.items()}

    def put(self, key: str, data: bytes) -> None:
        with self._lock:
            self._put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        with self._lock:
            if key in self.now:
                return False
            self._put(key, data)
            return True

    def delete(self, key: str) -> None:
        with self._lock:
            self.now.pop(key, None)

    def _put(self, key: str, data: bytes) -> None:
        self.now[key] = data, clock.now_ns()
        self.ever.setdefault(key, []).append(data)


@dataclass
class Lie:
    """answers: what is shown of a key; None: nothing. relists: what is shown of a list."""

    name: str
    answers: dict[str, bytes | None] = field(default_factory=dict)
    relists: Callable[[builtins.list[ObjectInfo]], builtins.list[ObjectInfo]] | None = None
    is_listed: bool = True
    """Lists show the same."""


class View:
    """As a backend of `open_store`."""

    def __init__(self, url: str, objects: Callable[[], Objects], machine: Watched) -> None:
        self.url = url
        self._objects = objects
        self._machine = machine

    @property
    def sealing(self) -> Sealing:
        return PLAIN

    def get(self, key: str) -> bytes:
        data = self._require(key)
        object_kinds.check_read(key, len(data), url=self.url)
        return data

    def get_range(self, key: str, offset: int, length: int) -> Data:
        data = self._require(key)[offset : offset + length]
        if len(data) != length:
            raise CorruptError(f"{key} ends before byte {offset + length}")
        return data

    def size(self, key: str) -> int | None:
        data = self._shown(key)
        return None if data is None else len(data)

    def put(self, key: str, data: Data) -> None:
        self._machine.check_put(key, bytes(data))
        self._objects().put(key, bytes(data))

    def put_if_absent(self, key: str, data: Data) -> None:
        self._machine.check_put(key, bytes(data))
        if not self._objects().create(key, bytes(data)):
            raise ConflictError(f"{key} exists")

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        self._machine.count()
        lie, objects = self._machine.lie, self._objects()
        shown = {key: (len(data), when) for key, (data, when) in dict(objects.now).items()}
        if lie is not None and lie.is_listed:
            for key, answer in lie.answers.items():
                if answer is None:
                    shown.pop(key, None)
                else:
                    shown[key] = len(answer), shown.get(key, (0, clock.now_ns()))[1]
        found = [ObjectInfo(key, *shown[key]) for key in sorted(shown) if key.startswith(prefix) and key > start_after]
        if lie is not None and lie.relists is not None:
            found = lie.relists(found)
        return found[:limit]

    def delete(self, keys: Iterable[str]) -> None:
        self._machine.count()
        for key in keys:
            self._machine.deleted(key)
            self._objects().delete(key)

    def read_only(self) -> ObjectStore:
        return ReadOnlyStore(self)

    def close(self) -> None:
        pass

    def _shown(self, key: str) -> bytes | None:
        self._machine.count()
        lie = self._machine.lie
        if lie is not None and key in lie.answers:
            return lie.answers[key]
        found = self._objects().now.get(key)
        return None if found is None else found[0]

    def _require(self, key: str) -> bytes:
        if (data := self._shown(key)) is None:
            raise NotFoundError(f"{key} does not exist")
        return data


class Watched:
    """What is noted of a machine's requests. Any thread may call."""

    def __init__(self) -> None:
        self.lie: Lie | None = None
        self.knows_encrypted = False
        self.requests = 0
        self.violations: builtins.list[str] = []
        self.has_deleted = False

    def count(self) -> None:
        self.requests += 1
        if self.requests > MOST_REQUESTS:
            self.violations.append(f"more than {MOST_REQUESTS} requests")
            raise Violation(self.violations[-1])

    def check_put(self, key: str, data: bytes) -> None:
        self.count()
        if not self.knows_encrypted or key.startswith(PLAIN_KEYS):
            return
        is_pack = keys.parse_pack(key) is not None
        if not data.startswith(b"cowfspk\0\0" if is_pack else b"cowfssl\0") or (is_pack and data[9] == 1):
            self.violations.append(f"{key} was put in plain: {data[:60]!r}")

    def deleted(self, key: str) -> None:
        if self.lie is not None and not key.startswith((scratch_objects.PREFIX, keys.PINS)):
            self.has_deleted = True
