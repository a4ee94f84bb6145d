"""A directory of a version as if it were the whole version: for mounts of one folder.

The directory's inode has the root's number here, and nothing else changes: rows below it are those
of the version. Its own number is nobody's here, so that there is one name for it; what lies outside
has no path, but is still found by its inode number, as file handles name it. Read-only: a change
set would say where the root is.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator, Sequence, Set
from typing import NoReturn

from cowfs.errors import InvalidInputError, InvalidStateError, NotFoundError
from cowfs.index.changes import ChangeSet, ExtentRow, InodeRow
from cowfs.index.index import Index
from cowfs.native.constants import ROOT_INO


class Subtree(Index):
    """source: what commands call the version. NotFoundError: there is nothing at `path`, whose
    names are those of directories, without links. InvalidInputError: it is no directory."""

    def __init__(self, whole: Index, path: bytes, source: str) -> None:
        super().__init__(whole._blocks, whole._cache)
        try:
            self._directory = self._find(path, source)
        except BaseException:
            self.close()
            raise

    def inode(self, ino: int) -> InodeRow | None:
        if ino == ROOT_INO:
            row = super().inode(self._directory)
            return (ROOT_INO, *row[1:]) if row is not None else None
        return super().inode(ino) if ino != self._directory else None

    def entry(self, parent: int, name: bytes) -> int | None:
        return super().entry(self._stored(parent), name)

    def directory_pages(self, ino: int) -> Iterator[list[tuple[bytes, InodeRow]]]:
        return super().directory_pages(self._stored(ino))

    def names_of(self, inodes: Set[int]) -> dict[int, tuple[int, bytes]]:
        found = super().names_of(inodes)
        return {ino: (ROOT_INO if parent == self._directory else parent, name) for ino, (parent, name) in found.items()}

    def stored_content(self, ino: int) -> tuple[list[ExtentRow], list[tuple[bytes, bytes]]]:
        return super().stored_content(self._stored(ino))

    def apply(self, changes: ChangeSet) -> NoReturn:
        raise InvalidStateError("one folder of a version is read-only", hint="Open the whole version to change it.")

    def _stored(self, ino: int) -> int:
        return self._directory if ino == ROOT_INO else ino

    def _find(self, path: bytes, source: str) -> int:
        ino = ROOT_INO
        names = [name for name in path.split(b"/") if name]
        for depth, name in enumerate(names):
            found = super().entry(ino, name)
            if found is None:
                raise NotFoundError(
                    f"the version has no {os.fsdecode(path)!r}",
                    hint=f"`cowfs ls {_place(source, names[:depth])}`, or a mount of the whole Volume.version, shows what there "
                    "is; links are not followed.",
                )
            ino = found
        row = super().inode(ino)
        if row is None or not stat.S_ISDIR(row[1]):
            raise InvalidInputError(
                f"{os.fsdecode(path)!r} is not a directory of the version",
                hint=f"Name the directory it is in. `cowfs cat {_place(source, names)}` prints a file, `cowfs diff A B PATH` "
                "compares one.",
            )
        return ino


def _place(source: str, names: Sequence[bytes]) -> str:
    """As a shell takes it."""
    return shlex.quote(f"{source}:{os.fsdecode(b'/'.join(names))}" if names else source)
