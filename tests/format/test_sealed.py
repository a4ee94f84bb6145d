"""Sealing with a key: what opens, what does not, and what two sealed things have in common."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cowfs.base.ids import PackId, StoreId
from cowfs.errors import CorruptError, InvalidInputError, UnsupportedFormatError
from cowfs.format import keys
from cowfs.format.codec import Codec, hash_of
from cowfs.format.manifest import Manifest, version_id
from cowfs.format.pack import BlobKind, PackBuilder, PackKind, parse_pack
from cowfs.format.records import StoreRecord
from cowfs.format.sealed import Sealed, check_value
from cowfs.format.sealing import PLAIN
from tests.format.samples import GOLDEN, MANIFEST, NOISE, PACK_A, PACK_B, SEALED, TEXT, sample_pack

pytestmark = pytest.mark.quick

KEY = bytes(range(32))
OTHER_KEY = Sealed(bytes(32), StoreId(bytes(range(16, 32))))
OTHER_STORE = Sealed(KEY, StoreId(bytes(16)))
HEAD = keys.head("v", 3)


def sealed_blob(data: bytes, offset: int, *, codec: int = 0, raw_length: int = 9, pack: PackId = PACK_A) -> bytes:
    space = bytearray(bytes(12) + data + bytes(16))
    SEALED.pack(pack).seal(memoryview(space), offset, codec, raw_length)
    return bytes(space)


@pytest.mark.parametrize("data", [b"", b"x", NOISE, bytes(2 << 20)])
def test_an_object_opens_as_it_was_sealed(data: bytes) -> None:
    sealed = SEALED.seal_object(HEAD, data)
    assert SEALED.open_object(HEAD, bytes(sealed), what="x") == data
    assert SEALED.seal_object(HEAD, data) == sealed  # a put that is repeated puts the same bytes


@pytest.mark.parametrize(
    ("sealing", "key"),
    [(SEALED, keys.head("v", 4)), (SEALED, keys.head("w", 3)), (OTHER_KEY, HEAD), (OTHER_STORE, HEAD)],
    ids=["another number", "another volume", "another key", "another store"],
)
def test_a_record_opens_in_its_place_only(sealing: Sealed, key: str) -> None:
    with pytest.raises(CorruptError, match="cannot be opened"):
        sealing.open_object(key, bytes(SEALED.seal_object(HEAD, b"record")), what="x")


def test_packs_and_manifests_may_be_copied_to_a_store_with_the_same_key() -> None:
    data = MANIFEST.encode()
    assert OTHER_STORE.open_object(keys.VERSIONS, bytes(SEALED.seal_object(keys.VERSIONS, data)), what="x") == data
    blob = sealed_blob(NOISE, 16)
    assert OTHER_STORE.pack(PACK_A).open(blob, 16, 0, 9, what="x") == NOISE


def test_a_plain_record_is_refused() -> None:
    with pytest.raises(CorruptError, match="not sealed"):
        SEALED.open_object(HEAD, b"{}" * 40, what="x")


@pytest.mark.parametrize(
    ("offset", "codec", "raw_length", "pack"),
    [(17, 0, 9, PACK_A), (16, 1, 9, PACK_A), (16, 0, 10, PACK_A), (16, 0, 9, PACK_B)],
    ids=["offset", "codec", "length", "pack"],
)
def test_a_blob_opens_in_its_place_only(offset: int, codec: int, raw_length: int, pack: PackId) -> None:
    blob = sealed_blob(b"nine bytes", 16)
    assert SEALED.pack(PACK_A).open(blob, 16, 0, 9, what="x") == b"nine bytes"
    with pytest.raises(CorruptError):
        SEALED.pack(pack).open(blob, offset, codec, raw_length, what="x")


@pytest.mark.parametrize("length", range(29))
def test_too_short_a_blob_is_damage(length: int) -> None:
    with pytest.raises(CorruptError):
        SEALED.pack(PACK_A).open(sealed_blob(b"x", 16)[:length], 16, 0, 9, what="x")


def test_only_equal_bytes_at_an_equal_place_share_a_nonce() -> None:
    """A cloned machine may use a pack id twice."""
    sealed = [
        sealed_blob(b"one", 16),
        sealed_blob(b"two", 16),
        sealed_blob(b"one", 17),
        sealed_blob(b"one", 16, codec=1),
        sealed_blob(b"one", 16, raw_length=8),
        sealed_blob(b"one", 16, pack=PACK_B),
    ]
    assert len({blob[:12] for blob in sealed}) == len(sealed)
    assert sealed_blob(b"one", 16) == sealed[0]


def test_names_and_cuts_depend_on_the_key_alone() -> None:
    assert SEALED.name(TEXT) == OTHER_STORE.name(TEXT)
    assert len({SEALED.name(TEXT), OTHER_KEY.name(TEXT), hash_of(TEXT)}) == 3
    assert SEALED.gear == OTHER_STORE.gear != OTHER_KEY.gear
    assert SEALED.gear is not None
    assert len(SEALED.gear) == 2048
    record = StoreRecord.decode((GOLDEN / "store-bound.json").read_bytes(), what="store")
    later = replace(record, created_ns=1)
    assert len({check_value(KEY, record), check_value(bytes(32), record), check_value(KEY, later)}) == 3


def test_a_pack_shows_neither_bytes_nor_hashes() -> None:
    pack = sample_pack(PackKind.DATA, SEALED)
    for secret in (NOISE[:32], hash_of(NOISE), SEALED.name(NOISE), SEALED.name(TEXT)[:8]):
        assert secret not in pack


def test_packs_of_either_kind_of_store_are_refused_by_the_other() -> None:
    with pytest.raises(UnsupportedFormatError, match="format 3"):
        parse_pack(sample_pack(PackKind.DATA, SEALED), what="pack")
    with pytest.raises(UnsupportedFormatError, match="format 2"):
        parse_pack((GOLDEN / "sealed-data.pack").read_bytes(), what="pack")
    with pytest.raises(UnsupportedFormatError, match="format 1"):
        parse_pack(sample_pack(PackKind.DATA), what="pack", blobs=SEALED.pack(PACK_A))
    with pytest.raises(CorruptError, match="cannot be opened"):
        parse_pack(sample_pack(PackKind.DATA, SEALED), what="pack", blobs=OTHER_KEY.pack(PACK_A))


def test_a_sealed_pack_has_the_size_it_said() -> None:
    builder = PackBuilder(PackKind.DATA, SEALED.pack(PACK_A))
    for number in range(5):
        builder.add(SEALED.name(b"%d" % number), b"%d" % number, 1, Codec.RAW, BlobKind.CHUNK)
    size = builder.size_bytes
    assert len(builder.seal()) == size


def test_a_manifest_is_named_by_its_sealed_bytes() -> None:
    sealed = bytes(SEALED.seal_object(keys.VERSIONS, MANIFEST.encode()))
    with pytest.raises(CorruptError, match="does not have the hash"):
        Manifest.decode(sealed, version_id(MANIFEST.encode()), sealing=SEALED)
    with pytest.raises(CorruptError, match="canonical"):
        Manifest.decode(sealed, version_id(sealed), sealing=PLAIN)


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="32 bytes"):
        Sealed(bytes(16), StoreId(bytes(16)))
