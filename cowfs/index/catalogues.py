"""Keeps the number of a version's catalogues small: the base's, the new one, and from time to time
several small ones merged into one.

`to_merge` decides which to merge, one merge per commit. So a commit reads at most 17 catalogues and
writes at most MAX_ENTRIES entries more than its own, and a version names about 16 of each size.

Merging is optional: a catalogue that cannot be read stays as it is, and the commit continues
without it. The list is ordered by age: a merged catalogue takes the place of its youngest part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cowfs.base.errors import CowfsError
from cowfs.base.thread_pool import Helpers
from cowfs.format.catalogue import MAX_PER_TIER, Catalogue, merge_catalogues, to_merge
from cowfs.format.manifest import CatalogueRef
from cowfs.format.pack import BlobKind
from cowfs.store.packs import PackReader, PackUploader


def add_catalogues(
    old: Sequence[CatalogueRef], new: Iterable[bytes], *, uploader: PackUploader, reader: PackReader
) -> tuple[CatalogueRef, ...]:
    """The catalogues of the new version; `new` list its new chunks. Uploaded catalogues are durable
    after the uploader's next flush."""
    refs = list(old)
    for position, raw in enumerate(new):
        if position == 0:
            refs = _merge_some(refs, uploader, reader)
        refs.append(_upload(raw, uploader))
    return tuple(refs)


def _merge_some(refs: list[CatalogueRef], uploader: PackUploader, reader: PackReader) -> list[CatalogueRef]:
    parts = _load([refs[position] for position in to_merge([ref.chunks for ref in refs])], reader)
    if len(parts) < 2:
        return refs
    merged = _upload(merge_catalogues(list(parts.values())), uploader)
    refs[max(refs.index(ref) for ref in parts)] = merged
    return [ref for ref in refs if ref not in parts]


def _load(refs: Sequence[CatalogueRef], reader: PackReader) -> dict[CatalogueRef, Catalogue]:
    """The catalogues that can be read."""

    def load(ref: CatalogueRef) -> Catalogue | None:
        try:
            raw = reader.read(ref.pack, ref.offset, ref.stored_length, ref.raw_length, ref.codec, ref.hash)
            return Catalogue.decode(raw, what=f"catalogue in pack {ref.pack}")
        except CowfsError:
            return None

    with Helpers(MAX_PER_TIER + 1, name="catalogues") as threads:
        found = zip(refs, threads.map(load, refs), strict=True)
        return {ref: part for ref, part in found if part is not None}


def _upload(raw: bytes, uploader: PackUploader) -> CatalogueRef:
    digest = uploader.sealing.name(raw)
    where = uploader.add(digest, raw, blob_kind=BlobKind.CATALOGUE)
    chunks = len(Catalogue.decode(raw, what="a new catalogue"))
    return CatalogueRef(
        where.pack, where.offset, where.stored_length, where.raw_length, where.codec, digest, chunks=chunks
    )
