"""A volume driven without FUSE: engine, index, residency, publisher and committer wired as the
mount daemon wires them.

`WorkingVolume` is one writer of one volume; `files(...)` reads a version back from the store with a
cache of its own.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, Self, TypeVar

from cowfs.base import clock
from cowfs.base.ids import StoreId, VersionId, WriteId
from cowfs.errors import NotFoundError
from cowfs.format import keys
from cowfs.format.heads import Intent
from cowfs.format.records import ProbeResult, StoreRecord
from cowfs.index import empty_index, open_index
from cowfs.native import Caller, Engine
from cowfs.session.committer import Committer
from cowfs.session.files import Files
from cowfs.session.residency.loading import call_until_resident
from cowfs.session.residency.residency import Residency
from cowfs.store import ObjectStore
from cowfs.store.initialize import current_id
from cowfs.store.packs import PackReader
from cowfs.store.refs.pins import Pin
from cowfs.version.commit import Base, CommitRequest
from cowfs.version.history import open_version
from cowfs.version.names.volumes import create_volume, find_head
from cowfs.version.publish.protection import Protection
from cowfs.version.publish.publisher import Publisher
from cowfs.version.publish.uploads import UploadLog

ROOT = 1
ME = Caller(os.getuid(), os.getgid(), os.getpid(), 0o022, None)
T = TypeVar("T")


def id_of(store: ObjectStore) -> StoreId:
    """The store's; it gets a record if it has none."""
    try:
        return current_id(store)
    except NotFoundError:
        id, write_id = StoreId(clock.random_bytes(StoreId.length)), WriteId(clock.random_bytes(WriteId.length))
        probe = ProbeResult(True, 1, 1, 1, True, True, clock.now_ns())
        store.put(
            keys.STORE, StoreRecord(store_id=id, created_ns=clock.now_ns(), write_id=write_id, probe=probe).encode()
        )
        return id


class EngineView:
    """The files of an engine. Paths are bytes, "/"-separated, relative to the root."""

    engine: Engine
    residency: Residency

    @property
    def files(self) -> Files:
        return Files(self.engine, self.residency, ME)

    def call(self, method: Any, *arguments: Any, **keywords: Any) -> Any:
        return call_until_resident(lambda: method(*arguments, **keywords), self.residency.load)

    def find(self, path: bytes) -> int:
        return self.files.stat(path).ino

    def read(self, path: bytes) -> bytes:
        return self.files.read(path)

    def names(self, path: bytes = b"") -> list[bytes]:
        return [name for name, _ in self.files.list(path)]

    def tree(self, path: bytes = b"") -> dict[bytes, bytes | None]:
        """Content by path; None for a directory."""
        return {below: None if stat.S_ISDIR(attr.mode) else self.read(below) for below, attr in self.files.walk(path)}


class WritableView(EngineView):
    """An engine that may be changed."""

    def write(self, path: bytes, data: bytes, offset: int | None = None) -> None:
        """Replaces the file (offset None) or overwrites part of it."""
        self.files.write(path, data, offset)

    def mkdir(self, path: bytes) -> None:
        self.files.mkdir(path)

    def unlink(self, path: bytes) -> None:
        self.files.remove(path)


class WorkingVolume(WritableView):
    def __init__(self, store: ObjectStore, name: str, home: Path, *, max_uploads: int = 4) -> None:
        self.store = store
        self.name = name
        self.published: list[Intent] = []
        home.mkdir(parents=True, exist_ok=True)
        head = find_head(store, name) or create_volume(store, name)
        manifest = open_version(store, head.version) if head.version else None
        packs = PackReader(store)
        if manifest is None:
            index = empty_index(
                home / "cache",
                uid=os.getuid(),
                gid=os.getgid(),
                now_ns=clock.now_ns(),
                sealing=packs.sealing,
            )
        else:
            index = open_index(store, packs, manifest.index, cache_dir=home / "cache")
        root = index.inode(ROOT)
        assert root is not None
        self.engine = Engine.open(
            root=root,
            next_ino=index.next_ino,
            cache_dir=str(home / "cache"),
            staging_dir=str(home / "working"),
            boot_id="this boot",
        )
        self.residency = Residency(self.engine, index, packs)
        self.publisher = Publisher(
            store,
            store_id=id_of(store),
            volume=name,
            epoch=head.epoch,
            base=Base(head.number, head.version, manifest, head.check),
            index=index,
            packs=packs,
            numbers=self.residency.pack_numbers,
            protection=Protection(store, Pin.create(store, volume=name, number=head.number, owner="test")),
            record_intent=lambda intent: None,
            record_published=self.published.append,
            drop_intent=lambda: None,
            max_uploads=max_uploads,
            uploads=UploadLog(home / "uploads"),
        )
        self.committer = Committer(self.engine, self.residency, self.publisher)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.committer.close()
        self.residency.close()
        self.engine.close()

    def commit(self, message: str = "") -> Base:
        self.publisher.chunks._known.wait_loaded(1 << 40)  # a busy machine must not change what is found
        return self.committer.commit(CommitRequest(message=message))


class ReadingVolume(EngineView):
    """One version, read-only, with an empty cache."""

    def __init__(self, store: ObjectStore, version: VersionId, home: Path) -> None:
        packs = PackReader(store)
        index = open_index(store, packs, open_version(store, version).index, cache_dir=home / "cache")
        root = index.inode(ROOT)
        assert root is not None
        self.engine = Engine.open(root=root, next_ino=index.next_ino, cache_dir=str(home / "cache"))
        self.residency = Residency(self.engine, index, packs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.residency.close()
        self.engine.close()
