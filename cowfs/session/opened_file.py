"""One open file of an opened volume or version, and what any tree of files offers to `vol.files`.

`FileTree` has two implementations: `Files`, the engine of a session in this process, and
`MountedFiles`, a volume that is mounted on this machine. Paths are relative to the root, "/"
between names; symbolic links on the way are errors, since `links.followed` resolves them before.
Offsets and lengths are bytes. Threads: any, also of one open file; each call is one step.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, Self

from cowfs.session.copying import Attributes

if TYPE_CHECKING:
    from types import TracebackType

    from cowfs.session.files import Files

READ_BYTES = 8 << 20
"""Of one request to the engine: what is missing of it is fetched in parallel."""


class OpenedFile(Protocol):
    """Errors of a call are those of system calls. `append` returns the end of the file; `replace`
    makes the bytes all that the file holds; `size` is the one now."""

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
    """`open` takes flags of open(2); `share` makes the content of one file that of another one,
    which is made if it is missing."""

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
    """A handle of an engine. `Files.open` makes it."""

    def __init__(self, files: Files, ino: int, fh: int) -> None:
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
        """What was written is on this machine's disk when this returns."""
        self._files.sync_handle(self.fh)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._files.release_handle(self.fh)


def is_for_writing(flags: int) -> bool:
    return flags & os.O_ACCMODE != os.O_RDONLY
