"""Loads the contents of neighbouring inodes together with one that was missed.

Files that were created together have consecutive inode numbers, are adjacent in the index, and are
mostly read or written together. Inode numbers are grouped into blocks:

    miss                                              what is loaded as well
    the first in a block                              nothing; the whole block, if it follows a loaded one
    the next in that block                            the whole block
    in a block that was loaded and evicted since      as if the block were new

A walk through many files thus queries the index once a block. Random readers load a block only if
they return to it.

The caller that missed a file waits PATIENCE_S for the block, which is usually enough. It does not
wait longer because the rows may have to come from a store that does not answer. Only one block is
loaded at a time. Thread-safe.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from cowfs.base import log

BLOCK_INODES = 256
BLOCKS_MAX = 1024
"""Blocks whose misses are remembered."""
PATIENCE_S = 0.02
"""Loading a block takes 3 ms."""

_log = log.get("residency")


class ContentBlocks:
    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards everything below
        self._came: OrderedDict[int, bool] = OrderedDict()  # blocks of the latest misses: was all of it loaded?

    def note_miss(self, ino: int) -> range | None:
        """Records a miss. Returns the inode numbers of the block if it should be loaded now."""
        block = ino // BLOCK_INODES
        with self._lock:
            is_next = self._came.pop(block, None) is False
            comes = is_next or self._came.get(block - 1, False)
            self._came[block] = comes
            if len(self._came) > BLOCKS_MAX:
                self._came.popitem(last=False)
        return range(block * BLOCK_INODES, (block + 1) * BLOCK_INODES) if comes else None


class Neighbours:
    """Loads blocks, one at a time. `load` runs on a separate thread and may fail."""

    def __init__(self, load: Callable[[range], None]) -> None:
        self._load = load
        self._changed = threading.Condition()  # guards everything below
        self._wanted: tuple[range, Future[None]] | None = None
        self._has_thread = self._is_busy = self._is_closed = False

    def bring(self, block: range) -> None:
        """Loads a block; returns when that is done, or after PATIENCE_S."""
        done: Future[None] = Future()
        with self._changed:
            if self._is_busy or self._is_closed:
                return
            if not self._has_thread:
                try:
                    threading.Thread(target=self._work, name="cowfs-neighbours", daemon=True).start()
                except RuntimeError:  # no thread available; the block is optional
                    return
                self._has_thread = True
            self._is_busy, self._wanted = True, (block, done)
            self._changed.notify()
        with suppress(TimeoutError):
            done.result(PATIENCE_S)

    def close(self) -> None:
        """Stops the thread; later blocks are ignored."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted is not None or self._is_closed)
                if self._wanted is None:
                    return
                (block, done), self._wanted = self._wanted, None
            try:
                self._load(block)
            except BaseException as error:  # noqa: BLE001 — the block is optional
                _log.debug("neighbours were not loaded: %r", error)
            with self._changed:
                self._is_busy = False
            done.set_result(None)
