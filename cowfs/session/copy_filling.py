"""A version's files into a directory of a copy, as a download writes them (`copying`,
`VersionTree`).

The directory is empty before, and gets the attributes of the version's root. read_only: nobody gets
permission to write. Devices, pipes and sockets of the version are left out.
"""

from __future__ import annotations

import stat
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING

from cowfs.session import copying
from cowfs.session.copying import KEPT_BITS
from cowfs.session.local_files import Clones, LocalFiles, Missing, is_special

if TYPE_CHECKING:
    from cowfs.session.cloned_files import ClonedFiles
    from cowfs.session.version_tree import VersionAttr, VersionTree
    from cowfs.version.commit import ProgressListener

WRITING = 0o222


def fill(
    tree: VersionTree,
    path: bytes,
    *,
    read_only: bool,
    report: ProgressListener | None = None,
    clones: ClonedFiles | None = None,
) -> dict[bytes, tuple[int, int]]:
    """(size, mtime_ns) of each path that the directory has now. clones: of large files.
    ConflictError: two paths would be one there."""
    source = _Noting(tree)
    with (_ReadOnlyTarget if read_only else LocalFiles)(path) as target:
        copying.copy(source, b"", target, b"", report, expect=tree.expect, resumes=tree, clones=clones)
        root = tree.stat(b"")
        target.set_attributes(b"", mode=root.mode & KEPT_BITS, mtime_ns=root.mtime_ns)
    return source.noted


def size_bytes(tree: VersionTree) -> int:
    """Of all files: of what a copy takes."""
    total, waiting, seen = 0, [b""], set[int]()
    while waiting:
        above = waiting.pop()
        for name, attr in tree.list(above):
            path = above + b"/" + name if above else name
            if stat.S_ISDIR(attr.mode):
                waiting.append(path)
            elif stat.S_ISREG(attr.mode) and attr.ino not in seen:
                seen.update({attr.ino} if attr.nlink > 1 else ())
                total += attr.size
    return total


class _Noting:
    """The version's tree, with a note of what was listed and is copied."""

    def __init__(self, tree: VersionTree) -> None:
        self._tree = tree
        self.noted: dict[bytes, tuple[int, int]] = {}

    def stat(self, path: bytes) -> VersionAttr:
        return self._tree.stat(path)

    def list(self, path: bytes) -> Sequence[tuple[bytes, VersionAttr]]:
        found = self._tree.list(path)
        for name, attr in found:
            if not is_special(attr.mode):
                self.noted[path + b"/" + name if path else name] = attr.size, attr.mtime_ns
        return found

    def readlink(self, path: bytes) -> bytes:
        return self._tree.readlink(path)

    def pieces(self, path: bytes) -> Generator[tuple[int, bytes]]:
        return self._tree.pieces(path)


class _ReadOnlyTarget(LocalFiles):
    def put(
        self,
        path: bytes,
        pieces: Iterable[tuple[int, bytes]],
        *,
        mode: int,
        mtime_ns: int,
        xattrs: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        super().put(path, pieces, mode=mode & ~WRITING, mtime_ns=mtime_ns, xattrs=xattrs)

    def put_rest(
        self,
        path: bytes,
        missing: Missing,
        *,
        content_id: str,
        mode: int,
        mtime_ns: int,
        clones: Clones | None = None,
    ) -> None:
        mode &= ~WRITING
        super().put_rest(path, missing, content_id=content_id, mode=mode, mtime_ns=mtime_ns, clones=clones)

    def set_attributes(self, path: bytes, *, mode: int, mtime_ns: int) -> None:
        super().set_attributes(path, mode=mode & ~WRITING, mtime_ns=mtime_ns)
