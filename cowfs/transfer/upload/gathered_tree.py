"""Several files and directories as one directory, each under a name of its own: the source of a
copy of several paths that becomes one version.

The parts must not come from two versions: inode numbers, by which an upload finds the names of one
file, are unique on this machine and in a version, not among versions.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cowfs.base import clock
from cowfs.base.fast_dataclass import dataclass

if TYPE_CHECKING:
    from cowfs.transfer.copying import Attributes
    from cowfs.transfer.upload.upload_reading import ReadFile, SourceTree


@dataclass(frozen=True)
class _Top:
    """Attributes of the directory itself, which no copy uses."""

    mtime_ns: int
    ino: int = 0
    mode: int = stat.S_IFDIR | 0o755
    nlink: int = 2
    size: int = 0


class GatheredTree:
    """parts: the tree and the path in it by name."""

    def __init__(self, parts: Mapping[bytes, tuple[SourceTree, bytes]]) -> None:
        self._parts = dict(sorted(parts.items()))

    def stat(self, path: bytes) -> Attributes:
        if not path:
            return _Top(clock.now_ns())
        tree, at = self._find(path)
        return tree.stat(at)

    def list(self, path: bytes) -> Sequence[tuple[bytes, Attributes]]:
        if not path:
            return [(name, tree.stat(at)) for name, (tree, at) in self._parts.items()]
        tree, at = self._find(path)
        return tree.list(at)

    def readlink(self, path: bytes) -> bytes:
        tree, at = self._find(path)
        return tree.readlink(at)

    def open_file(self, path: bytes) -> ReadFile:
        tree, at = self._find(path)
        return tree.open_file(at)

    def _find(self, path: bytes) -> tuple[SourceTree, bytes]:
        name, _, rest = path.partition(b"/")
        tree, at = self._parts[name]
        return tree, b"/".join(filter(None, (at, rest)))
