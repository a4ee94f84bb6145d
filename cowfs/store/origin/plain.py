"""What fsspec opens at a URL that is no store's, as an origin: an archive, a repository, a chain of
file systems. For copying imports that the user names; one request at a time, since readers of some
archives share one file position."""

from __future__ import annotations

import threading
from typing import Any

from fsspec import AbstractFileSystem

from cowfs.store.origin.fsspec import FsspecOrigin


class PlainOrigin(FsspecOrigin):
    def __init__(self, file_system: AbstractFileSystem, root: str, url: str) -> None:
        self._given = file_system
        self._names: dict[str, str] = {}  # of keys that are named otherwise
        super().__init__("plain", root=root.rstrip("/"), url=url)
        self._exclusive = threading.RLock()

    def _make(self, credentials: dict[str, Any]) -> AbstractFileSystem:
        return self._given

    def _key(self, name: str) -> str:
        """Archives of "." name all they have as ./NAME."""
        key = super()._key(name)
        if key.startswith("./"):
            key = key.removeprefix("./")
            self._names[key] = name
        return key

    def _path(self, key: str) -> str:
        return self._names.get(key) or super()._path(key)
