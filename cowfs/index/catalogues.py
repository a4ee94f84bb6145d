"""Keeps the catalogues of a version few: the base's, the new one, and now and then several small
ones merged into one.

Which to merge is `to_merge`'s decision, one merge a commit. A commit therefore reads at most 17
catalogues and writes at most MAX_ENTRIES entries more than its own, and a version names about 16 of
a size.

Merging is a saving: a catalogue that cannot be read stays as it is, and the commit goes on without
it. The list keeps the order of age: a merged catalogue stands where its youngest part stood.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice

from cowfs.errors import CowfsError
from cowfs.format.catalogue import (
    MAX_ENTRIES,
    MAX_PER_TIER,
    Catalogue,
    CatalogueEntry,
    CataloguePack,
    encode_catalogue,
    merge_catalogues,
    to_merge,
)
from cowfs.format.manifest import CatalogueRef
from cowfs.format.pack import BlobKind
from cowfs.store.packs import PackReader, PackUploader


def add_catalogue(
    old: Sequence[CatalogueRef],
    packs: Sequence[CataloguePack],
    entries: Iterable[CatalogueEntry],
    *,
    uploader: PackUploader,
    reader: PackReader,
) -> tuple[tuple[CatalogueRef, ...], list[bytes]]:
    """The catalogues of the new version, and the bytes of those that list what is new. What is
    uploaded is durable after the uploader's next flush. entries are gone through once, and never
    all of them in memory as objects."""
    refs = list(old)
    added: list[bytes] = []
    for is_first, batch in _batches(entries):
        if is_first:
            refs = _merged(refs, uploader, reader)
        added.append(_encoded(packs, batch))
        refs.append(_upload(added[-1], uploader))
    return tuple(refs), added


def _batches(entries: Iterable[CatalogueEntry]) -> Iterator[tuple[bool, Iterator[CatalogueEntry]]]:
    """Runs of MAX_ENTRIES, each to be gone through before the next is asked for, and whether it is
    the first."""
    rest = iter(entries)
    is_first = True
    while (first := next(rest, None)) is not None:
        yield is_first, chain((first,), islice(rest, MAX_ENTRIES - 1))
        is_first = False


def _merged(refs: list[CatalogueRef], uploader: PackUploader, reader: PackReader) -> list[CatalogueRef]:
    parts = _load([refs[position] for position in to_merge([ref.chunks for ref in refs])], reader)
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
    digest = uploader.sealing.name(raw)
    where = uploader.add(digest, raw, blob_kind=BlobKind.CATALOGUE)
    chunks = len(Catalogue.decode(raw, what="a new catalogue"))
    return CatalogueRef(
        where.pack, where.offset, where.stored_length, where.raw_length, where.codec, digest, chunks=chunks
    )
