"""Keeps the catalogues of a version few: the base's, the new one, and now and then several small
ones merged into one.

Which to merge is `to_merge`'s decision, one merge a commit. A commit therefore reads at most 17
catalogues and writes at most MAX_ENTRIES entries more than its own, and a version names about 16 of
a size.

Merging is a saving: a catalogue that cannot be read stays as it is, and the commit goes on without
it. The list keeps the order of age: a merged catalogue stands where its youngest part stood.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cowfs.errors import CowfsError
from cowfs.format.catalogue import MAX_PER_TIER, Catalogue, merge_catalogues, to_merge
from cowfs.format.manifest import CatalogueRef
from cowfs.format.pack import BlobKind
from cowfs.helpers import Helpers
from cowfs.store.packs import PackReader, PackUploader


def add_catalogues(
    old: Sequence[CatalogueRef], new: Iterable[bytes], *, uploader: PackUploader, reader: PackReader
) -> tuple[CatalogueRef, ...]:
    """The catalogues of the new version, of which `new` list what is new. What is uploaded is
    durable after the uploader's next flush."""
    refs = list(old)
    for position, raw in enumerate(new):
        if position == 0:
            refs = _merged(refs, uploader, reader)
        refs.append(_upload(raw, uploader))
    return tuple(refs)


def _merged(refs: list[CatalogueRef], uploader: PackUploader, reader: PackReader) -> list[CatalogueRef]:
    parts = _load([refs[position] for position in to_merge([ref.chunks for ref in refs])], reader)
    if len(parts) < 2:
        return refs
    merged = _upload(merge_catalogues(list(parts.values())), uploader)
    refs[max(refs.index(ref) for ref in parts)] = merged
    return [ref for ref in refs if ref not in parts]


def _load(refs: Sequence[CatalogueRef], reader: PackReader) -> dict[CatalogueRef, Catalogue]:
    """Those that can be read."""

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
