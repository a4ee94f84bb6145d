"""Records what an interrupted verification has read already: a line for each pack that was right.

    <state dir>/verify/<16 hex of store and scope>      pack ids in hexadecimal, one a line

A hint, never synced: losing a line costs reading a pack again. Damaged packs are not recorded, so
they are read again. The file is removed when the verification ends.
"""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

from cowfs.base import private_directories
from cowfs.base.errors import InvalidInputError
from cowfs.base.ids import PackId, StoreId


class VerifyLog:
    """Thread-safe. Works without the file if its directory cannot be written."""

    def __init__(self, state_dir: Path, store: StoreId, scope: str, *, resume: bool) -> None:
        name = hashlib.sha256(f"{store.hex()} {scope}".encode()).hexdigest()[:16]
        self._path = private_directories.require(state_dir / "verify") / name
        self._lock = threading.Lock()
        self.done: frozenset[PackId] = frozenset(self._read()) if resume else frozenset()
        self._file: IO[str] | None = None
        with suppress(OSError):
            private_directories.make(self._path.parent)
            self._file = self._path.open("a" if resume else "w", encoding="ascii")

    def add(self, pack: PackId) -> None:
        with self._lock:
            if self._file is not None:
                try:
                    self._file.write(f"{pack.hex()}\n")
                    self._file.flush()
                except OSError:
                    self._file = None

    def close(self, *, is_over: bool) -> None:
        with self._lock, suppress(OSError):
            if self._file is not None:
                self._file.close()
                self._file = None
            if is_over:
                self._path.unlink(missing_ok=True)

    def _read(self) -> list[PackId]:
        found = []
        with suppress(OSError):
            for line in self._path.read_text(encoding="ascii", errors="replace").splitlines():
                with suppress(InvalidInputError, ValueError):
                    found.append(PackId.from_hex(line))
        return found
