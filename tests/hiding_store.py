"""A store of which parts cannot be seen for a while: a disk that is not mounted, a prefix that a
server lists as empty. Nothing there is listed or read; what is put there fails, or arrives
unseen."""

from __future__ import annotations

import builtins
from collections.abc import Iterable

from cowfs.errors import NotFoundError, UnavailableError
from cowfs.format.sealing import Sealing
from cowfs.store.contract import Data, ObjectInfo, ObjectStore
from cowfs.store.readonly import ReadOnlyStore
from cowfs.store.sealed import sealing_of


class HidingStore:
    """hidden: prefixes. takes_puts: whether changes there get through."""

    def __init__(self, store: ObjectStore, *hidden: str, takes_puts: bool = False) -> None:
        self._store = store
        self.hidden = set(hidden)
        self.takes_puts = takes_puts
        self.url = store.url

    @property
    def sealing(self) -> Sealing:
        return sealing_of(self._store)

    def get(self, key: str) -> bytes:
        self._require_seen(key)
        return self._store.get(key)

    def get_range(self, key: str, offset: int, length: int) -> Data:
        self._require_seen(key)
        return self._store.get_range(key, offset, length)

    def size(self, key: str) -> int | None:
        return None if self.is_hidden(key) else self._store.size(key)

    def put(self, key: str, data: Data) -> None:
        self._require_reached(key)
        self._store.put(key, data)

    def put_if_absent(self, key: str, data: Data) -> None:
        self._require_reached(key)
        self._store.put_if_absent(key, data)

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        found = self._store.list(prefix, start_after=start_after)
        return [info for info in found if not self.is_hidden(info.key)][:limit]

    def delete(self, keys: Iterable[str]) -> None:
        self._store.delete([key for key in keys if not self.is_hidden(key)])

    def read_only(self) -> ObjectStore:
        return ReadOnlyStore(self)

    def close(self) -> None:
        self._store.close()

    def is_hidden(self, key: str) -> bool:
        return any(key.startswith(prefix) for prefix in self.hidden)

    def _require_seen(self, key: str) -> None:
        if self.is_hidden(key):
            raise NotFoundError(f"{key} does not exist")

    def _require_reached(self, key: str) -> None:
        if self.is_hidden(key) and not self.takes_puts:
            raise UnavailableError(f"{key} cannot be reached")
