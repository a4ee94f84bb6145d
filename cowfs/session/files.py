"""The files of an opened volume or version, for programs without a mount: read, list, and of a
writable one change.

Paths are "/"-separated and relative to the root, as text or bytes; "" is the root. Symbolic links
are not followed. Errors are those of system calls (`OSError`), and ours where the store does not
answer. Threads: any. What is written is in staging and in the journal when a call returns, as
behind a mount: a commit publishes it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from cowfs.native import Attr, Caller, Engine
from cowfs.native.constants import ROOT_INO
from cowfs.session.loading import answered
from cowfs.session.residency import Residency

P = ParamSpec("P")
T = TypeVar("T")
Path = str | bytes

PIECE_BYTES = 1 << 20
ENTRIES_AT_ONCE = 1000


class Files:
    """`caller` is who owns what is made; None: this process."""

    def __init__(self, engine: Engine, residency: Residency, caller: Caller | None = None) -> None:
        self._engine = engine
        self._load = residency.load
        self._caller = caller or Caller(os.geteuid(), os.getegid(), os.getpid(), 0o022, None)

    # -- reading

    def stat(self, path: Path) -> Attr:
        """FileNotFoundError, NotADirectoryError."""
        return self._ask(self._engine.getattr, self._find(path))

    def list(self, path: Path = "") -> list[tuple[bytes, Attr]]:
        """Names and attributes of a directory's entries, sorted by name."""
        fh = self._ask(self._engine.open_directory, self._find(path))
        try:
            found, cookie = [], 0
            while entries := self._ask(self._engine.read_directory, fh, cookie, ENTRIES_AT_ONCE):
                found += [(name, attr) for name, _, attr in entries if name not in (b".", b"..")]
                cookie = entries[-1][1]
        finally:
            self._engine.release_directory(fh)
        return sorted(found, key=lambda entry: entry[0])

    def walk(self, path: Path = "") -> Iterator[tuple[bytes, Attr]]:
        """Everything below a directory, parents first, each directory sorted by name; paths are
        relative to the root."""
        above = _bytes(path)
        for name, attr in self.list(path):
            below = above + b"/" + name if above else name
            yield below, attr
            if stat.S_ISDIR(attr.mode):
                yield from self.walk(below)

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        """length None: to the end. Shorter at the end of the file."""
        with self._open(self._find(path), os.O_RDONLY) as fh:
            pieces = []
            while length is None or length > 0:
                wanted = PIECE_BYTES if length is None else min(length, PIECE_BYTES)
                piece = self._ask(self._engine.read, fh, offset, wanted)
                if not piece:
                    break
                pieces.append(piece)
                offset += len(piece)
                length = None if length is None else length - len(piece)
        return b"".join(pieces)

    # -- changing

    def write(self, path: Path, data: bytes, offset: int | None = None) -> None:
        """Replaces the file's content (offset None), or overwrites a part; makes the file if it is
        missing."""
        with self._open_to_write(path, os.O_TRUNC if offset is None else 0) as fh:
            start = offset or 0
            for first in range(0, len(data), PIECE_BYTES):
                self._ask(self._engine.write, fh, start + first, data[first : first + PIECE_BYTES])

    def mkdir(self, path: Path) -> None:
        parent, name = self._place(path)
        self._ask(self._engine.mkdir, parent, name, 0o755, self._caller)

    def remove(self, path: Path) -> None:
        """A file, a link, or an empty directory."""
        parent, name = self._place(path)
        is_directory = stat.S_ISDIR(self._ask(self._engine.getattr, self._find(path)).mode)
        self._ask(self._engine.rmdir if is_directory else self._engine.unlink, parent, name, self._caller)

    def move(self, source: Path, target: Path) -> None:
        """As rename(2): replaces a file, or an empty directory."""
        self._ask(self._engine.rename, *self._place(source), *self._place(target), 0, self._caller)

    # -- inside

    def _ask(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        return answered(lambda: call(*arguments, **named), self._load)

    def _find(self, path: Path) -> int:
        ino = ROOT_INO
        for name in filter(None, _bytes(path).split(b"/")):
            ino = self._look_up(ino, name)
        return ino

    def _look_up(self, parent: int, name: bytes) -> int:
        """The kernel's count is not raised for good: nothing here holds an inode between two
        calls."""
        ino = self._ask(self._engine.lookup, parent, name).ino
        self._engine.forget(ino, 1)
        return ino

    def _place(self, path: Path) -> tuple[int, bytes]:
        directory, _, name = _bytes(path).strip(b"/").rpartition(b"/")
        return self._find(directory), name

    @contextmanager
    def _open(self, ino: int, flags: int) -> Iterator[int]:
        fh = self._ask(self._engine.open_file, ino, flags)
        try:
            yield fh
        finally:
            self._engine.release(fh)

    @contextmanager
    def _open_to_write(self, path: Path, flags: int) -> Iterator[int]:
        parent, name = self._place(path)
        try:
            ino = self._look_up(parent, name)
        except FileNotFoundError:
            attr, fh = self._ask(self._engine.create, parent, name, stat.S_IFREG | 0o644, os.O_WRONLY, self._caller)
            self._engine.forget(attr.ino, 1)
        else:
            fh = self._ask(self._engine.open_file, ino, os.O_WRONLY | flags)
        try:
            yield fh
        finally:
            self._engine.release(fh)


def _bytes(path: Path) -> bytes:
    return os.fsencode(path)
