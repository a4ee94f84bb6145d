"""Contents of neighbours, which come along with one that was missed.

Files that were made together have inode numbers that follow one another, lie side by side in the
index, and are mostly read or written together. Inode numbers are taken in blocks:

    miss                                              what comes along
    the first in a block                              nothing; the whole block, if it follows one that came
    the next in that block                            the whole block
    in a block that came and was evicted since        as if the block were new

A walk through many files so asks the index once a block; readers at random bring blocks only where
they come back to.

Whoever missed a file waits a moment for its neighbours, which is most often enough, and no longer:
their rows may have to come from a store that is silent. Meanwhile no other block is brought.
Thread-safe.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from cowfs import log

BLOCK_INODES = 256
BLOCKS_MAX = 1024
"""Blocks whose misses are remembered."""
PATIENCE_S = 0.02
"""A block takes 3 ms."""

_log = log.get("residency")


class ContentBlocks:
    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards everything below
        self._came: OrderedDict[int, bool] = OrderedDict()  # blocks of the latest misses: whether all of it came

    def missed(self, ino: int) -> range | None:
        """The numbers of the block, if it comes along."""
        block = ino // BLOCK_INODES
        with self._lock:
            is_next = self._came.pop(block, None) is False
            comes = is_next or self._came.get(block - 1, False)
            self._came[block] = comes
            if len(self._came) > BLOCKS_MAX:
                self._came.popitem(last=False)
        return range(block * BLOCK_INODES, (block + 1) * BLOCK_INODES) if comes else None


class Neighbours:
    """Brings blocks, one at a time. load: is called by a thread of its own, and may fail."""

    def __init__(self, load: Callable[[range], None]) -> None:
        self._load = load
        self._changed = threading.Condition()  # guards everything below
        self._wanted: tuple[range, Future[None]] | None = None
        self._has_thread = self._is_busy = self._is_closed = False

    def bring(self, block: range) -> None:
        """Returns when they are here, or after a while."""
        done: Future[None] = Future()
        with self._changed:
            if self._is_busy or self._is_closed:
                return
            if not self._has_thread:
                try:
                    threading.Thread(target=self._work, name="cowfs-neighbours", daemon=True).start()
                except RuntimeError:  # no thread to be had: nobody has asked for them
                    return
                self._has_thread = True
            self._is_busy, self._wanted = True, (block, done)
            self._changed.notify()
        with suppress(TimeoutError):
            done.result(PATIENCE_S)

    def close(self) -> None:
        """Nothing more is brought."""
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
            except BaseException as error:  # noqa: BLE001 — nobody has asked for them
                _log.debug("neighbours were not brought: %r", error)
            with self._changed:
                self._is_busy = False
            done.set_result(None)
