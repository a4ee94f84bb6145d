"""Takes purged bytes out of this machine's caches.

    segments/<name>.data, .index     removed if the index lists one of the chunks (native/cache/src/record.rs)
    whole/                           removed: their names do not say which chunks they were made of
    blocks/<2 hex>/<name>            the index blobs

Each collection and each purge does so with everything that the store's purged records name: a
purge that was killed, or ran on another machine, left this machine's caches as they were. Caches
may be deleted at any time. A process that runs keeps what it has in memory, and segments that it
has open, until it ends.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from cowfs.base import private_directories
from cowfs.base.ids import ChunkHash

_MAGIC = b"cowfsix1"
_FIXED_BYTES = 52
_HASH_AT = 4
_LENGTH_AT = 40
_BLOCK_BYTES = 4096


def drop_cached(cache_dir: Path, hashes: Collection[ChunkHash]) -> None:
    """hashes: of chunks and index blobs. AccessDeniedError: other users can write to the
    directory. OSError: some of it cannot be removed."""
    if not hashes:
        return
    private_directories.require_cache(cache_dir)
    for index in (cache_dir / "segments").glob("*.index"):
        if _lists_one_of(index, hashes):
            for path in (index.with_suffix(".data"), index):
                path.unlink(missing_ok=True)
    shutil.rmtree(cache_dir / "whole", ignore_errors=True)
    names = {hash.hex() for hash in hashes}
    for path in (cache_dir / "blocks").glob("*/*"):
        if path.name in names:
            path.unlink(missing_ok=True)


def _lists_one_of(index: Path, hashes: Collection[ChunkHash]) -> bool:
    with suppress(FileNotFoundError):
        data = index.read_bytes()
        at = len(_MAGIC)
        while at + _FIXED_BYTES <= len(data):
            if data[at + _HASH_AT : at + _HASH_AT + ChunkHash.length] in hashes:
                return True
            length = int.from_bytes(data[at + _LENGTH_AT : at + _LENGTH_AT + 4], "little")
            at += _FIXED_BYTES + 4 * -(-length // _BLOCK_BYTES)
    return False
