"""Writes a version's files into the private directory of a copy, as a download does (`copying`,
`VersionTree`).

The directory must be empty. read_only: no user gets write permission. Devices, pipes and sockets of
the version are left out.
"""

from __future__ import annotations

import stat
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING

from cowfs.machine.folders.stamps import is_special
from cowfs.transfer import copying
from cowfs.transfer.copying import KEPT_BITS
from cowfs.transfer.local_files import Clones, LocalFiles, Missing

if TYPE_CHECKING:
    from cowfs.base.beneath import Root
    from cowfs.transfer.cloned_files import ClonedFiles
    from cowfs.transfer.version_tree import VersionAttr, VersionTree
    from cowfs.version.commit import ProgressListener

WRITING = 0o222


def fill(
    tree: VersionTree,
    private: Root,
    *,
    read_only: bool,
    report: ProgressListener | None = None,
    clones: ClonedFiles | None = None,
) -> dict[bytes, tuple[int, int]]:
    """(size, mtime_ns) of each path in the filled directory. clones: of large files. ConflictError:
    the directory cannot tell two of the paths apart."""
    source = _Noting(tree)
    with (_ReadOnlyTarget if read_only else LocalFiles)(private.path, private.fileno()) as target:
        copying.copy(source, b"", target, b"", report, expect=tree.expect, resumes=tree, clones=clones)
    return source.noted


def root_attributes(tree: VersionTree, *, read_only: bool) -> tuple[int, int]:
    """Mode and mtime_ns of a folder that is made for the copy."""
    root = tree.stat(b"")
    return root.mode & (KEPT_BITS & ~WRITING if read_only else KEPT_BITS), root.mtime_ns


def size_bytes(tree: VersionTree) -> int:
    """The total size of the files in a copy."""
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
    """The version's tree, with a record of the listed entries, which are copied."""

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
