"""Directories of packs, kept as they are stored: the most recently used ones, within a number of
bytes.

A pack of 16 MiB has 8 entries or 100,000, so the limit is in bytes (48 an entry), not in packs. The
directory used last stays however large it is. Thread-safe; the lock is not held during a request,
so two threads may both fetch a directory.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from cowfs.base.ids import PackId
from cowfs.format.pack import PackDirectory
from cowfs.store.packs.read import PackReader


class DirectoryCache:
    def __init__(self, reader: PackReader, max_bytes: int) -> None:
        self._reader = reader
        self._max_bytes = max_bytes
        self._lock = threading.Lock()  # guards everything below
        self._directories: OrderedDict[PackId, PackDirectory] = OrderedDict()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def get(self, pack: PackId, *, offset: int | None = None, length: int | None = None) -> PackDirectory:
        """Fetched unless it is here. offset, length: where it lies in the pack, if known; errors
        are `PackReader.directory`'s."""
        with self._lock:
            directory = self._directories.get(pack)
            if directory is not None:
                self._directories.move_to_end(pack)
                return directory
        directory = self._reader.directory(pack, directory_offset=offset, directory_length=length)
        with self._lock:
            if pack not in self._directories:
                self._directories[pack] = directory
                self._bytes += directory.size_bytes
            while self._bytes > self._max_bytes and len(self._directories) > 1:
                self._bytes -= self._directories.popitem(last=False)[1].size_bytes
        return directory

    def clear(self) -> None:
        with self._lock:
            self._directories.clear()
            self._bytes = 0
