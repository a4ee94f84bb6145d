"""A store whose idempotent calls are repeated while the store does not answer.

    repeated        get, get_range, size, list, put, delete       on UnavailableError only
    goes on         stream_range                                  the same, behind the last piece; each piece is a success
    never repeated  put_if_absent                                 a repeat could be refused by our own first attempt:
                                                                  see `repeating`, `refs.append`

Where the store has no conditional create, `look_before_create` puts a look and a plain put in its
place: writers one after the other see each other, two at the same time may not.

How long, and with what pauses: `patience`. The last error is raised when patience ends. A plain put
may be repeated because every object cowfs replaces (heartbeats, pins) has one writer, and every
other is immutable.

Large objects (packs) take turns (`uploads`). Theirs is the patience of a long commit: it ends when
no large object has arrived for that long, not when this one has not. After a failure the store is
asked for an object's size before the next body is sent: a server that is down or refuses everybody
then costs a few bytes an attempt, not a whole body each time.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeVar

from cowfs.base import clock, log
from cowfs.base.errors import AccessDeniedError, ConflictError, UnavailableError
from cowfs.format import object_kinds
from cowfs.format.sealing import PLAIN, Sealing
from cowfs.store.backends import forks
from cowfs.store.contract import Data, ObjectInfo, ObjectStore, list_carefully
from cowfs.store.credentials.unlocking import AMBIENT_KEY, KeySource
from cowfs.store.readonly import ReadOnlyStore
from cowfs.store.reliability.patience import Patience, Pauses
from cowfs.store.reliability.upload_turns import UploadPace
from cowfs.store.remembering import Memory
from cowfs.store.sealed import SealedStore
from cowfs.store.streams import has_partial_ranges, stream_range

T = TypeVar("T")

LARGE_BYTES = 256 << 10

_log = log.get("store")


class RetryingStore:
    """Wraps `store`; thread-safe as far as it is. `patience.limit_s` may be changed at any time.
    key_source: opens the store if it is encrypted. known: as of `Access`. memory: as of
    `remembering`."""

    def __init__(
        self,
        store: ObjectStore,
        patience: Patience | None = None,
        key_source: KeySource = AMBIENT_KEY,
        known: Mapping[str, bytes] = MappingProxyType({}),
        memory: Memory | None = None,
    ) -> None:
        self._store = store
        self._patience = patience or Patience()
        self._pace = UploadPace(self._patience)
        self._looks_first = False
        self._sealing = PLAIN
        self._known = dict(known)
        self.memory = memory
        self.key_source = key_source
        forks.register(self)

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def patience(self) -> Patience:
        return self._patience

    @property
    def has_partial_ranges(self) -> bool:
        return has_partial_ranges(self._store)

    @property
    def sealing(self) -> Sealing:
        return self._sealing

    def seal_with(self, sealing: Sealing) -> None:
        """From now on every record is sealed; packs and manifests are sealed by who makes them.
        Once, before the store is shared."""
        self._store, self._sealing = SealedStore(self._store, sealing), sealing

    def get(self, key: str) -> bytes:
        if (data := self._known.pop(key, None)) is not None:
            return data
        return self._repeat(lambda: self._store.get(key))

    def get_range(self, key: str, offset: int, length: int) -> Data:
        return self._repeat(lambda: self._store.get_range(key, offset, length))

    def stream_range(self, key: str, offset: int, length: int) -> Iterator[Data]:
        end, began_s, pauses = offset + length, clock.monotonic_s(), Pauses()
        while offset < end:
            try:
                for piece in stream_range(self._store, key, offset, end - offset):
                    offset += len(piece)
                    yield piece
                    began_s, pauses = clock.monotonic_s(), Pauses()
            except UnavailableError as error:
                if not self._waits(error, pauses, began_s):
                    raise
            except AccessDeniedError as error:
                self._patience.note_refusal(error)
                raise
            else:
                self._patience.note_success()
                return

    def size(self, key: str) -> int | None:
        return self._repeat(lambda: self._store.size(key))

    def put(self, key: str, data: Data) -> None:
        object_kinds.check_write(key, len(data), url=self.url)
        if len(data) < LARGE_BYTES:
            self._repeat(lambda: self._store.put(key, data))
        else:
            self._put_large(key, data)

    def put_if_absent(self, key: str, data: Data) -> None:
        object_kinds.check_write(key, len(data), url=self.url)
        if not self._looks_first:
            self._store.put_if_absent(key, data)
            return
        if self._store.size(key) is not None:
            raise ConflictError(f"{self.url}: {key} exists already", details={"key": key})
        self._store.put(key, data)

    def look_before_create(self) -> None:
        """From now on the store is not asked to create conditionally: it answers that it cannot, or
        does not do it."""
        self._looks_first = True

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        return self._repeat(lambda: self._store.list(prefix, start_after=start_after, limit=limit))

    def list_carefully(self) -> None:
        list_carefully(self._store)

    def delete(self, keys: Iterable[str]) -> None:
        doomed = tuple(keys)
        self._repeat(lambda: self._store.delete(doomed))

    def wake(self) -> None:
        """There are new credentials: what waits is tried again now."""
        self._pace.wake()
        self._patience.wake()

    def read_only(self) -> ObjectStore:
        return ReadOnlyStore(self)

    def close(self) -> None:
        self._patience.limit_s = 0.0
        self._store.close()

    def reset_after_fork(self) -> None:
        self._patience.reset_after_fork()
        self._pace = UploadPace(self._patience)

    def _repeat(self, call: Callable[[], T]) -> T:
        began_s, pauses = clock.monotonic_s(), Pauses()
        while True:
            try:
                result = call()
            except UnavailableError as error:
                if not self._waits(error, pauses, began_s):
                    raise
            except AccessDeniedError as error:
                self._patience.note_refusal(error)
                raise
            else:
                self._patience.note_success()
                return result

    def _waits(self, error: UnavailableError, pauses: Pauses, began_s: float) -> bool:
        """Pauses before the next attempt; False: there is no next attempt."""
        _log.info("a request failed: %s", error)
        self._patience.tell(error, began_s)
        return self._patience.wait_to_repeat(error, pauses, began_s)

    def _put_large(self, key: str, data: Data) -> None:
        began_s = since_s = clock.monotonic_s()
        problem: UnavailableError | None = None
        while (turn := self._pace.begin(since_s, is_first=problem is None)) is not None:
            try:
                if self._pace.is_in_trouble:
                    self._store.size(key)
                self._store.put(key, data)
            except UnavailableError as error:
                since_s = self._patience.start_s(began_s, is_first=problem is None)
                problem = error
                wish_s = self._patience.requested_wait_s(error, max(since_s, self._pace.last_success_s))
                self._pace.note_failure(turn, wish_s, is_trouble=True)
                _log.info("an upload failed and will be repeated: %s", error)
                self._patience.tell(error, max(began_s, self._pace.last_success_s))
            except BaseException as error:
                self._pace.note_failure(turn, 0.0, is_trouble=False)
                if isinstance(error, AccessDeniedError):
                    self._patience.note_refusal(error)
                raise
            else:
                self._pace.note_success(len(data))
                self._patience.note_success()
                return
        raise problem or UnavailableError(
            f"{self.url}: {key} was not sent: uploads before it did not end in time", hint="Try again; nothing is lost."
        )
