"""Stores of a run: each session has one of its own below the run's place, removed when the session
has ended."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from mmap import mmap
from pathlib import Path

from cowfs.base import clock
from cowfs.format.store_url import StoreUrl
from cowfs.store import ObjectStore, open_store

OBJECT_BYTES = 16 << 20
"""What cowfs' packs aim at (cowfs.store.packs)."""
PUTS_AT_ONCE = 16
"""As many packs as a commit has on their way at once (cowfs.store.packs)."""


@contextmanager
def fresh(base: StoreUrl) -> Iterator[StoreUrl]:
    """A place in `base` where nothing is, emptied afterwards."""
    name = f"cowfs-bench-{clock.random_bytes(6).hex()}"
    place = replace(base, path=f"{base.path}/{name}".lstrip("/"))
    try:
        yield place
    finally:
        _empty(place)


def put_speed(base: StoreUrl, content: memoryview) -> float:
    """Bytes a second at which the store takes `content` in parallel puts of objects as large as
    packs, from memory that is aligned as a pack's is."""
    with mmap(-1, len(content)) as aligned:
        aligned.write(content)
        with memoryview(aligned) as view:
            return _put_speed(base, view)


def _put_speed(base: StoreUrl, content: memoryview) -> float:
    with fresh(base) as place, closing(open_store(str(place), create=True)) as store:
        parts = [content[offset : offset + OBJECT_BYTES] for offset in range(0, len(content), OBJECT_BYTES)]
        with ThreadPoolExecutor(PUTS_AT_ONCE) as pool:
            start_s = clock.monotonic_s()
            list(pool.map(lambda part: store.put(f"objects/{part[0]}", part[1]), enumerate(parts)))
            return len(content) / (clock.monotonic_s() - start_s)


def _empty(place: StoreUrl) -> None:
    if place.protocol == "file":
        shutil.rmtree(Path("/" + place.path), ignore_errors=True)
        return
    with closing(open_store(str(place))) as store:
        while keys := _keys(store):
            store.delete(keys)


def _keys(store: ObjectStore) -> list[str]:
    return [found.key for found in store.list("", limit=1000)]
