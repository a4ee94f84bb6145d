"""A view of a store that can only be read."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from typing import NoReturn

from cowfs.base.errors import ReadOnlyError
from cowfs.format.sealing import Sealing
from cowfs.store.contract import Data, ObjectInfo, ObjectStore, list_carefully
from cowfs.store.credentials.unlocking import AMBIENT_KEY, KeySource
from cowfs.store.reliability.patience import Patience, patience_of
from cowfs.store.remembering import Memory, memory_of
from cowfs.store.sealed import Sealable, sealing_of
from cowfs.store.streams import has_partial_ranges, stream_range


class ReadOnlyStore:
    """Reads pass through; every writing call raises ReadOnlyError before it reaches the store.
    Closing it closes nothing. hint: what the user may do instead."""

    def __init__(self, store: ObjectStore, *, hint: str = "Mount writable, or fork the version.") -> None:
        self._store = store
        self._hint = hint

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def patience(self) -> Patience:
        return patience_of(self._store) or Patience()

    @property
    def has_partial_ranges(self) -> bool:
        return has_partial_ranges(self._store)

    @property
    def sealing(self) -> Sealing:
        return sealing_of(self._store)

    @property
    def memory(self) -> Memory | None:
        return memory_of(self._store)

    @property
    def key_source(self) -> KeySource:
        return self._store.key_source if isinstance(self._store, Sealable) else AMBIENT_KEY

    def seal_with(self, sealing: Sealing) -> None:
        """As of the store behind."""
        assert isinstance(self._store, Sealable)
        self._store.seal_with(sealing)

    def get(self, key: str) -> bytes:
        return self._store.get(key)

    def get_range(self, key: str, offset: int, length: int) -> Data:
        return self._store.get_range(key, offset, length)

    def stream_range(self, key: str, offset: int, length: int) -> Iterator[Data]:
        return stream_range(self._store, key, offset, length)

    def size(self, key: str) -> int | None:
        return self._store.size(key)

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        return self._store.list(prefix, start_after=start_after, limit=limit)

    def list_carefully(self) -> None:
        list_carefully(self._store)

    def put(self, key: str, data: Data) -> None:
        self._refuse(key)

    def put_if_absent(self, key: str, data: Data) -> None:
        self._refuse(key)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._refuse(key)

    def read_only(self) -> ObjectStore:
        return self

    def close(self) -> None:
        pass

    def _refuse(self, key: str) -> NoReturn:
        raise ReadOnlyError(f"{self.url} was opened read-only: {key} cannot be changed", hint=self._hint)
