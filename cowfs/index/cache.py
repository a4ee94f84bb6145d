"""Cached blocks of indexes: recent ones in memory, all of them as files.

    <cache_dir>/blocks/<2 hex>/<64 hex>     raw bytes of a block (or of a list segment), by the name they have in their store

Shared by every mount of a user and by every version: equal blocks have equal names (in an encrypted
store other names than elsewhere). Files appear completely (temporary name, then rename), are
verified on each read, and may be deleted at any time; one with a wrong hash is removed and fetched
again. An unwritable directory or a full disk costs only speed. A file's modification time is its
last read; `Engine.trim_cache` deletes by it, in one account with chunks and whole files
(native/cache/src/account.rs).
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from cowfs.base import clock, private_directories
from cowfs.base.ids import ChunkHash
from cowfs.format.codec import hash_of

MEMORY_BYTES = 32 << 20
"""2,000 blocks: the whole index of some 200,000 files. Guessed."""


class BlockCache:
    """Thread-safe."""

    def __init__(
        self,
        cache_dir: Path,
        *,
        memory_bytes: int = MEMORY_BYTES,
        name: Callable[[bytes], ChunkHash] = hash_of,
    ) -> None:
        """name: how the store names blobs (`Sealing.name`). AccessDeniedError: other users can
        write to the directory."""
        self.directory = private_directories.require(cache_dir / "blocks")
        self._name = name
        self._memory: OrderedDict[bytes, bytes] = OrderedDict()
        self._memory_bytes = 0
        self._limit_bytes = memory_bytes
        self._lock = threading.Lock()
        self._writable = True

    def get(self, digest: ChunkHash) -> bytes | None:
        raw = self.recent(digest)
        if raw is None:
            raw = self._load(digest)
            if raw is not None:
                self._remember(digest, raw)
        return raw

    def recent(self, digest: ChunkHash) -> bytes | None:
        """The block if it is in memory; touches no disk."""
        with self._lock:
            raw = self._memory.get(digest)
            if raw is not None:
                self._memory.move_to_end(digest)
            return raw

    def holds(self, digest: ChunkHash) -> bool:
        """Whether `get` would probably find the block; the file is not read."""
        with self._lock:
            if digest in self._memory:
                return True
        return self._path(digest).exists()

    def put(self, digest: ChunkHash, raw: bytes) -> None:
        """raw must hash to digest."""
        self._remember(digest, raw)
        if self._writable:
            self._store(digest, raw)

    def _remember(self, digest: ChunkHash, raw: bytes) -> None:
        with self._lock:
            old = self._memory.pop(digest, None)
            self._memory_bytes += len(raw) - (len(old) if old is not None else 0)
            self._memory[digest] = raw
            while self._memory_bytes > self._limit_bytes:
                self._memory_bytes -= len(self._memory.popitem(last=False)[1])

    def let_go(self, digests: Iterable[ChunkHash]) -> None:
        """Removes blocks that are hardly needed soon from memory. Otherwise a mount that commits
        for hours would fill it with blocks of past versions."""
        with self._lock:
            for digest in digests:
                self._memory_bytes -= len(self._memory.pop(digest, b""))

    def _path(self, digest: ChunkHash) -> Path:
        name = digest.hex()
        return self.directory / name[:2] / name

    def _load(self, digest: ChunkHash) -> bytes | None:
        path = self._path(digest)
        try:
            raw = path.read_bytes()
        except OSError:
            return None
        if self._name(raw) == digest:
            with suppress(OSError):
                os.utime(path)
            return raw
        with suppress(OSError):
            path.unlink()
        return None

    def _store(self, digest: ChunkHash, raw: bytes) -> None:
        path = self._path(digest)
        temporary = path.with_name(f".{path.name}.{clock.random_bytes(8).hex()}")
        try:
            try:
                temporary.write_bytes(raw)
            except FileNotFoundError:
                private_directories.make(self.directory)  # blocks hold file names
                path.parent.mkdir(mode=0o700, exist_ok=True)
                temporary.write_bytes(raw)
            os.replace(temporary, path)
        except OSError:
            self._writable = False
            with suppress(OSError):
                temporary.unlink()
