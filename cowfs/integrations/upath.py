"""cowfs for universal-pathlib: `UPath(locator) / "x"`, `UPath("cowfs://NAME/x")`.

How a path is parted is asked of the file system's class, and for one that fsspec has not loaded yet
universal-pathlib guesses, for good: so importing this module makes the class known.
"""

from __future__ import annotations

import fsspec
from upath import UPath

from cowfs.integrations.fsspec import CowfsFileSystem

for _protocol in {*CowfsFileSystem.protocol} - {*fsspec.registry}:
    fsspec.register_implementation(_protocol, CowfsFileSystem)


class CowfsPath(UPath):
    """Its file system is `CowfsFileSystem`. As text, and as_uri(), it is a URL that opens the same
    file anywhere: with its store, if that is not the default one."""

    __slots__ = ()

    def __str__(self) -> str:
        if not self.is_absolute():
            return super().__str__()
        return CowfsFileSystem(**self.storage_options).unstrip_protocol(self.path)
