"""Catalogues: every chunk is found, others are not, whatever the bytes hold."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowfs.base.ids import PackId
from cowfs.errors import CowfsError, InvalidInputError, UnsupportedFormatError
from cowfs.format.catalogue import (
    MAX_CANDIDATES,
    MAX_ENTRIES,
    Candidate,
    Catalogue,
    CatalogueEntry,
    CataloguePack,
    encode_catalogue,
    merge_catalogues,
    to_merge,
)
from cowfs.format.codec import hash_of
from tests.format.catalogues import catalogue_entries

pytestmark = pytest.mark.quick

u32 = st.integers(0, (1 << 32) - 1)
PACKS = [CataloguePack(PackId(bytes([n]) * 16), 1000 + n, 48 * n) for n in range(3)]
# Few prefixes, so that equal ones meet.
prefixes = st.integers(0, 9).map(lambda n: bytes([n]) * 8) | st.binary(min_size=8, max_size=8)
entry_sets = st.sets(st.builds(CatalogueEntry, prefix=prefixes, pack=st.integers(0, 2), offset=u32), max_size=60)


@given(entry_sets)
def test_round_trip_and_look_up(entries: set[CatalogueEntry]) -> None:
    data = encode_catalogue(PACKS, catalogue_entries(entries))
    catalogue = Catalogue.decode(data, what="x")
    assert list(catalogue.packs) == PACKS
    assert set(catalogue.entries()) == entries
    assert len(catalogue) == len(entries)
    assert encode_catalogue(catalogue.packs, catalogue_entries(catalogue.entries())) == data
    for prefix in {entry.prefix for entry in entries} | {bytes(8), b"\xff" * 8, b"12345678"}:
        expected = {Candidate(PACKS[e.pack], e.offset) for e in entries if e.prefix == prefix}
        found = catalogue.lookup(prefix + b"the rest of the hash")
        assert len(found) == min(len(expected), MAX_CANDIDATES)
        assert set(found) <= expected


@given(st.lists(entry_sets, max_size=4))
def test_merging_keeps_every_entry_and_the_packs_they_name(parts: list[set[CatalogueEntry]]) -> None:
    orders = [PACKS, PACKS[::-1], PACKS[1:] + PACKS[:1], PACKS]
    catalogues = [
        Catalogue.decode(encode_catalogue(packs, catalogue_entries(part)), what="x")
        for packs, part in zip(orders, parts, strict=False)
    ]
    merged = Catalogue.decode(merge_catalogues(catalogues), what="x")
    named = [(e.prefix, c.packs[e.pack], e.offset) for c in catalogues for e in c.entries()]
    assert {(e.prefix, merged.packs[e.pack], e.offset) for e in merged.entries()} == set(named)
    assert len(merged) == len(set(named))
    assert set(merged.packs) == {pack for _, pack, _ in named}
    assert len(merged.packs) == len(set(merged.packs))
    assert [e.prefix for e in merged.entries()] == sorted(e.prefix for e in merged.entries())


@given(st.binary(max_size=300), st.booleans(), st.binary(max_size=9))
def test_arbitrary_bytes_raise_only_our_errors(data: bytes, with_magic: bool, prefix: bytes) -> None:
    with contextlib.suppress(CowfsError):
        catalogue = Catalogue.decode(b"cowfsct\0\0\1\0\0\0\0\0\1" + data if with_magic else data, what="x")
        for candidate in catalogue.lookup(prefix):
            assert candidate.pack in catalogue.packs
        list(catalogue.entries())


def test_many_chunks() -> None:
    hashes = [hash_of(n.to_bytes(4, "big")) for n in range(20_000)]
    entries = [CatalogueEntry(h[:8], n % 3, n) for n, h in enumerate(hashes)]
    catalogue = Catalogue.decode(encode_catalogue(PACKS, catalogue_entries(entries)), what="x")
    for n, h in enumerate(hashes):
        assert catalogue.lookup(h) == [Candidate(PACKS[n % 3], n)]
    assert all(not catalogue.lookup(hash_of(n.to_bytes(5, "big"))) for n in range(1000))


def test_many_equal_prefixes_are_bounded() -> None:
    entries = [CatalogueEntry(bytes(8), 0, n) for n in range(1000)]
    assert (
        len(Catalogue.decode(encode_catalogue(PACKS, catalogue_entries(entries)), what="x").lookup(bytes(8)))
        == MAX_CANDIDATES
    )


def test_merges_are_bounded() -> None:
    assert to_merge([1] * 16) == []
    assert to_merge([1] * 17) == list(range(17))
    assert to_merge([*[1] * 16, 5000]) == []
    assert to_merge([300_000] * 40) == []
    assert len(to_merge([200_000] * 40)) == 2, "as many as one may hold"
    assert len(to_merge([60_000] * 40)) == 8


def test_an_empty_catalogue() -> None:
    catalogue = Catalogue.decode(encode_catalogue([], b""), what="x")
    assert len(catalogue) == 0
    assert catalogue.lookup(bytes(32)) == []


def test_an_unknown_format_is_named() -> None:
    data = bytearray(encode_catalogue([], b""))
    data[9] = 4
    with pytest.raises(UnsupportedFormatError, match="format 4"):
        Catalogue.decode(bytes(data), what="x")


def test_entries_that_are_not_whole_are_not_written() -> None:
    with pytest.raises(InvalidInputError):
        encode_catalogue(PACKS, bytes(17))
    with pytest.raises(InvalidInputError):
        encode_catalogue(PACKS, bytes(16) * (MAX_ENTRIES + 1))
