"""cowfs for universal-pathlib: `UPath(locator) / "x"`, `UPath("cowfs://NAME/x")`.

universal-pathlib splits a path with the help of the file system's class. If fsspec has not loaded
the class yet, it guesses and keeps the guess. Importing this module therefore registers the class.
"""

from __future__ import annotations

import fsspec
from upath import UPath

from cowfs.integrations.fsspec import CowfsFileSystem

for _protocol in {*CowfsFileSystem.protocol} - {*fsspec.registry}:
    fsspec.register_implementation(_protocol, CowfsFileSystem)


class CowfsPath(UPath):
    """Its file system is `CowfsFileSystem`. As text, and as as_uri(), it is a URL that opens the
    same file anywhere; the URL includes the store unless it is the default one."""

    __slots__ = ()

    def __str__(self) -> str:
        if not self.is_absolute():
            return super().__str__()
        return CowfsFileSystem(**self.storage_options).unstrip_protocol(self.path)
