"""What differs between two versions, as values: what `ROVolume.diff` gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol


class Located(Protocol):
    """A version, blocking or async."""

    @property
    def locator(self) -> str: ...


@dataclass(frozen=True)
class Change:
    """One path at which two versions differ.

    kind     `added`, `removed`, `changed`, or `renamed`, which may have changed as well
    path     in the newer one; of what is removed in the older one. From the root, or from the folder that was compared
    old_path in the older one; another one also for what changed below a renamed directory. None: it is added
    type     `file`, `directory`, `symlink` or `special`; of what is removed as it was. old_type: in the older one
    what     of `type`, `content`, `target` (of a link), `device`, `mode`, `owner`, `xattrs`, `mtime`: those that differ
    size     in bytes; None: it is removed. old_size: None: it is added
    added_bytes, removed_bytes    of content that only the newer, only the older file has, in whole chunks
    """

    kind: Literal["added", "removed", "changed", "renamed"]
    path: str
    old_path: str | None
    type: str
    old_type: str | None
    what: tuple[str, ...]
    size: int | None
    old_size: int | None
    added_bytes: int
    removed_bytes: int
