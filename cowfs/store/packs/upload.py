"""Writes packs: many chunks (or index blocks) become one immutable object, uploaded while the next
ones are cut.

    add ──compress──▶ current builder ──full, send──▶ upload pool: closed (and encrypted) ──▶ durable ──flush──▶ PackReceipt

A pack's id is random and drawn before its first chunk, so `add` can name the place at once, and
what its receipt will say is known when it is handed to the pool (`sent`). Nothing that is found by
way of a head, or of a list, may refer to a place before `flush` has returned. A pack whose upload
failed is never reported as durable: the uploader then refuses everything with the same error, its
other packs are garbage or can still be claimed with `take_durable`.

Threads: any number may add; compression runs in theirs. One lock guards the builder and the books,
never held while compressing, sealing or uploading. Memory: at most MEMORY_BYTES in packs that are
not durable yet; beyond that `add` waits. What durable packs were in is used again, until `flush` or
`rest`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING

from cowfs.base import clock
from cowfs.base.errors import CowfsError, InvalidStateError, from_record, to_message
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import ChunkHash, PackId
from cowfs.base.thread_pool import Threads
from cowfs.format import codec, keys
from cowfs.format.pack import FOOTER_BYTES, BlobKind, PackBuilder, PackKind, Room
from cowfs.store.contract import ObjectStore
from cowfs.store.sealed import sealing_of

if TYPE_CHECKING:
    from cowfs.native.chunks import SmallFiles

# 8 packs of 16 MiB on their way: more does not make one machine's uploads faster, and this is the
# daemon's memory.
MEMORY_BYTES = 128 << 20
KEPT_ROOMS = 8


@dataclass(frozen=True, slots=True)
class PackLocation:
    """Where a chunk will lie. It is durable only once `flush` has returned the receipt of its
    pack."""

    pack: PackId
    offset: int
    stored_length: int
    raw_length: int
    codec: int


@dataclass(frozen=True, slots=True)
class PackReceipt:
    """Proof that a pack is durable. directory_offset and directory_length locate its directory;
    entries counts chunks."""

    pack: PackId
    size_bytes: int
    directory_offset: int
    directory_length: int
    entries: int


class PackUploader:
    """Puts chunks into packs of about target_bytes and uploads full ones in the background. Any
    thread may call.

    sealing: how the store's blobs are named and sealed. compress: of chunks; the store says whether
    other blobs are compressed. on_durable is called for each pack once the store has it, by the
    thread that uploaded it; it must not raise.
    """

    def __init__(
        self,
        store: ObjectStore,
        kind: PackKind,
        *,
        max_uploads: int = 50,
        compress: bool = True,
        target_bytes: int = 16 << 20,
        on_durable: Callable[[PackReceipt], None] = lambda receipt: None,
    ) -> None:
        self._store = store
        self.sealing = sealing_of(store)
        self._kind = kind
        self.compresses = compress if kind == PackKind.DATA else self.sealing.compresses_index
        self._target_bytes = target_bytes
        self._on_durable = on_durable
        self._pool = Threads(max_uploads, name="cowfs-upload")
        self._changed = threading.Condition()  # guards everything below; notified when a pack leaves memory or fails
        self._builder: PackBuilder | None = None
        self._pack = PackId(bytes(PackId.length))
        self._pending_bytes = 0
        self._rooms: list[Room] = []
        self._keeps_rooms = False
        self._uploads: dict[PackId, tuple[PackReceipt, Future[None]]] = {}
        self._error: BaseException | None = None
        self._closed = False

    def add(self, hash: ChunkHash, raw: bytes, *, blob_kind: BlobKind = BlobKind.CHUNK) -> PackLocation:
        """Compresses where that pays and appends to the current pack; waits only while MEMORY_BYTES
        are on their way."""
        how, stored = self.compress(raw)
        return self.add_stored(hash, how, stored, len(raw), blob_kind=blob_kind)

    def compress(self, raw: codec.B) -> tuple[codec.Codec, bytes | codec.B]:
        """As `codec.compress`; raw itself where nothing is to be compressed."""
        return codec.compress(raw) if self.compresses else (codec.Codec.RAW, raw)

    def add_stored(
        self,
        hash: ChunkHash,
        how: codec.Codec,
        stored: bytes | memoryview,
        raw_length: int,
        *,
        blob_kind: BlobKind = BlobKind.CHUNK,
    ) -> PackLocation:
        """Appends what `compressed` has made; the bytes are copied before it returns."""
        with self._changed:
            entry = self._current().add(hash, stored, raw_length, how, blob_kind)
            location = PackLocation(self._pack, entry.offset, entry.stored_length, entry.raw_length, entry.codec)
            self._submit_full()
        return location

    def add_small(self, files: SmallFiles) -> None:
        """Appends those chunks of the files that were compressed and have no place yet."""
        while not files.is_poured():
            with self._changed:
                self._current().pour(files, self._pack, self._target_bytes)
                self._submit_full()

    def send(self) -> list[PackReceipt]:
        """Hands the last pack to the pool. What the receipts of all packs that were not claimed yet
        will be, once `flush` has returned."""
        with self._changed:
            self._check_usable()
            self._submit_current()
            return [receipt for receipt, _ in self._uploads.values()]

    def flush(self) -> list[PackReceipt]:
        """Returns when everything added before is durable, with the packs that became so and were
        not claimed yet.

        The first upload error is raised, and again by every later call: nothing added to a failed
        uploader counts as stored.
        """
        with self._changed:
            self._check_usable()
            self._submit_current()
            awaited = [upload for _, upload in self._uploads.values()]
        wait(awaited)  # the first failure, if any, is in _error by then
        with self._changed:
            self._check_usable()
        self.rest()
        return self.take_durable()

    def rest(self) -> None:
        """Nothing more is added for a while: memory that was kept for it is released."""
        with self._changed:
            self._keeps_rooms = False
            self._rooms.clear()

    @property
    def failure(self) -> BaseException | None:
        """The first error of an upload, after which this uploader refuses everything."""
        with self._changed:
            return self._error

    @property
    def has_room(self) -> bool:
        """Whether two packs more can be added without waiting."""
        with self._changed:
            return self._pending_bytes + 2 * self._target_bytes <= MEMORY_BYTES

    def take_durable(self) -> list[PackReceipt]:
        """Receipts of packs that are durable by now and were not claimed yet. Does not wait; works
        after a failure too."""
        with self._changed:
            ready = [
                pack
                for pack, (_, upload) in self._uploads.items()
                if upload.done() and not upload.cancelled() and upload.exception() is None
            ]
            return [self._uploads.pop(pack)[0] for pack in ready]

    def close(self) -> None:
        """Drops blobs that were not flushed, waits for uploads in flight and ends the threads."""
        with self._changed:
            self._closed = True
            self._builder = None
            self._keeps_rooms = False
            self._rooms.clear()
            self._changed.notify_all()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _current(self) -> PackBuilder:
        """The pack that takes the next blobs. The lock is held, and released while MEMORY_BYTES are
        on their way."""
        if self._pending_bytes >= MEMORY_BYTES:
            self._changed.wait_for(lambda: self._pending_bytes < MEMORY_BYTES or self._error or self._closed)
        self._check_usable()
        if self._builder is None:
            self._pack = PackId(clock.random_bytes(PackId.length))
            self._keeps_rooms = True
            self._builder = PackBuilder(self._kind, self.sealing.pack(self._pack), self._take_room())
        return self._builder

    def _submit_full(self) -> None:
        """The lock is held."""
        if self._builder is not None and self._builder.size_bytes >= self._target_bytes:
            self._submit_current()

    def _check_usable(self) -> None:
        if self._closed:
            raise InvalidStateError("this pack uploader was closed")
        if isinstance(self._error, CowfsError):
            raise from_record(to_message(self._error)) from self._error  # a new one each time: several threads raise it
        if self._error is not None:
            raise self._error

    def _take_room(self) -> Room | None:
        """The lock is held."""
        while self._rooms:
            room = self._rooms.pop(0)
            if room.clear():
                return room
        return None

    def _keep_room(self, room: Room) -> None:
        with self._changed:
            if self._keeps_rooms and len(self._rooms) < KEPT_ROOMS:
                self._rooms.append(room)

    def _submit_current(self) -> None:
        """Hands the current pack to the pool. The lock is held."""
        if self._builder is None:
            return
        builder, size_bytes, offset = self._builder, self._builder.size_bytes, self._builder.directory_offset
        self._builder = None
        self._pending_bytes += size_bytes
        receipt = PackReceipt(self._pack, size_bytes, offset, size_bytes - FOOTER_BYTES - offset, builder.count)
        self._uploads[receipt.pack] = receipt, self._pool.submit(self._upload, builder, receipt)

    def _upload(self, builder: PackBuilder, receipt: PackReceipt) -> None:
        try:
            with self._changed:
                self._check_usable()
            data = builder.seal()
            self._store.put(keys.pack(receipt.pack), data)
        except BaseException as error:
            with self._changed:
                self._error = self._error or error
            raise
        finally:
            with self._changed:
                self._pending_bytes -= receipt.size_bytes
                self._changed.notify_all()
        del data  # another view of it keeps its memory from being used again
        self._keep_room(builder.room)
        self._on_durable(receipt)
