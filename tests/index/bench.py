"""Real parts for the tests of the index: a directory store that counts requests and can be cut off,
and rows to put in."""

from __future__ import annotations

import builtins
import stat
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cowfs.base.ids import PackId
from cowfs.errors import UnavailableError
from cowfs.format.blocklist import BlockRef, encode_segment
from cowfs.format.catalogue import CatalogueEntry, CataloguePack, encode_catalogue
from cowfs.format.codec import hash_of
from cowfs.format.manifest import SEGMENT_ENTRIES, IndexSection, PackUse, SegmentRef
from cowfs.format.pack import BlobKind, PackKind
from cowfs.index import ChangeSet, Entry, ExtentRow, Index, InodeRow, Published, empty_index, open_index, publish
from cowfs.index.blocks import StoreBlocks
from cowfs.index.cache import BlockCache
from cowfs.store import ObjectInfo, ObjectStore, open_store
from cowfs.store.contract import Data
from cowfs.store.packs import PackReader, PackUploader
from tests.format.catalogues import catalogue_entries

NOW_NS = 1_750_000_000_000_000_000


class WatchedStore:
    """A store that counts what is asked of it and can be made unreachable."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.reads: builtins.list[tuple[str, int, int]] = []
        self.readers: builtins.list[int] = []  # the thread of each ranged read
        self.is_down = False

    @property
    def url(self) -> str:
        return self._store.url

    def _check(self) -> None:
        if self.is_down:
            raise UnavailableError(f"{self.url} does not answer")

    def get(self, key: str) -> bytes:
        self._check()
        data = self._store.get(key)
        self.reads.append((key, 0, len(data)))
        return data

    def get_range(self, key: str, offset: int, length: int) -> Data:
        self._check()
        self.reads.append((key, offset, length))
        self.readers.append(threading.get_ident())
        return self._store.get_range(key, offset, length)

    def size(self, key: str) -> int | None:
        self._check()
        return self._store.size(key)

    def put(self, key: str, data: Data) -> None:
        self._check()
        self._store.put(key, data)

    def put_if_absent(self, key: str, data: Data) -> None:
        self._check()
        self._store.put_if_absent(key, data)

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        self._check()
        return self._store.list(prefix, start_after=start_after, limit=limit)

    def delete(self, keys: Iterable[str]) -> None:
        self._check()
        self._store.delete(keys)

    def read_only(self) -> ObjectStore:
        return self._store.read_only()

    def close(self) -> None:
        self._store.close()


class Bench:
    """A store, a reader, and the steps of a commit as far as they concern the index."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = WatchedStore(open_store((directory / "store").as_uri(), create=True))
        self.reader = PackReader(self.store)
        self._caches = 0

    def cache(self) -> Path:
        """A cache directory nobody used before."""
        self._caches += 1
        return self.directory / f"cache-{self._caches}"

    def empty(self) -> Index:
        return empty_index(self.cache(), uid=1000, gid=1000, now_ns=NOW_NS)

    def open(self, section: IndexSection, cache: Path | None = None) -> Index:
        return open_index(self.store, self.reader, section, cache_dir=cache or self.cache())

    def commit(
        self,
        index: Index,
        changes: ChangeSet,
        *,
        catalogue_packs: Sequence[CataloguePack] = (),
        catalogue: Sequence[CatalogueEntry] = (),
    ) -> tuple[Index, Published]:
        """The new version's index (its base is closed) and what was published."""
        uploader = PackUploader(self.store, PackKind.INDEX)
        try:
            with index.apply(changes) as delta:
                published = publish(
                    delta,
                    uploader=uploader,
                    reader=self.reader,
                    base_section=index.section,
                    catalogues=[encode_catalogue(catalogue_packs, catalogue_entries(catalogue))] if catalogue else [],
                )
                changed = delta.as_index(published.section)
        finally:
            uploader.close()
        index.close()
        return changed, published

    def pages(self, section: IndexSection) -> list[bytes]:
        blocks = StoreBlocks(self.reader, section, BlockCache(self.cache()))
        return [blocks.read(number) for number in range(blocks.count)]

    def store_pages(self, pages: Sequence[bytes]) -> IndexSection:
        """A section over any pages, every hash right: what a hostile writer can make."""
        uploader = PackUploader(self.store, PackKind.INDEX)
        refs = []
        for page in pages:
            where = uploader.add(hash_of(page), page, blob_kind=BlobKind.BLOCK)
            refs.append(BlockRef(where.pack, where.offset, where.stored_length, hash_of(page), where.codec))
        segments = []
        for start in range(0, len(refs), SEGMENT_ENTRIES):
            raw = encode_segment(refs[start : start + SEGMENT_ENTRIES])
            where = uploader.add(hash_of(raw), raw, blob_kind=BlobKind.SEGMENT)
            segments.append(
                SegmentRef(where.pack, where.offset, where.stored_length, where.raw_length, where.codec, hash_of(raw))
            )
        uploader.flush()
        uploader.close()
        live = Counter(ref.pack for ref in refs)
        return IndexSection(len(pages), tuple(segments), tuple(PackUse(pack, n) for pack, n in sorted(live.items())))

    def pack_path(self, pack: PackId) -> Path:
        (path,) = (self.directory / "store").rglob(pack.hex())
        return path


def change_set(
    next_ino: int,
    *,
    inodes: Iterable[InodeRow] = (),
    removed: Iterable[int] = (),
    entries: Iterable[Entry] = (),
    contents: Mapping[int, Sequence[ExtentRow]] | None = None,
    xattrs: Mapping[int, Sequence[tuple[bytes, bytes]]] | None = None,
    packs: Mapping[int, PackId] | None = None,
) -> ChangeSet:
    """From rows in any order."""
    return ChangeSet(
        next_ino,
        inodes=sorted(inodes, key=lambda row: row[0]),
        removed=sorted(removed),
        entries=sorted(entries, key=lambda entry: entry[:2]),
        contents=sorted((contents or {}).items()),
        xattrs=sorted((xattrs or {}).items()),
        packs=packs or {},
    )


def file_row(
    ino: int,
    size: int = 0,
    *,
    mapped_bytes: int | None = None,
    mode: int = stat.S_IFREG | 0o644,
    mtime_ns: int = NOW_NS,
    flags: int = 0,
) -> InodeRow:
    """A regular file, without holes unless `mapped_bytes` says so."""
    return (
        ino,
        mode,
        1,
        1000,
        1000,
        0,
        size,
        size if mapped_bytes is None else mapped_bytes,
        NOW_NS,
        mtime_ns,
        mtime_ns,
        flags,
        b"",
    )


def directory_row(ino: int, *, mtime_ns: int = NOW_NS) -> InodeRow:
    return (ino, stat.S_IFDIR | 0o755, 2, 1000, 1000, 0, 0, 0, NOW_NS, mtime_ns, mtime_ns, 0, b"")


def symlink_row(ino: int, target: bytes) -> InodeRow:
    return (ino, stat.S_IFLNK | 0o777, 1, 1000, 1000, 0, len(target), 0, NOW_NS, NOW_NS, NOW_NS, 0, target)


def extent(offset: int, length: int, *, chunk: int = 0, pack: int = 1, skip: int = 0) -> ExtentRow:
    digest = (chunk * 0x9E3779B97F4A7C15 % (1 << 64)).to_bytes(8) * 4
    return (offset, length, digest, pack, chunk * 100 % (1 << 24), length, skip + length, skip, 1)


def pack_id(number: int) -> PackId:
    return PackId(number.to_bytes(16))


def many_files(count: int, per_directory: int = 1000) -> ChangeSet:
    """The change set of a first version: `count` files of one extent each, in directories of their
    own below the root."""
    directories = range(2, 2 + -(-count // per_directory))
    first = directories.stop
    return change_set(
        next_ino=first + count,
        inodes=[*map(directory_row, directories), *(file_row(first + n, 1000) for n in range(count))],
        entries=[(1, b"d%04d" % ino, ino) for ino in directories]
        + [(2 + n // per_directory, b"file-%07d" % n, first + n) for n in range(count)],
        contents={first + n: [extent(0, 1000, chunk=n)] for n in range(count)},
        packs={1: pack_id(1)},
    )
