"""Uploads a delta: changed blocks, the list segments that name them, the catalogue of new chunks.

    pages of the delta ─▶ blocks ─┐
    segments with a changed entry ┼─▶ one PackUploader of kind index ─▶ flush ─▶ IndexSection (for the manifest)
    new chunks ─▶ catalogue ──────┘

- A page with the hash of the base's page is not uploaded; equal pages are uploaded once.
- `section.packs` counts, for each index pack, the pages of this version in it. Segments and
  catalogues are named by their refs, not counted: a version needs the union of all three.
- The first pages, which have the roots of all tables, are put last, right before the segments: a
  reader that opens the version gets both with one request (`StoreBlocks`).
- When blocks lie in more than MAX_PACKS packs, up to REWRITTEN_BLOCKS blocks of the packs with the
  fewest are uploaded again: reading a version stays cheap, and old packs become free. Finding them
  loads all list segments (once for a mount).
- Catalogues: the base's and the new one; `catalogues` keeps their number small.

Blocks are durable before they are named: the section is returned after `flush`, and the blocks
enter the local cache after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cowfs.base.errors import CorruptError, InvalidInputError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import ChunkHash, PackId
from cowfs.format.blocklist import BlockRef, encode_segment
from cowfs.format.manifest import SEGMENT_ENTRIES, IndexSection, PackUse, SegmentRef
from cowfs.format.pack import BlobKind
from cowfs.index.catalogues import add_catalogues
from cowfs.index.overlay import ZERO_PAGE
from cowfs.store.packs import PackReader, PackReceipt, PackUploader

if TYPE_CHECKING:
    from cowfs.index.blocks import StoreBlocks
    from cowfs.index.index import IndexDelta

MAX_PACKS = 64
REWRITTEN_BLOCKS = 64
FIRST_PAGES = 16  # 256 KiB in memory


@dataclass(frozen=True)
class Published:
    """section: for the manifest. receipts: proof that the new index packs are durable."""

    section: IndexSection
    receipts: Sequence[PackReceipt]


def publish(
    delta: IndexDelta,
    *,
    uploader: PackUploader,
    reader: PackReader,
    base_section: IndexSection | None,
    catalogues: Iterable[bytes] = (),
) -> Published:
    """Everything that the returned section names is durable when this returns.

    uploader: of kind index, used for nothing else; flushed here. base_section: the section that the
    delta's base was opened from (None: `empty_index`). catalogues: of the chunks that this version
    adds, encoded. Requests: a put for each 16 MiB. May be repeated after an error with a new
    uploader: the first attempt leaves garbage, never damage.
    """
    if base_section != (delta.base.section if delta.base is not None else None):
        raise InvalidInputError("the delta was made from another version's index than base_section")
    blocks = _BlockList(delta, uploader)
    first: list[tuple[int, bytes]] = []
    for page, raw in delta.pages():
        if page <= FIRST_PAGES:
            first.append((page, raw))
        else:
            blocks.put(page - 1, raw)
    for page, raw in first:
        blocks.put(page - 1, raw)
    blocks.gather_sparse()
    segments = blocks.upload_segments()
    old = base_section.catalogues if base_section is not None else ()
    named = add_catalogues(old, catalogues, uploader=uploader, reader=reader)
    section = IndexSection(
        pages=delta.page_count,
        segments=segments,
        packs=tuple(PackUse(pack, live) for pack, live in sorted(blocks.live.items())),
        catalogues=named,
    )
    receipts = uploader.flush()
    for digest, raw in blocks.list_uploaded():
        delta.cache.put(digest, raw)
    delta.cache.let_go(blocks.replaced)
    delta.reader = reader
    return Published(section, receipts)


class _BlockList:
    """The block list of the new version while it is made: the base's list, with changed entries."""

    def __init__(self, delta: IndexDelta, uploader: PackUploader) -> None:
        self.live: Counter[PackId] = Counter()
        self.replaced: set[ChunkHash] = set()  # blocks and segments of the base that were replaced
        self._delta = delta
        self._base: StoreBlocks | None = delta.base
        self._uploader = uploader
        self._name = uploader.sealing.name
        self._changed: dict[int, BlockRef | None] = {}
        self._refs: dict[ChunkHash, BlockRef] = {}
        self._segments: list[tuple[ChunkHash, bytes]] = []
        if self._base is not None:
            self.live.update({use.pack: use.live_blocks for use in self._base.section.packs})
            for number in range(delta.page_count, self._base.count):
                self._release(self._base.ref(number))

    def put(self, number: int, raw: bytes) -> None:
        """Sets block `number` to these bytes. Uploads them unless the base has them there, or they
        were just uploaded."""
        old = self._base.ref(number) if self._base is not None and number < self._base.count else None
        if raw == ZERO_PAGE:
            ref = None
        else:
            digest = self._name(raw)
            if old is not None and old.hash == digest:
                return
            ref = self._refs.get(digest) or self._upload(digest, raw)
        self._replace(number, old, ref)

    def _upload(self, digest: ChunkHash, raw: bytes) -> BlockRef:
        where = self._uploader.add(digest, raw, blob_kind=BlobKind.BLOCK)
        ref = self._refs[digest] = BlockRef(where.pack, where.offset, where.stored_length, digest, where.codec)
        return ref

    def _replace(self, number: int, old: BlockRef | None, ref: BlockRef | None) -> None:
        self._release(old)
        self._changed[number] = ref
        if ref is not None:
            self.live[ref.pack] += 1

    def _release(self, ref: BlockRef | None) -> None:
        if ref is None:
            return
        self.replaced.add(ref.hash)
        self.live[ref.pack] -= 1
        if self.live[ref.pack] == 0:
            del self.live[ref.pack]
        elif self.live[ref.pack] < 0:
            assert self._base is not None
            raise CorruptError(
                f"{self._base.title} counts fewer blocks in pack {ref.pack} than there are",
                hint="The base version's record is damaged. Fork an older version.",
            )

    def gather_sparse(self) -> None:
        """With too many packs, uploads some blocks of the packs with the fewest again."""
        excess = len(self.live) - MAX_PACKS
        if self._base is None or excess <= 0:
            return
        fresh = {ref.pack for ref in self._refs.values()}
        sparsest = sorted((live, pack) for pack, live in self.live.items() if pack not in fresh)[:excess]
        order = {pack: position for position, (_, pack) in enumerate(sparsest)}
        lying: list[tuple[int, int]] = []
        for number in range(min(self._base.count, self._delta.page_count)):
            ref = self._base.ref(number) if number not in self._changed else None
            if ref is not None and ref.pack in order:
                lying.append((order[ref.pack], number))
        moved = [number for _, number in sorted(lying)[:REWRITTEN_BLOCKS]]
        self._base.prefetch(moved)
        for number in moved:
            old = self._base.ref(number)
            assert old is not None
            ref = self._refs.get(old.hash) or self._upload(old.hash, self._base.read(number))
            self._replace(number, old, ref)

    def upload_segments(self) -> tuple[SegmentRef, ...]:
        """The segments of the new list: unchanged ones as they are, the others uploaded."""
        count = self._delta.page_count
        changed = {number // SEGMENT_ENTRIES for number in self._changed}
        old = self._base.section.segments if self._base is not None else ()
        if self._base is not None and self._base.count != count:  # the last segment changed its length
            changed.add(min(self._base.count, count) // SEGMENT_ENTRIES)
        segments = []
        for position in range(-(-count // SEGMENT_ENTRIES)):
            if position not in changed and position < len(old):
                segments.append(old[position])
            else:
                segments.append(self._upload_segment(position))
        self.replaced.update(ref.hash for ref in set(old) - set(segments))
        self.replaced -= {*self._refs, *(digest for digest, _ in self._segments)}
        return tuple(segments)

    def _upload_segment(self, position: int) -> SegmentRef:
        first = position * SEGMENT_ENTRIES
        raw = encode_segment(
            [self._entry(n) for n in range(first, min(first + SEGMENT_ENTRIES, self._delta.page_count))]
        )
        digest = self._name(raw)
        where = self._uploader.add(digest, raw, blob_kind=BlobKind.SEGMENT)
        self._segments.append((digest, raw))
        return SegmentRef(where.pack, where.offset, where.stored_length, where.raw_length, where.codec, digest)

    def _entry(self, number: int) -> BlockRef | None:
        if number in self._changed:
            return self._changed[number]
        return self._base.ref(number) if self._base is not None and number < self._base.count else None

    def list_uploaded(self) -> Iterable[tuple[ChunkHash, bytes]]:
        """Hash and bytes of the blocks and segments that this version added, for the cache."""
        yield from self._segments
        for _, raw in self._delta.pages():
            digest = self._name(raw)
            if digest in self._refs:
                yield digest, raw
