"""The files of an opened volume or version, for programs without a mount: reading and listing, and
changing for a writable one.

Paths are "/"-separated and relative to the root, as text or bytes; "" is the root. Only `follow`
follows symbolic links. Permissions are not checked: anyone who may open the store may read and
publish all of it. Errors are those of system calls (`OSError`), and cowfs errors where the store
does not answer. Any thread may call. A write is in staging and in the journal when the call
returns, as on a mount; a commit publishes it.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import ParamSpec, TypeVar

from cowfs.base.errors import NOT_REGULAR
from cowfs.native import Attr, Caller, Engine, Handle, Owners
from cowfs.native.constants import ROOT_INO
from cowfs.session.opened_file import EngineFile, is_for_writing
from cowfs.session.residency.loading import call_until_resident
from cowfs.session.residency.residency import Residency
from cowfs.transfer import links
from cowfs.transfer.source_files import VersionFile

P = ParamSpec("P")
T = TypeVar("T")
Path = str | bytes

PIECE_BYTES = 1 << 20
REPLACED_BYTES = 64 << 20
"""The most that one step replaces."""
ENTRIES_AT_ONCE = 1000


def this_process(owners: Owners | None = None) -> Caller:
    return Caller(os.geteuid(), os.getegid(), os.getpid(), 0o022, None, owners)


class Files:
    """`caller` becomes the owner of new files; None: this process. `relieve` frees space on a full
    local disk and returns 0 if it cannot."""

    def __init__(
        self,
        engine: Engine,
        residency: Residency,
        caller: Caller | None = None,
        relieve: Callable[[], int] = lambda: 0,
    ) -> None:
        self._engine = engine
        self._load = residency.load
        self._relieve = relieve
        self._caller = caller or this_process()
        self._appending = threading.RLock()  # reentrant, since a signal handler of the same thread may append

    # -- reading

    def stat(self, path: Path) -> Attr:
        """FileNotFoundError, NotADirectoryError."""
        return self.ask(self._engine.getattr, self._find(path))

    def list(self, path: Path = "") -> list[tuple[bytes, Attr]]:
        """Names and attributes of a directory's entries, sorted by name."""
        fh = self.ask(self._engine.open_directory, self._find(path))
        try:
            found, cookie = [], 0
            while entries := self.ask(self._engine.read_directory, fh, cookie, ENTRIES_AT_ONCE):
                found += [(name, attr) for name, _, attr in entries if name not in (b".", b"..")]
                cookie = entries[-1][1]
        finally:
            self._engine.release_directory(fh)
        return sorted(found, key=lambda entry: entry[0])

    def walk(self, path: Path = "") -> Iterator[tuple[bytes, Attr]]:
        """Everything below a directory, parents first, each directory sorted by name; paths are
        relative to the root."""

        def list_below(above: bytes) -> list[tuple[bytes, Attr]]:
            return [(above + b"/" + name if above else name, attr) for name, attr in self.list(above)]

        waiting = list_below(_bytes(path))[::-1]
        while waiting:
            below, attr = waiting.pop()
            yield below, attr
            if stat.S_ISDIR(attr.mode):
                waiting += reversed(list_below(below))

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        """length None: to the end. Shorter at the end of the file."""
        with self.open(path, os.O_RDONLY) as file:
            return file.read(offset, max(file.size() - offset, 0) if length is None else length)

    def open_file(self, path: Path) -> VersionFile:
        """Returns a file that an upload can read from."""
        return VersionFile(self.stat(path), lambda offset, length: self.read(path, offset, length))

    def readlink(self, path: Path) -> bytes:
        return self.ask(self._engine.readlink, self._find(path))

    def follow(self, path: Path) -> bytes:
        """The path with its symbolic links resolved. FileNotFoundError: it leads out of the volume,
        to files that may differ on another machine."""
        return links.follow(self, _bytes(path))

    # -- changing

    def write(self, path: Path, data: bytes, offset: int | None = None) -> None:
        """Replaces the file's content (offset None), or overwrites a part; creates the file if it
        is missing."""
        with self.open(path, os.O_WRONLY | os.O_CREAT) as file:
            if offset is None:
                file.replace(data)
            else:
                file.write(offset, data)

    def new_symlink(self, path: Path, target: bytes) -> None:
        """As symlink(2)."""
        parent, name = self.place(path)
        self._engine.forget(self.ask(self._engine.symlink, parent, name, target, self._caller).ino, 1)

    def chmod(self, path: Path, mode: int) -> None:
        self._set(self._find(path), mode=mode)

    def share(self, source: Path, target: Path) -> None:
        """Gives the target the source's content by sharing extents, without copying bytes where
        possible. An existing target keeps its permissions, a new one gets the source's."""
        found = self.stat(source)
        is_new = not self._is_there(target)
        with self.open(source, os.O_RDONLY) as from_file, self.open(target, os.O_WRONLY | os.O_CREAT) as to_file:
            if found.ino == to_file.ino:
                return
            to_file.truncate(0)
            offset = 0
            while offset < found.size:
                done = self._share_range(from_file, to_file, offset, found.size - offset)
                if done == 0:
                    break
                offset += done
        if is_new:
            self.chmod(target, found.mode & 0o777)

    def mkdir(self, path: Path) -> None:
        parent, name = self.place(path)
        self._engine.forget(self.ask(self._engine.mkdir, parent, name, 0o755, self._caller).ino, 1)

    def remove(self, path: Path) -> None:
        """Removes a file, a link, or an empty directory."""
        parent, name = self.place(path)
        is_directory = stat.S_ISDIR(self.stat(path).mode)
        self.ask(self._engine.rmdir if is_directory else self._engine.unlink, parent, name, self._caller)

    def move(self, source: Path, target: Path) -> None:
        """As rename(2): replaces a file, or an empty directory."""
        self.ask(self._engine.rename, *self.place(source), *self.place(target), 0, self._caller)

    # -- open files

    def open(self, path: Path, flags: int) -> EngineFile:
        """As open(2), but only for regular files; a symbolic link as the last component is an
        error."""
        parent, name = self.place(path)
        if not name:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fsdecode(path))
        access = flags & os.O_ACCMODE
        if flags & os.O_CREAT:
            try:
                new = stat.S_IFREG | 0o644, access | os.O_EXCL
                attr, fh = self.ask(self._engine.create, parent, name, *new, self._caller)
            except FileExistsError:  # a directory, a link or a file: checked below
                if flags & os.O_EXCL:
                    raise
            else:
                self._engine.forget(attr.ino, 1)
                return EngineFile(self, attr.ino, fh)
        found = self.ask(self._engine.getattr, self._look_up(parent, name))
        if stat.S_ISDIR(found.mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fsdecode(path))
        if not stat.S_ISREG(found.mode):
            raise OSError(errno.EINVAL, NOT_REGULAR, os.fsdecode(path))
        truncates = flags & os.O_TRUNC if is_for_writing(flags) else 0
        return EngineFile(self, found.ino, self.ask(self._engine.open_file, found.ino, access | truncates))

    def read_handle(self, fh: Handle, offset: int, length: int) -> bytes:
        return self.ask(self._engine.read, fh, offset, length)

    def write_handle(self, fh: Handle, offset: int, data: bytes) -> None:
        for first in range(0, len(data), PIECE_BYTES):
            piece = data[first : first + PIECE_BYTES]
            self._store(partial(self._engine.write, fh, offset + first, piece))

    def append_handle(self, fh: Handle, ino: int, data: bytes) -> int:
        """Appends each piece at the current end of the file; concurrent appends run one after the
        other."""
        pieces = (data[first : first + PIECE_BYTES] for first in range(0, len(data), PIECE_BYTES))
        with self._appending:
            ends = [self._store(partial(self._engine.append, fh, piece)) for piece in pieces]
        return ends[-1] if ends else self.size_of(ino)

    def replace_handle(self, fh: Handle, ino: int, data: bytes) -> None:
        """Replaces up to REPLACED_BYTES in one step: a kill meanwhile leaves the old bytes or the
        new ones. More than that is written piece by piece."""
        if len(data) <= REPLACED_BYTES:
            self._store(partial(self._engine.replace, fh, data))
        else:
            self.resize(ino, 0)
            self.write_handle(fh, 0, data)

    def resize(self, ino: int, size: int) -> None:
        self._set(ino, size=size)

    def size_of(self, ino: int) -> int:
        return self.ask(self._engine.getattr, ino).size

    def sync_handle(self, fh: Handle) -> None:
        self.ask(self._engine.fsync, fh, False)

    def release_handle(self, fh: Handle) -> None:
        self._engine.release(fh)

    # -- inside

    def _share_range(self, source: EngineFile, target: EngineFile, offset: int, length: int) -> int:
        """Returns the bytes copied; 0: the source has become shorter."""
        try:
            return self.ask(self._engine.copy_range, (source.fh, offset), (target.fh, offset), length)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
        data = source.read(offset, min(length, PIECE_BYTES))
        target.write(offset, data)
        return len(data)

    def _is_there(self, path: Path) -> bool:
        try:
            self.stat(path)
        except FileNotFoundError:
            return False
        return True

    def ask(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Calls the engine until everything that the call needs has been loaded."""
        return call_until_resident(lambda: call(*arguments, **named), self._load)

    def _find(self, path: Path) -> int:
        ino = ROOT_INO
        for name in filter(None, _bytes(path).split(b"/")):
            ino = self._look_up(ino, name)
        return ino

    def _look_up(self, parent: int, name: bytes) -> int:
        """Drops the lookup count at once: nothing here holds an inode between two calls."""
        ino = self.ask(self._engine.lookup, parent, name).ino
        self._engine.forget(ino, 1)
        return ino

    def place(self, path: Path) -> tuple[int, bytes]:
        """The inode number of the parent directory, and the name in it."""
        directory, _, name = _bytes(path).strip(b"/").rpartition(b"/")
        return self._find(directory), name

    def _set(self, ino: int, **values: int) -> None:
        self.ask(self._engine.setattr, ino, self._caller, **values)

    def _store(self, store: Callable[[], T]) -> T:
        """Runs a write, freeing space as needed."""
        if self._engine.is_reclaim_overdue():
            self._engine.reclaim_overdue()
        while True:
            try:
                return self.ask(store)
            except OSError as error:
                if error.errno != errno.ENOSPC or self._relieve() == 0:
                    raise


def _bytes(path: Path) -> bytes:
    return os.fsencode(path)
