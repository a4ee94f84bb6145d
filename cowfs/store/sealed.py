"""An encrypted store: seals every record when it is written, and opens it when it is read.

    sealed here        every record, of any kind
    sealed elsewhere   packs (`store.packs`), since ranges of them are read, and manifests (`version`), whose sealed bytes name them
    plain              cowfs.json and keys/, which are read before there is a key, and probe/, which holds no data

`RetryingStore.seal_with` puts this around its backend once the key is known, and `sealing_of`
returns how an opened store is sealed. Lists pass through: sizes are those of the sealed objects.
Ranges of packs are requested in multiples of RANGE_STEP_BYTES, or up to the pack's end, since exact
ranges would reveal the lengths of chunks.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from cowfs.base.errors import CorruptError
from cowfs.format import keys
from cowfs.format.sealing import PLAIN, Sealing
from cowfs.store import scratch_objects
from cowfs.store.contract import Data, ObjectInfo, ObjectStore, list_carefully
from cowfs.store.streams import has_partial_ranges, stream_range

if TYPE_CHECKING:
    from cowfs.store.credentials.unlocking import KeySource

RANGE_STEP_BYTES = 64 << 10
_PLAIN_PREFIXES = (keys.STORE, keys.KEYS, scratch_objects.PREFIX)


@runtime_checkable
class HasSealing(Protocol):
    @property
    def sealing(self) -> Sealing: ...


@runtime_checkable
class Sealable(Protocol):
    """A store that can be told its key. key_source: where that comes from."""

    @property
    def key_source(self) -> KeySource: ...

    def seal_with(self, sealing: Sealing) -> None: ...


def sealing_of(store: object) -> Sealing:
    """How the objects of an opened store are sealed: not at all, unless reading its record set a
    key (`initialize.load_record`)."""
    return store.sealing if isinstance(store, HasSealing) else PLAIN


def is_record(key: str) -> bool:
    return not key.startswith((*_PLAIN_PREFIXES, keys.VERSIONS)) and keys.parse_pack(key) is None


class SealedStore:
    """Any thread may call, as far as `store` allows it."""

    def __init__(self, store: ObjectStore, sealing: Sealing) -> None:
        self._store = store
        self._sealing = sealing

    @property
    def url(self) -> str:
        return self._store.url

    def get(self, key: str) -> bytes:
        data = self._store.get(key)
        return self._sealing.open_object(key, data, what=f"{key} of {self.url}") if is_record(key) else data

    def get_range(self, key: str, offset: int, length: int) -> Data:
        if keys.parse_pack(key) is None:
            return self._store.get_range(key, offset, length)
        return b"".join(map(bytes, self.stream_range(key, offset, length)))

    def stream_range(self, key: str, offset: int, length: int) -> Iterator[Data]:
        if keys.parse_pack(key) is None or length == 0:
            yield from stream_range(self._store, key, offset, length)
            return
        start, end = offset - offset % RANGE_STEP_BYTES, offset + length
        end += -end % RANGE_STEP_BYTES
        if not has_partial_ranges(self._store):
            end = max(min(end, self._store.size(key) or 0), offset + length)
        before, left = offset - start, length
        try:
            for piece in stream_range(self._store, key, start, end - start):
                with memoryview(piece) as view:
                    wanted = view[before : before + left]
                    before, left = max(before - len(view), 0), left - len(wanted)
                    if wanted:
                        yield wanted
        except CorruptError:
            if left:
                raise  # else the pack ends before the last multiple

    def size(self, key: str) -> int | None:
        return self._store.size(key)

    def put(self, key: str, data: Data) -> None:
        self._store.put(key, self._sealing.seal_object(key, data) if is_record(key) else data)

    def put_if_absent(self, key: str, data: Data) -> None:
        self._store.put_if_absent(key, self._sealing.seal_object(key, data) if is_record(key) else data)

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        return self._store.list(prefix, start_after=start_after, limit=limit)

    def list_carefully(self) -> None:
        list_carefully(self._store)

    def delete(self, keys: Iterable[str]) -> None:
        self._store.delete(keys)

    def read_only(self) -> ObjectStore:
        return SealedStore(self._store.read_only(), self._sealing)

    def close(self) -> None:
        self._store.close()
