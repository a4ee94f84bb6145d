"""Presents one directory of a version as a whole version, for mounts of one folder.

The directory's inode has the root's number here; otherwise the rows are those of the version. Its
original number does not exist here, so that it has only one name. Entries outside of the directory
have no path, but are still found by their inode number, as file handles name them. Read-only: a
change set would have to say which root it means.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence, Set
from typing import NoReturn

from cowfs.base.errors import InvalidInputError, InvalidStateError, NotFoundError
from cowfs.base.hints import Command
from cowfs.index.changes import ChangeSet, ExtentRow, InodeRow
from cowfs.index.index import Index
from cowfs.native.constants import ROOT_INO


class Subtree(Index):
    """source: the version as commands name it. NotFoundError: `path` does not exist; links are not
    followed. InvalidInputError: it is not a directory."""

    def __init__(self, whole: Index, path: bytes, source: str) -> None:
        super().__init__(whole.blocks, whole.cache)
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
        return super().entry(self._real_inode(parent), name)

    def directory_pages(self, ino: int) -> Iterator[list[tuple[bytes, InodeRow]]]:
        return super().directory_pages(self._real_inode(ino))

    def names_of(self, inodes: Set[int]) -> dict[int, tuple[int, bytes]]:
        found = super().names_of(inodes)
        return {ino: (ROOT_INO if parent == self._directory else parent, name) for ino, (parent, name) in found.items()}

    def read_stored_content(self, ino: int) -> tuple[list[ExtentRow], list[tuple[bytes, bytes]]]:
        return super().read_stored_content(self._real_inode(ino))

    def apply(self, changes: ChangeSet) -> NoReturn:
        raise InvalidStateError("one folder of a version is read-only", hint="Open the whole version to change it.")

    def _real_inode(self, ino: int) -> int:
        return self._directory if ino == ROOT_INO else ino

    def _find(self, path: bytes, source: str) -> int:
        ino = ROOT_INO
        names = [name for name in path.split(b"/") if name]
        for depth, name in enumerate(names):
            found = super().entry(ino, name)
            if found is None:
                raise NotFoundError(
                    f"the version has no {os.fsdecode(path)!r}",
                    hint=f"{Command('ls', _place(source, names[:depth]))}, or a mount of the whole version, shows the existing "
                    "entries; links are not followed.",
                )
            ino = found
        row = super().inode(ino)
        if row is None or not stat.S_ISDIR(row[1]):
            raise InvalidInputError(
                f"{os.fsdecode(path)!r} is not a directory of the version",
                hint=f"Name the directory it is in. {Command('cat', _place(source, names))} prints a file, "
                f"{Command('diff', 'A', 'B', 'PATH')} compares one.",
            )
        return ino


def _place(source: str, names: Sequence[bytes]) -> str:
    return f"{source}:{os.fsdecode(b'/'.join(names))}" if names else source
