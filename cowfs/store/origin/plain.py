"""What fsspec opens at a URL that is no store's, as an origin: a repository, another machine's
files, a chain of file systems. For copying imports that the user names; one request at a time,
since some of these file systems share one connection or one file position. Archives are read by
`archive`.
"""

from __future__ import annotations

import threading

from fsspec import AbstractFileSystem

from cowfs.store.credentials.identity import Credentials
from cowfs.store.origin.fsspec import FsspecOrigin


class PlainOrigin(FsspecOrigin):
    def __init__(self, file_system: AbstractFileSystem, root: str, url: str) -> None:
        self._given = file_system
        super().__init__("plain", root=root.rstrip("/"), url=url)
        self._exclusive = threading.RLock()

    def _make(self, given: Credentials | None) -> AbstractFileSystem:
        return self._given
