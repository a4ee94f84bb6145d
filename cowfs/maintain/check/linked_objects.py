"""Checks whether each linked object is still in the state that a version links. Reads no bytes: it
asks the origin for size and ETag (or time) of each object, once for all versions that link the same
state."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from cowfs.base import clock
from cowfs.base.errors import AccessDeniedError, CowfsError, NotFoundError, UnavailableError
from cowfs.base.thread_pool import Helpers
from cowfs.format.manifest import Manifest
from cowfs.index import Link, open_index
from cowfs.maintain.check.broken_paths import paths_of
from cowfs.store import Access, ObjectStore
from cowfs.store.origin import OriginObject
from cowfs.store.origin.open_origin import RepeatingOrigin, open_linked
from cowfs.store.packs import PackReader
from cowfs.store.reliability.patience import Patience

THREADS = 16
PAGE = 1000


class LinkCheck:
    """For one verification; not thread-safe. notes: origins that could not be asked."""

    def __init__(self, store_url: str, access: Access) -> None:
        self._store_url = store_url
        self._access = access
        self._origins: dict[str, RepeatingOrigin | None] = {}
        self._known: dict[Link, str] = {}  # problem, "" for none
        self.notes: list[str] = []

    @property
    def count(self) -> int:
        return len(self._known)

    def find_changed(
        self, store: ObjectStore, reader: PackReader, manifest: Manifest, cache_dir: Path, share: float
    ) -> dict[bytes, str]:
        """Maps path to problem. share: the fraction of the objects to check, chosen at random."""
        problems: dict[int, str] = {}
        with open_index(store, reader, manifest.index, cache_dir=cache_dir) as index:
            rows = ((ino, link) for ino, link in index.links() if share >= 1 or _drawn(share))
            while page := list(islice(rows, PAGE)):
                asked = list({link for _, link in page} - self._known.keys())
                origins = [self._origin(link.url) for link in asked]
                with Helpers(THREADS, name="cowfs-links") as threads:
                    found = threads.map(_problem, origins, asked)
                    self._known |= dict(zip(asked, found, strict=True))
                problems |= {ino: problem for ino, link in page if (problem := self._known[link])}
            return {path: problems[ino] for ino in problems for path in paths_of(index, [ino])}

    def _origin(self, url: str) -> RepeatingOrigin | None:
        if url not in self._origins:
            try:
                self._origins[url] = open_linked(
                    url, store_url=self._store_url, access=self._access, patience=Patience()
                )
            except (AccessDeniedError, NotFoundError, UnavailableError) as error:
                self._origins[url] = None
                self.notes.append(f"objects of {url} were not checked: {error.message}")
        return self._origins[url]


def _problem(origin: RepeatingOrigin | None, link: Link) -> str:
    if origin is None:
        return ""
    linked = OriginObject(os.fsdecode(link.key), link.size, link.mtime_ns, link.tag)
    try:
        now = origin.look(linked.key)
    except CowfsError as error:
        return f"the linked object cannot be checked: {error.message}"
    if now is None:
        return "the linked object is gone"
    return "" if linked.is_now(now) else "the linked object was replaced"


def _drawn(share: float) -> bool:
    return int.from_bytes(clock.random_bytes(4)) < share * (1 << 32)
