"""cowfs for universal-pathlib: `UPath(locator) / "x"`, `UPath("cowfs://NAME/x")`."""

from __future__ import annotations

from upath import UPath


class CowfsPath(UPath):
    """Its file system is `CowfsFileSystem`; there is nothing else to say."""

    __slots__ = ()
