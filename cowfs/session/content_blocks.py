"""Whether the contents of neighbours come along with one that was missed.

Files that were made together have inode numbers that follow one another, lie side by side in the
index, and are mostly read or written together. Inode numbers are taken in blocks:

    miss                                              what comes along
    the first in a block                              nothing; the whole block, if it follows one that came
    the next in that block                            the whole block
    in a block that came and was evicted since        as if the block were new

A walk through many files so asks the index once a block; readers at random bring blocks only where
they come back to. Thread-safe; nothing is loaded here.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

BLOCK_INODES = 256
BLOCKS_MAX = 1024
"""Blocks whose misses are remembered."""


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
