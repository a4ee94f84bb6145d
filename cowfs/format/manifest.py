"""The manifest: the small canonical record of a version; the BLAKE3 of its bytes is the version id.

It records how the version was made, its size, and where its index lies: segments of the block list,
catalogues, and how many live blocks each index pack holds (so that a commit can rewrite the
sparsest when there are more than 64).

Guarantees: one manifest has one encoding (`canonical`); `Manifest.decode(data, expected)` verifies
the hash before it reads; every reference it returns has valid lengths. Manifests travel byte for
byte (copies, moves, other stores): a manifest is never decoded and encoded again to be stored. In
an encrypted store it is sealed whole, and its id is the BLAKE3 of the sealed bytes, so that the id
can be checked without the key. Unknown fields come back in `extra`. `requires` names features that
a reader must support. None exist yet; "external-extents" is reserved for imports that copy nothing.
Refuses: a section whose segments do not cover its pages. Not here: reading an index (`index`),
publishing (`version`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from blake3 import blake3

from cowfs.base.errors import CorruptError, InvalidInputError, UnsupportedFormatError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import ChunkHash, PackId, VersionId
from cowfs.base.short_repr import has_card
from cowfs.format import canonical, fields, keys
from cowfs.format.blocklist import SEGMENT_ENTRIES as SEGMENT_ENTRIES  # readers of a section need it
from cowfs.format.codec import check_lengths
from cowfs.format.fields import Fields
from cowfs.format.sealing import PLAIN, Sealing

FORMAT = 1
PAGE_SIZE = 16384
MAX_PAGE_SIZE = 65536
LINKS = "external-extents"
KNOWN_FEATURES = frozenset({LINKS})


@has_card
@dataclasses.dataclass(frozen=True, slots=True)
class Stats:
    """bytes: sum of file sizes. added_bytes: raw bytes of chunks that this version put first;
    stored_bytes_added: all bytes that it uploaded. linked_bytes: the part of bytes in files that
    are objects outside of the store."""

    files: int
    directories: int
    bytes: int
    added_bytes: int
    stored_bytes_added: int
    linked_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """Where a segment of the block list lies (index pack), and its hash."""

    pack: PackId
    offset: int
    stored_length: int
    raw_length: int
    codec: int
    hash: ChunkHash


@dataclass(frozen=True, slots=True)
class CatalogueRef:
    """Where one catalogue lies; chunks counts its entries."""

    pack: PackId
    offset: int
    stored_length: int
    raw_length: int
    codec: int
    hash: ChunkHash
    chunks: int


@dataclass(frozen=True, slots=True)
class PackUse:
    """How many blocks of the index lie in this index pack."""

    pack: PackId
    live_blocks: int


@dataclass(frozen=True, slots=True)
class IndexSection:
    """The index of the version: `pages` pages of page_size bytes; segment i lists pages 256·i to
    256·i+255."""

    pages: int
    segments: tuple[SegmentRef, ...]
    packs: tuple[PackUse, ...] = ()
    catalogues: tuple[CatalogueRef, ...] = ()
    page_size: int = PAGE_SIZE

    def __post_init__(self) -> None:
        if self.page_size not in (4096 << power for power in range(5)):
            raise InvalidInputError(f"an index page has 4096 to {MAX_PAGE_SIZE} bytes, not {self.page_size}")
        if len(self.segments) != -(-self.pages // SEGMENT_ENTRIES):
            raise InvalidInputError(f"{len(self.segments)} segments cannot list {self.pages} pages")


@dataclass(frozen=True, slots=True)
class Manifest:
    """requires: features that a reader must support to read the version; a reader refuses unknown
    names."""

    volume: str
    parents: tuple[VersionId, ...]
    index: IndexSection
    stats: Stats
    created_ns: int
    message: str = ""
    author: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    produced_by: Mapping[str, str] = field(default_factory=dict, hash=False)
    requires: tuple[str, ...] = ()
    extra: Mapping[str, object] = field(default_factory=dict, hash=False)

    def encode(self) -> bytes:
        """Canonical bytes. InvalidInputError for text that is not UTF-8 or too long."""
        return canonical.encode(
            {
                **self.extra,
                "record": "manifest",
                "format": FORMAT,
                "volume": keys.check_volume_name(self.volume),
                "parents": [parent.hex() for parent in self.parents],
                "index": _index_body(self.index),
                "stats": _stats_body(self.stats),
                "created_ns": self.created_ns,
                "message": self.message,
                "author": self.author,
                "labels": dict(self.labels),
                "produced_by": dict(self.produced_by),
                "requires": list(self.requires),
            }
        )

    @staticmethod
    def decode(
        data: bytes, expected: VersionId | None, *, what: str = "manifest", sealing: Sealing = PLAIN
    ) -> Manifest:
        """CorruptError unless data is a manifest, sealed by `sealing`, and, where expected is
        given, hashes to it."""
        if expected is not None and version_id(data) != expected:
            raise CorruptError(
                f"{what} does not have the hash {expected}", hint="Its stored bytes were altered or cut."
            )
        data = sealing.open_object(keys.VERSIONS, data, what=what)
        found = fields.open_fields(canonical.decode(data, what=what), "manifest", FORMAT, what=what)
        try:
            return _manifest(found, sealing.blob_overhead_bytes)
        except InvalidInputError as error:
            raise CorruptError(f"{what}: {error.message}") from error


def version_id(data: bytes) -> VersionId:
    """BLAKE3 of a manifest's bytes as they are stored."""
    return VersionId(blake3(data).digest())


def _manifest(found: Fields, overhead_bytes: int) -> Manifest:
    # First, so that an unsupported version is refused as such, regardless of its other fields.
    requires = _features(found)
    stats = found.object("stats")
    return Manifest(
        requires=requires,
        volume=keys.check_volume_name(found.text("volume")),
        parents=found.ids("parents", VersionId),
        index=_index(found.object("index"), overhead_bytes),
        stats=_stats(stats),
        created_ns=found.integer("created_ns"),
        message=found.text("message"),
        author=found.text("author"),
        labels=found.texts("labels"),
        produced_by=found.texts("produced_by"),
        extra=found.rest,
    )


def _features(found: Fields) -> tuple[str, ...]:
    names = found.items("requires")
    if not all(isinstance(name, str) for name in names):
        raise found.damage_error("requires", "is not a list of names")
    if unknown := sorted(set(names) - KNOWN_FEATURES):
        raise UnsupportedFormatError(
            f"{found.what} requires {', '.join(unknown)}, unknown to this cowfs", hint="Use a newer cowfs to read it."
        )
    return tuple(names)


def _stats_body(stats: Stats) -> dict[str, int]:
    """linked_bytes only if not 0: manifests without links keep their old form."""
    found = {name: getattr(stats, name) for name in Stats.__slots__}
    if not found["linked_bytes"]:
        del found["linked_bytes"]
    return found


def _stats(found: Fields) -> Stats:
    names = [name for name in Stats.__slots__ if name != "linked_bytes"]
    return Stats(
        **{name: found.integer(name) for name in names}, linked_bytes=found.optional_integer("linked_bytes") or 0
    )


def _index_body(index: IndexSection) -> dict[str, Any]:
    return {
        "page_size": index.page_size,
        "pages": index.pages,
        "segments": [_blob_body(ref) for ref in index.segments],
        "packs": [{"pack": use.pack.hex(), "live_blocks": use.live_blocks} for use in index.packs],
        "catalogues": [{**_blob_body(ref), "chunks": ref.chunks} for ref in index.catalogues],
    }


def _blob_body(ref: SegmentRef | CatalogueRef) -> dict[str, Any]:
    return {
        "pack": ref.pack.hex(),
        "offset": ref.offset,
        "stored_length": ref.stored_length,
        "raw_length": ref.raw_length,
        "codec": int(ref.codec),
        "hash": ref.hash.hex(),
    }


def _index(found: Fields, overhead_bytes: int) -> IndexSection:
    return IndexSection(
        page_size=found.integer("page_size"),
        pages=found.integer("pages", maximum=(1 << 32) - 2),
        segments=tuple(SegmentRef(**_blob(item, overhead_bytes)) for item in found.objects("segments")),
        packs=tuple(
            PackUse(item.id("pack", PackId), item.integer("live_blocks", maximum=1 << 32))
            for item in found.objects("packs")
        ),
        catalogues=tuple(
            CatalogueRef(**_blob(item, overhead_bytes), chunks=item.integer("chunks"))
            for item in found.objects("catalogues")
        ),
    )


def _blob(found: Fields, overhead_bytes: int) -> dict[str, Any]:
    stored_length, raw_length, codec = (found.integer(name) for name in ("stored_length", "raw_length", "codec"))
    check_lengths(codec, stored_length - overhead_bytes, raw_length, what=found.what)
    return {
        "pack": found.id("pack", PackId),
        "offset": found.integer("offset"),
        "stored_length": stored_length,
        "raw_length": raw_length,
        "codec": codec,
        "hash": found.id("hash", ChunkHash),
    }
