"""Manifests: the hash decides, bounds hold, features nobody knows are refused."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowfs.base.ids import ChunkHash, PackId, VersionId
from cowfs.errors import CorruptError, CowfsError, InvalidInputError, UnsupportedFormatError
from cowfs.format import canonical
from cowfs.format.codec import MAX_RAW_BYTES
from cowfs.format.manifest import CatalogueRef, IndexSection, Manifest, PackUse, SegmentRef, Stats, version_id
from tests.format.samples import MANIFEST

pytestmark = pytest.mark.quick

number = st.integers(0, (1 << 63) - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
texts = st.dictionaries(text, text, max_size=3)
packs = st.binary(min_size=16, max_size=16).map(PackId)
lengths = st.integers(1, MAX_RAW_BYTES)
blob: dict[str, Any] = {
    "pack": packs,
    "offset": number,
    "stored_length": lengths,
    "raw_length": st.just(MAX_RAW_BYTES),
    "codec": st.just(1),
    "hash": st.binary(min_size=32, max_size=32).map(ChunkHash),
}
catalogues = st.lists(st.builds(CatalogueRef, **blob, chunks=number), max_size=3).map(tuple)
sections = st.lists(st.builds(SegmentRef, **blob), max_size=3).flatmap(
    lambda segments: st.builds(
        IndexSection,
        pages=st.integers(max(0, (len(segments) - 1) * 256 + 1), len(segments) * 256) if segments else st.just(0),
        segments=st.just(tuple(segments)),
        packs=st.lists(st.builds(PackUse, packs, st.integers(0, 1 << 32)), max_size=3).map(tuple),
        catalogues=catalogues,
        page_size=st.sampled_from([4096, 16384, 65536]),
    )
)
manifests = st.builds(
    Manifest,
    volume=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True),
    parents=st.lists(st.binary(min_size=32, max_size=32).map(VersionId), max_size=3).map(tuple),
    index=sections,
    stats=st.builds(Stats, number, number, number, number, number),
    created_ns=number,
    message=text,
    author=text,
    labels=texts,
    produced_by=texts,
    extra=st.dictionaries(text.map(lambda t: "x-" + t), text, max_size=2),
)


@given(manifests)
def test_round_trip(manifest: Manifest) -> None:
    data = manifest.encode()
    found = Manifest.decode(data, version_id(data))
    assert found == manifest
    assert found.encode() == data


def test_another_hash_is_refused_before_anything_is_read() -> None:
    with pytest.raises(CorruptError, match="manifest of v1"):
        Manifest.decode(MANIFEST.encode(), version_id(b"another"), what="manifest of v1")


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    for expected in (None, version_id(data)):
        with pytest.raises(CorruptError, match="manifest"):
            Manifest.decode(data, expected)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [leaf for key, item in below for leaf in leaves(item, (*path, key))]


def altered(value: Any, path: tuple[Any, ...], new: object) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = altered(value[path[0]], path[1:], new)
    return copy


@pytest.mark.parametrize("new", [None, True, -1, 0, 7, 1 << 63, "", "zz", [], [1], [[]], {}, {"a": 1}])
def test_nonsense_anywhere_raises_only_our_errors(new: object) -> None:
    whole = canonical.decode(MANIFEST.encode(), what="x")
    for path in leaves(whole):
        data = canonical.encode(altered(whole, path, new))
        with contextlib.suppress(CowfsError):
            assert Manifest.decode(data, None).encode() == data


def test_missing_fields_are_named() -> None:
    whole = canonical.decode(MANIFEST.encode(), what="x")
    for key in whole:
        data = canonical.encode({k: v for k, v in whole.items() if k != key})
        with pytest.raises(CorruptError, match=key):
            Manifest.decode(data, None)


def test_a_newer_format_is_named() -> None:
    data = canonical.encode({"format": 12, "record": "manifest"})
    with pytest.raises(UnsupportedFormatError, match="format 12"):
        Manifest.decode(data, version_id(data))


def test_features_nobody_knows_are_refused_by_name() -> None:
    data = dataclasses.replace(MANIFEST, requires=("of-tomorrow",)).encode()
    with pytest.raises(UnsupportedFormatError, match="of-tomorrow"):
        Manifest.decode(data, version_id(data))


def test_unknown_optional_fields_are_ignored_and_kept() -> None:
    data = dataclasses.replace(MANIFEST, extra={"mood": "good"}).encode()
    assert Manifest.decode(data, None).extra == {"mood": "good"}


@pytest.mark.parametrize("change", [{"pages": 513}, {"pages": 256}, {"page_size": 5000}, {"page_size": 1 << 17}])
def test_sections_that_contradict_themselves_cannot_be_made(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        dataclasses.replace(MANIFEST.index, **change)


@pytest.mark.parametrize("change", [{"message": "\ud800"}, {"author": "\udcff"}, {"volume": "../x"}])
def test_what_cannot_be_written_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        dataclasses.replace(MANIFEST, **change).encode()
