"""Keeps the catalogues of a version few: the base's, the new one, and now and then several small ones merged into one.

Catalogues fall into tiers by the number of their chunks (up to 4,096, up to 65,536, larger). When a tier has more than
16, its smallest are merged into one catalogue, one merge a commit. A commit therefore reads at most 17 catalogues and writes
at most MAX_ENTRIES entries more than its own, and a version names about 16 a tier. Those over half of MAX_ENTRIES stay as they are.

Merging is a saving: a catalogue that cannot be read stays as it is, and the commit goes on without it. The list keeps the
order of age: a merged catalogue stands where its youngest part stood.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, chain, islice

from cowfs.errors import CowfsError
from cowfs.format.catalogue import (
    MAX_ENTRIES,
    Catalogue,
    CatalogueEntry,
    CataloguePack,
    encode_catalogue,
    merge_catalogues,
)
from cowfs.format.manifest import CatalogueRef
from cowfs.format.pack import BlobKind
from cowfs.index.cache import hash_block
from cowfs.store.packs import PackReader, PackUploader

TIER_BOUNDS = (1 << 12, 1 << 16)
MAX_PER_TIER = 16
LARGEST_MERGED = MAX_ENTRIES // 2


def add_catalogue(
    old: Sequence[CatalogueRef],
    packs: Sequence[CataloguePack],
    entries: Iterable[CatalogueEntry],
    *,
    uploader: PackUploader,
    reader: PackReader,
) -> tuple[tuple[CatalogueRef, ...], list[bytes]]:
    """The catalogues of the new version, and the bytes of those that list what is new. What is uploaded is durable after the
    uploader's next flush. entries are gone through once, and never all of them in memory as objects."""
    refs = list(old)
    added: list[bytes] = []
    for is_first, batch in _batches(entries):
        if is_first:
            refs = _merged(refs, uploader, reader)
        added.append(_encoded(packs, batch))
        refs.append(_upload(added[-1], uploader))
    return tuple(refs), added


def _batches(entries: Iterable[CatalogueEntry]) -> Iterator[tuple[bool, Iterator[CatalogueEntry]]]:
    """Runs of MAX_ENTRIES, each to be gone through before the next is asked for, and whether it is the first."""
    rest = iter(entries)
    is_first = True
    while (first := next(rest, None)) is not None:
        yield is_first, chain((first,), islice(rest, MAX_ENTRIES - 1))
        is_first = False


def _merged(refs: list[CatalogueRef], uploader: PackUploader, reader: PackReader) -> list[CatalogueRef]:
    parts = _load(plan_merge(refs), reader)
    if len(parts) < 2:
        return refs
    merged = _upload(merge_catalogues(list(parts.values())), uploader)
    refs[max(refs.index(ref) for ref in parts)] = merged
    return [ref for ref in refs if ref not in parts]


def _encoded(packs: Sequence[CataloguePack], entries: Iterable[CatalogueEntry]) -> bytes:
    """With only those packs that the entries name."""
    named: list[CataloguePack] = []
    numbers: dict[int, int] = {}

    def counted() -> Iterator[CatalogueEntry]:
        for entry in entries:
            if (number := numbers.get(entry.pack)) is None:
                number = numbers[entry.pack] = len(named)
                named.append(packs[entry.pack])
            yield CatalogueEntry(entry.prefix, number, entry.offset)

    return encode_catalogue(named, counted())


def plan_merge(refs: Sequence[CatalogueRef]) -> list[CatalogueRef]:
    """The catalogues to be merged into one: the smallest of the first tier that has too many; none: empty."""
    tiers: list[list[CatalogueRef]] = [[] for _ in range(len(TIER_BOUNDS) + 1)]
    for ref in refs:
        if ref.chunks <= LARGEST_MERGED:
            tiers[bisect_left(TIER_BOUNDS, ref.chunks)].append(ref)
    for tier in tiers:
        if len(tier) > MAX_PER_TIER:
            smallest = sorted(tier, key=lambda ref: ref.chunks)[: MAX_PER_TIER + 1]
            room = accumulate(ref.chunks for ref in smallest)
            return [ref for ref, total in zip(smallest, room, strict=True) if total <= MAX_ENTRIES]
    return []


def _load(refs: Sequence[CatalogueRef], reader: PackReader) -> dict[CatalogueRef, Catalogue]:
    """Those that can be read."""

    def load(ref: CatalogueRef) -> Catalogue | None:
        try:
            raw = reader.read(ref.pack, ref.offset, ref.stored_length, ref.raw_length, ref.codec, ref.hash)
            return Catalogue.decode(raw, what=f"catalogue in pack {ref.pack}")
        except CowfsError:
            return None

    with ThreadPoolExecutor(MAX_PER_TIER + 1, thread_name_prefix="catalogues") as threads:
        found = zip(refs, threads.map(load, refs), strict=True)
        return {ref: part for ref, part in found if part is not None}


def _upload(raw: bytes, uploader: PackUploader) -> CatalogueRef:
    digest = hash_block(raw)
    where = uploader.add(digest, raw, blob_kind=BlobKind.CATALOGUE)
    chunks = len(Catalogue.decode(raw, what="a new catalogue"))
    return CatalogueRef(
        where.pack, where.offset, where.stored_length, where.raw_length, where.codec, digest, chunks=chunks
    )
