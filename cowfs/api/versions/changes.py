"""The differences between two versions, as values: the results of `ROVolume.diff`."""

from __future__ import annotations

from typing import Protocol

from cowfs.version.named_changes import Change

__all__ = ["Change", "Located"]


class Located(Protocol):
    """A version, blocking or async."""

    @property
    def locator(self) -> str: ...
