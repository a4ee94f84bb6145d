"""Remembers content ids on this machine: `<cache_dir>/content-ids`, a file of SLOTS fixed slots.

    slot   key 32 | id 32 | BLAKE3 of both 32        key: BLAKE3 of scheme, version id and folder; its first bytes choose the slot

A new id replaces another in its slot, so the file never grows. A slot that is damaged, torn by two
writers or of another version is not believed, and the id is computed again. Without a writable
directory nothing is remembered. Any thread and process may call.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from cowfs.base import private_directories
from cowfs.version.content_id import SCHEME

if TYPE_CHECKING:
    from cowfs.base.ids import VersionId

SLOTS: Final = 4096
_HASH_BYTES = 32
_SLOT_BYTES = 3 * _HASH_BYTES
_CONTEXT = "cowfs 2026-11-30 key of a cached content id"


class ContentIdCache:
    """cache_dir: private, or absent."""

    def __init__(self, cache_dir: Path) -> None:
        self._directory = cache_dir
        self._path = cache_dir / "content-ids"

    def find(self, version: VersionId, folder: bytes) -> str | None:
        key, at = _place(version, folder)
        with suppress(OSError), self._open(os.O_RDONLY) as fd:
            slot = os.pread(fd, _SLOT_BYTES, at)
            said = slot[: 2 * _HASH_BYTES]
            if said[:_HASH_BYTES] == key and slot[2 * _HASH_BYTES :] == blake3(said).digest():
                return f"{SCHEME}:{said[_HASH_BYTES:].hex()}"
        return None

    def store(self, version: VersionId, folder: bytes, content_id: str) -> None:
        key, at = _place(version, folder)
        said = key + bytes.fromhex(content_id.removeprefix(f"{SCHEME}:"))
        with suppress(OSError):
            private_directories.make(self._directory)
            with self._open(os.O_WRONLY | os.O_CREAT) as fd:
                os.pwrite(fd, said + blake3(said).digest(), at)

    @contextmanager
    def _open(self, flags: int) -> Iterator[int]:
        fd = os.open(self._path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            yield fd
        finally:
            os.close(fd)


def _place(version: VersionId, folder: bytes) -> tuple[bytes, int]:
    key = blake3(SCHEME.encode() + version + folder, derive_key_context=_CONTEXT).digest()
    return key, int.from_bytes(key[:4]) % SLOTS * _SLOT_BYTES
