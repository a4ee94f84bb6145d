"""One open file of an opened volume or version, and the interface that a tree of files offers to
`vol.files`.

`FileTree` has two implementations: `Files`, the engine of a session in this process, and
`MountedFiles`, a volume that is mounted on this machine. Paths are relative to the root, "/"
between names; symbolic links in the middle are errors, since `links.follow` resolves them first.
Offsets and lengths are bytes. Any thread may call, also on one open file; each call is one step.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, Self

from cowfs.transfer.copying import Attributes

if TYPE_CHECKING:
    from types import TracebackType

    from cowfs.native import Handle
    from cowfs.session.files import Files

READ_BYTES = 8 << 20
"""The most that one request to the engine reads; missing chunks are fetched in parallel."""


class OpenedFile(Protocol):
    """Errors are those of system calls. `append` returns the new end of the file; `replace`
    replaces all of its bytes; `size` is the current one."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
    def read(self, offset: int, length: int) -> bytes: ...
    def write(self, offset: int, data: bytes) -> None: ...
    def append(self, data: bytes) -> int: ...
    def replace(self, data: bytes) -> None: ...
    def truncate(self, size: int) -> None: ...
    def size(self) -> int: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


class FileTree(Protocol):
    """`open` takes the flags of open(2); `share` gives the target the content of the source, and
    creates it if it is missing."""

    def stat(self, path: bytes) -> Attributes: ...
    def list(self, path: bytes) -> Sequence[tuple[bytes, Attributes]]: ...
    def readlink(self, path: bytes) -> bytes: ...
    def open(self, path: bytes, flags: int) -> OpenedFile: ...
    def mkdir(self, path: bytes) -> None: ...
    def remove(self, path: bytes) -> None: ...
    def move(self, source: bytes, target: bytes) -> None: ...
    def new_symlink(self, path: bytes, target: bytes) -> None: ...
    def chmod(self, path: bytes, mode: int) -> None: ...
    def share(self, source: bytes, target: bytes) -> None: ...


class EngineFile:
    """An open file handle of an engine, made by `Files.open`."""

    def __init__(self, files: Files, ino: int, fh: Handle) -> None:
        self._files = files
        self.ino = ino
        self.fh = fh
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, offset: int, length: int) -> bytes:
        """Shorter at the end of the file."""
        pieces = []
        while length > 0:
            piece = self._files.read_handle(self.fh, offset, min(length, READ_BYTES))
            if not piece:
                break
            pieces.append(piece)
            offset, length = offset + len(piece), length - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def write(self, offset: int, data: bytes) -> None:
        self._files.write_handle(self.fh, offset, data)

    def append(self, data: bytes) -> int:
        return self._files.append_handle(self.fh, self.ino, data)

    def replace(self, data: bytes) -> None:
        self._files.replace_handle(self.fh, self.ino, data)

    def truncate(self, size: int) -> None:
        self._files.resize(self.ino, size)

    def size(self) -> int:
        return self._files.size_of(self.ino)

    def sync(self) -> None:
        """Returns when everything written is on this machine's disk."""
        self._files.sync_handle(self.fh)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._files.release_handle(self.fh)


def is_for_writing(flags: int) -> bool:
    return flags & os.O_ACCMODE != os.O_RDONLY
