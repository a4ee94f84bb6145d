"""One fixed value of every format, and the bytes each must have for good: what the golden files
hold.

`python -m tests.format.samples` writes files that are missing; it never replaces one, because
stores in the world hold such bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cowfs.base.ids import ChunkHash, PackId, StoreId, VersionId, WriteId
from cowfs.format import keys
from cowfs.format.blocklist import BlockRef, decode_segment, encode_segment
from cowfs.format.catalogue import Catalogue, CatalogueEntry, CataloguePack, encode_catalogue
from cowfs.format.codec import Codec, decompress, hash_of
from cowfs.format.key_slots import Slot
from cowfs.format.manifest import CatalogueRef, IndexSection, Manifest, PackUse, SegmentRef, Stats, version_id
from cowfs.format.pack import BlobKind, PackBuilder, PackEntry, PackKind, parse_pack
from cowfs.format.records import (
    Cipher,
    CondemnedRecord,
    DoneRecord,
    HeadRecord,
    HeartbeatRecord,
    Holder,
    KeysRecord,
    LeaseRecord,
    MetaRecord,
    MovedBlob,
    MovedRecord,
    PinRecord,
    ProbeResult,
    PrunedRecord,
    PurgedRecord,
    Record,
    SeenRecord,
    SeenVolume,
    SparedRecord,
    StoreRecord,
    TagRecord,
)
from cowfs.format.sealed import Sealed
from cowfs.format.sealing import PLAIN, Sealing
from tests.format.catalogues import catalogue_entries

GOLDEN = Path(__file__).parent / "golden"

CREATED_NS = 1_767_225_600_000_000_000
PACK_A, PACK_B, PACK_C = (PackId(bytes([n]) * 16) for n in (0xA1, 0xB2, 0xC3))
VERSION = VersionId(bytes(range(32)))
WRITE = WriteId(bytes(range(16)))
TEXT = b"a chunk of text that says the same thing again and again, " * 8
# The frame as one release of zstd made it: another release may compress otherwise, and must still
# read this.
TEXT_ZSTD = (GOLDEN / "text.zst").read_bytes()
NOISE = bytes((n * n * 31 + n * 7) % 251 for n in range(100))

HOLDER = Holder(
    user="ada",
    host="node-7",
    mount_path="/home/ada/cowfs/büro",
    pid=4242,
    start_time=987654,
    machine_id="f00dfeedf00dfeedf00dfeedf00dfeed",
    boot_id="0a1b2c3d-0000-4000-8000-0123456789ab",
)

BLOCKS: list[BlockRef | None] = [
    BlockRef(PACK_A, 16, 900, hash_of(b"page 0"), Codec.ZSTD),
    None,
    BlockRef(PACK_B, 123456, 16384, hash_of(b"page 2"), Codec.RAW),
    BlockRef(PACK_A, 916, 100, hash_of(b"page 3"), Codec.ZSTD),
]

CATALOGUE_PACKS = (CataloguePack(PACK_A, 189, 96), CataloguePack(PACK_B, 4096, 48))
CATALOGUE_ENTRIES = tuple(
    sorted(
        (
            CatalogueEntry(hash_of(TEXT)[:8], 0, 16),
            CatalogueEntry(hash_of(NOISE)[:8], 0, 89),
            CatalogueEntry(hash_of(b"elsewhere")[:8], 1, 16),
        ),
        key=lambda entry: entry.prefix,
    )
)

MANIFEST = Manifest(
    volume="my-dataset",
    parents=(VERSION,),
    index=IndexSection(
        pages=300,
        segments=(
            SegmentRef(PACK_C, 16, 11_000, 11_324, Codec.ZSTD, hash_of(b"segment 0")),
            SegmentRef(PACK_C, 11_016, 1_980, 1_980, Codec.RAW, hash_of(b"segment 1")),
        ),
        packs=(PackUse(PACK_A, 298), PackUse(PACK_C, 2)),
        catalogues=(CatalogueRef(PACK_C, 12_996, 112, 112, Codec.RAW, hash_of(b"catalogue"), 3),),
    ),
    stats=Stats(files=1000, directories=12, bytes=123_456_789, added_bytes=4096, stored_bytes_added=23_000),
    created_ns=CREATED_NS,
    message="first results: ✓",
    author="Ada <ada@example.org>",
    labels={"stage": "clean"},
    produced_by={"system": "airflow", "run": "2026-01-01", "action": "build", "output": "table", "host": "node-7"},
)

# Of the store key 00 01 … 1f: for the passphrase "correct horse battery staple", and the key 64 65
# … 83.
SLOTS = (
    Slot(
        "0a1b2c3d",
        "passphrase",
        "ada",
        CREATED_NS,
        bytes(range(16)),
        passes=3,
        lanes=4,
        memory_kib=65536,
        wrapped=bytes.fromhex(
            "158c143082596d5b2da54a98098a142ca25e4855f87a3804d5f34941e29de6c379f91a18b9a853f3905b18195265ee8c"
        ),
        format=1,
    ),
    Slot(
        "4e5f6071",
        "key",
        "backup job",
        CREATED_NS,
        bytes(range(16, 32)),
        passes=0,
        lanes=0,
        memory_kib=0,
        wrapped=bytes.fromhex(
            "8e2fbe14fdc585d04ff3b0fcb33a55276834a1bbc978bef06885484489fe7d3470a122624562f4aca40c89c268648903"
        ),
        format=1,
    ),
)
SIGNED_SLOTS = tuple(
    replace(slot, format=2, wrapped=bytes.fromhex(wrapped))
    for slot, wrapped in zip(
        SLOTS,
        (
            "a11a1ded3edcae065796ca49f2f3c5fb6a969a4317ef706c1aa8bb548dd64a03dda59f7055df2d124361842f7b8d70b0b6c66d010a26336ca60d270fb53688b4fbaaab7525e324c1c3e306d9ccd92343",
            "a971a8fd6a354dc7a4c313952dc52f931d865b4d780b0baac5b7a9cf67394616b12fb2e21cdea7af8fd9f018b9d198b8fd9180afd41c35f54d59254460308d18d7a49b0b6e914e1a6d2b45553040812e",
        ),
        strict=True,
    )
)

RECORDS: dict[str, Record] = {
    "store": StoreRecord(
        store_id=StoreId(bytes(range(16, 32))),
        created_ns=CREATED_NS,
        write_id=WRITE,
        probe=ProbeResult(True, 8, 5, 1, True, True, CREATED_NS),
    ),
    "store-encrypted": StoreRecord(
        store_id=StoreId(bytes(range(16, 32))),
        created_ns=CREATED_NS,
        write_id=WRITE,
        probe=ProbeResult(True, 8, 5, 1, True, True, CREATED_NS),
        cipher=Cipher("aes-256-gcm", bytes.fromhex("cdd14300251857a63276a01e7f4daaa8")),
    ),
    "store-bound": StoreRecord(
        store_id=StoreId(bytes(range(16, 32))),
        created_ns=CREATED_NS,
        write_id=WRITE,
        probe=ProbeResult(True, 8, 5, 1, True, True, CREATED_NS),
        cipher=Cipher("aes-256-gcm", bytes.fromhex("3517048baf09fef3d44348c775939dc3")),
    ),
    "keys": KeysRecord(SLOTS, CREATED_NS, WRITE),
    "keys-signed": KeysRecord(
        SIGNED_SLOTS,
        CREATED_NS,
        WRITE,
        bytes.fromhex("9324800084b46b16282dc385f2f8e5cf5c8b587c691adc6c29cdca372387140d"),
    ),
    "head-create": HeadRecord("create", None, 0, CREATED_NS, WRITE),
    "head-commit": HeadRecord("commit", VERSION, 3, CREATED_NS, WRITE, HOLDER),
    "head-prev": HeadRecord("commit", VERSION, 3, CREATED_NS, WRITE, prev=bytes(range(32, 64)).hex()),
    "head-fork": HeadRecord(
        "fork", VERSION, 0, CREATED_NS, WRITE, source=f"cowfs+s3://bucket/prefix/-/base@{VERSION.hex()}"
    ),
    "head-fence": HeadRecord("fence", VERSION, 4, CREATED_NS, WRITE, HOLDER),
    "head-delete": HeadRecord("delete", VERSION, 4, CREATED_NS, WRITE),
    "head-undelete": HeadRecord("undelete", VERSION, 4, CREATED_NS, WRITE),
    "head-void": HeadRecord("void", None, 0, CREATED_NS, WRITE),
    "tag": TagRecord(VERSION, CREATED_NS, WRITE, HOLDER),
    "tag-removed": TagRecord(None, CREATED_NS, WRITE),
    "pruned": PrunedRecord(((2, 9), (12, 12)), CREATED_NS, WRITE, HOLDER),
    "meta": MetaRecord(
        owner="ada@node-7",
        created_ns=CREATED_NS,
        write_id=WRITE,
        settings={"description": "a set of things", "keep": 7, "compress": True},
        expires_ns=CREATED_NS + 86_400_000_000_000,
        quota_bytes=1 << 40,
    ),
    "lease": LeaseRecord(3, HOLDER, CREATED_NS, WRITE),
    "heartbeat": HeartbeatRecord(epoch=3, beat=17, at_ns=CREATED_NS, released=False),
    "pin": PinRecord(  # of a cowfs that replaced its pins
        "my-dataset", 12, 2, CREATED_NS, None, WRITE, "ada@node-7", extra={"expires_ns": CREATED_NS + 3_600_000_000_000}
    ),
    "pin-writer": PinRecord("my-dataset", 12, 2, CREATED_NS, 604_800, WRITE, "ada@node-7", packs=(PACK_A,)),
    "pin-lease": PinRecord(
        "my-dataset", 12, 0, CREATED_NS, 604_800, WRITE, "ada@node-7", lease=WriteId(bytes(range(16, 32)))
    ),
    "pin-reader": PinRecord("my-dataset", 12, 2, CREATED_NS, 604_800, WRITE, "ada@node-7", "reader", version=VERSION),
    "pin-dead": PinRecord("my-dataset", 12, 2, CREATED_NS, None, WRITE, "collector@node-9", "dead"),
    "pin-hold": PinRecord("my-dataset", 12, 2, CREATED_NS, None, WRITE, "ada@node-7", "hold", (PACK_A, PACK_B)),
    "moved": MovedRecord(
        pack=PACK_A,
        created_ns=CREATED_NS,
        write_id=WRITE,
        blobs=(MovedBlob(16, PACK_B, 16, 73), MovedBlob(89, PACK_C, 5000, 100)),
    ),
    "purged": PurgedRecord(
        CREATED_NS, WRITE, "ada@node-7", (ChunkHash(bytes(range(32, 64))),), (PACK_A, PACK_B), (VERSION,)
    ),
    "condemned": CondemnedRecord(2, (PACK_A, PACK_B), CREATED_NS, WRITE),
    "condemned-sharded": CondemnedRecord(2, (), CREATED_NS, WRITE, shards=40),
    "condemned-moved": CondemnedRecord(2, (PACK_A, PACK_B), CREATED_NS, WRITE, moved=(PACK_B,)),
    "condemned-versions": CondemnedRecord(2, (), CREATED_NS, WRITE, versions=(VERSION,)),
    "done": DoneRecord(2, 7_200, 1 << 40, 3_000_000, 0, 1, CREATED_NS, WRITE),
    "seen": SeenRecord(2, (SeenVolume("my-dataset", 12, 2, 3, 1), SeenVolume("other", 1, 0, 0, 0)), WRITE),
    "spared": SparedRecord(2, (PACK_A,), CREATED_NS, WRITE, versions=(VERSION,), moved=(PACK_A,)),
}


class SmallSteps(Sealed):
    """Rounds sizes up by less, so that examples are short. A reader does not care."""

    object_step_bytes = 64
    pack_step_bytes = 64
    step_entries = 4


SEALED = Sealed(bytes(range(32)), StoreId(bytes(range(16, 32))))
SMALL_STEPS = SmallSteps(bytes(range(32)), StoreId(bytes(range(16, 32))))


def sample_pack(kind: PackKind, sealing: Sealing = PLAIN) -> bytes:
    """Pack A, of two blobs: one compressed, one raw."""
    first, second = (BlobKind.CHUNK, BlobKind.CHUNK) if kind == PackKind.DATA else (BlobKind.BLOCK, BlobKind.SEGMENT)
    builder = PackBuilder(kind, sealing.pack(PACK_A))
    builder.add(sealing.name(TEXT), TEXT_ZSTD, len(TEXT), Codec.ZSTD, first)
    builder.add(sealing.name(NOISE), NOISE, len(NOISE), Codec.RAW, second)
    return bytes(builder.seal())


@dataclass(frozen=True)
class Sample:
    """file: name under golden/. encode gives its bytes anew; decode(bytes) must equal expected.

    verify reads altered bytes the way cowfs reads such an object: by its own check, or by the hash
    that names it.
    """

    file: str
    encode: Callable[[], bytes]
    decode: Callable[[bytes], Any]
    expected: Any
    verify: Callable[[bytes], Any]


def _record_sample(name: str, record: Record) -> Sample:
    def decode(data: bytes) -> Record:
        return type(record).decode(data, what=name)

    return Sample(f"{name}.json", record.encode, decode, record, verify=decode)


def _pack_sample(kind: PackKind) -> Sample:
    return Sample(f"{kind.name.lower()}.pack", lambda: sample_pack(kind), decode_pack, _pack_entries(kind), read_pack)


def decode_pack(data: bytes, sealing: Sealing = PLAIN) -> tuple[PackKind, list[PackEntry]]:
    kind, entries = parse_pack(data, what="pack", blobs=sealing.pack(PACK_A))
    return kind, list(entries)


def read_pack(data: bytes, sealing: Sealing = PLAIN) -> Any:
    """Everything a pack holds, each blob verified."""
    kind, entries = decode_pack(data, sealing)
    blobs = []
    for e in entries:
        what, sealed = f"blob at {e.offset}", data[e.offset : e.offset + e.stored_length]
        stored = sealing.pack(PACK_A).open(sealed, e.offset, e.codec, e.raw_length, what=what)
        blobs.append(decompress(stored, e.codec, e.raw_length, e.hash, what, name=sealing.name))
    return kind, entries, blobs


def _pack_entries(kind: PackKind) -> Any:
    first, second = (BlobKind.CHUNK, BlobKind.CHUNK) if kind == PackKind.DATA else (BlobKind.BLOCK, BlobKind.SEGMENT)
    return kind, [
        PackEntry(hash_of(TEXT), 16, 73, 464, Codec.ZSTD, first),
        PackEntry(hash_of(NOISE), 89, 100, 100, Codec.RAW, second),
    ]


def _sealed_pack_sample(file: str, encode: Callable[[], bytes]) -> Sample:
    expected = (
        PackKind.DATA,
        [
            PackEntry(SEALED.name(TEXT), 16, 73 + 28, 464, Codec.ZSTD, BlobKind.CHUNK),
            PackEntry(SEALED.name(NOISE), 117, 100 + 28, 100, Codec.RAW, BlobKind.CHUNK),
        ],
    )
    return Sample(
        file,
        encode,
        lambda data: decode_pack(data, SEALED),
        expected,
        verify=lambda data: read_pack(data, SEALED),
    )


def _sealed_object_sample(file: str, key: str, data: bytes, encode: Callable[[], bytes]) -> Sample:
    def decode(sealed: bytes) -> bytes:
        return SEALED.open_object(key, sealed, what=file)

    return Sample(file, encode, decode, data, verify=decode)


def _as_it_was(file: str) -> Callable[[], bytes]:
    """Of a format that is read, and not written any more."""
    return (GOLDEN / file).read_bytes


def decode_catalogue(data: bytes) -> Any:
    catalogue = Catalogue.decode(data, what="catalogue")
    return catalogue.packs, tuple(catalogue.entries())


def _blob_sample(file: str, encode: Callable[[], bytes], decode: Callable[[bytes], Any], expected: Any) -> Sample:
    named, length = hash_of(encode()), len(encode())

    def verify(data: bytes) -> Any:
        return decode(decompress(data, Codec.RAW, length, named, file))

    return Sample(file, encode, decode, expected, verify)


SAMPLES: list[Sample] = [
    *(_record_sample(name, record) for name, record in RECORDS.items()),
    Sample(
        "manifest.json",
        MANIFEST.encode,
        lambda data: Manifest.decode(data, None),
        MANIFEST,
        verify=lambda data: Manifest.decode(data, version_id(MANIFEST.encode())),
    ),
    _blob_sample(
        "segment.bin", lambda: encode_segment(BLOCKS), lambda data: decode_segment(data, what="segment"), BLOCKS
    ),
    _blob_sample(
        "catalogue.bin",
        lambda: encode_catalogue(CATALOGUE_PACKS, catalogue_entries(CATALOGUE_ENTRIES)),
        decode_catalogue,
        (CATALOGUE_PACKS, CATALOGUE_ENTRIES),
    ),
    _pack_sample(PackKind.DATA),
    _pack_sample(PackKind.INDEX),
    _sealed_pack_sample("sealed-data.pack", _as_it_was("sealed-data.pack")),
    _sealed_pack_sample("padded-data.pack", lambda: sample_pack(PackKind.DATA, SMALL_STEPS)),
    *(
        _sealed_object_sample(file, key, data, encode)
        for name, key, data in (
            ("head", keys.head("my-dataset", 1), RECORDS["head-create"].encode()),
            ("manifest", keys.VERSIONS, MANIFEST.encode()),
        )
        for file, encode in (
            (f"sealed-{name}.bin", _as_it_was(f"sealed-{name}.bin")),
            (f"padded-{name}.bin", partial(SMALL_STEPS.seal_object, key, data)),
        )
    ),
]


if __name__ == "__main__":
    for sample in SAMPLES:
        path = GOLDEN / sample.file
        if not path.exists():
            path.write_bytes(sample.encode())
            print(f"wrote {path}")
