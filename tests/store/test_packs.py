"""Packs: what flush reports is durable, what read returns is verified, and moved bytes are
found."""

from __future__ import annotations

import math
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from blake3 import blake3

from cowfs.base import clock
from cowfs.base.ids import ChunkHash, PackId, StoreId, WriteId
from cowfs.errors import CorruptError, InvalidInputError, InvalidStateError, NotFoundError, UnavailableError
from cowfs.format import keys
from cowfs.format import pack as pack_format
from cowfs.format.pack import ENTRY_BYTES, BlobKind, PackBuilder, PackKind, Room
from cowfs.format.records import MovedBlob, MovedRecord
from cowfs.format.sealed import Sealed
from cowfs.store import ObjectStore
from cowfs.store.contract import Data
from cowfs.store.packs import ChunkRequest, DirectoryCache, PackLocation, PackReader, PackUploader, upload
from cowfs.store.refs import refs
from cowfs.store.reliability.damaged import ASKS
from cowfs.store.sealed import SealedStore
from tests.faulty_store import Fault, FaultyStore
from tests.version import repacking

SEED = 20261


def hash_of(raw: bytes) -> ChunkHash:
    return ChunkHash(blake3(raw).digest())


def chunks(count: int, size: int = 10_000) -> list[bytes]:
    print(f"chunks: seed {SEED}")
    source = random.Random(SEED)
    return [source.randbytes(size + n) if n % 2 else bytes([n % 256]) * (size + n) for n in range(count)]


def request(location: PackLocation, raw: bytes) -> ChunkRequest:
    return ChunkRequest(location.offset, location.stored_length, location.raw_length, location.codec, hash_of(raw))


def put_pack(store: ObjectStore, raws: list[bytes], *, target_bytes: int = 16 << 20) -> list[PackLocation]:
    uploader = PackUploader(store, PackKind.DATA, target_bytes=target_bytes)
    locations = [uploader.add(hash_of(raw), raw) for raw in raws]
    uploader.flush()
    uploader.close()
    return locations


def read(reader: PackReader, at: PackLocation, raw: bytes) -> bytes:
    return reader.read(at.pack, at.offset, at.stored_length, at.raw_length, at.codec, hash_of(raw))


def move(store: ObjectStore, pack: PackId, number: int) -> PackId:
    """Repacks: every blob goes to a new pack, in reverse order, behind 100 other bytes; the old
    pack is not touched."""
    whole = store.get(keys.pack(pack))
    new_pack, body, blobs = PackId(clock.random_bytes(16)), bytes(100), []
    for entry in reversed(PackReader(store).directory(pack)):
        blobs.append(MovedBlob(entry.offset, new_pack, len(body), entry.stored_length))
        body += whole[entry.offset : entry.offset + entry.stored_length]
    store.put(keys.pack(new_pack), body)
    record = MovedRecord(
        pack=pack,
        created_ns=clock.now_ns(),
        write_id=WriteId(clock.random_bytes(16)),
        blobs=tuple(sorted(blobs, key=lambda blob: blob.offset)),
    )
    refs.append(store, refs.moved(pack), number, record)
    return new_pack


def test_round_trip(store: ObjectStore) -> None:
    raws = chunks(40)
    uploader = PackUploader(store, PackKind.DATA, target_bytes=64 << 10)
    with ThreadPoolExecutor(8) as pool:
        locations = list(pool.map(lambda raw: uploader.add(hash_of(raw), raw), raws))
    receipts = uploader.flush()
    assert {receipt.pack for receipt in receipts} == {location.pack for location in locations}
    assert len(receipts) > 2
    assert sum(receipt.entries for receipt in receipts) == len(raws)
    assert uploader.flush() == []
    uploader.close()

    reader = PackReader(store)
    for location, raw in zip(locations, raws, strict=True):
        assert read(reader, location, raw) == raw
    for receipt in receipts:
        assert store.size(keys.pack(receipt.pack)) == receipt.size_bytes
        entries = reader.directory(receipt.pack)
        where = {"directory_offset": receipt.directory_offset, "directory_length": receipt.directory_length}
        assert list(entries) == list(reader.directory(receipt.pack, **where))
        mine = {(at.offset, hash_of(raw)) for at, raw in zip(locations, raws, strict=True) if at.pack == receipt.pack}
        assert {(entry.offset, entry.hash) for entry in entries} == mine


def test_ranges_of_a_sealed_pack_end_where_it_does(store: ObjectStore) -> None:
    """They are rounded up beyond its end, which each backend answers with what there is, by itself
    or, where it cannot, after it has said how large the pack is."""
    for backend in (store, FaultyStore(store)):
        sealed = SealedStore(backend, Sealed(bytes(32), StoreId(bytes(16))))
        data = random.Random(SEED).randbytes(5_000_000)
        key = keys.pack(PackId(clock.random_bytes(16)))
        sealed.put(key, data)
        for offset, length in ((0, 100), (4_999_000, 1000), (70_000, 4_500_000), (65_536, 65_536), (0, len(data))):
            assert bytes(sealed.get_range(key, offset, length)) == data[offset : offset + length]
        for offset, length in ((4_999_000, 1001), (5_000_001, 10), (6_000_000, 10)):
            with pytest.raises((CorruptError, InvalidInputError, UnavailableError)):
                sealed.get_range(key, offset, length)


def test_index_packs_hold_other_blobs(store: ObjectStore) -> None:
    uploader = PackUploader(store, PackKind.INDEX)
    at = uploader.add(hash_of(b"block"), b"block", blob_kind=BlobKind.BLOCK)
    uploader.flush()
    uploader.close()
    assert [entry.blob_kind for entry in PackReader(store).directory(at.pack)] == [BlobKind.BLOCK]


class Holding(FaultyStore):
    """Keeps a view of each body, as a request that was given up may for a while."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.views: dict[str, memoryview] = {}

    def put(self, key: str, data: Data) -> None:
        super().put(key, data)
        self.views[key] = memoryview(data)


@pytest.mark.quick
def test_memory_of_packs_is_used_again(directory: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not what somebody has a view of."""
    made: list[Room] = []

    class Counted(Room):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(pack_format, "Room", Counted)
    monkeypatch.setattr(upload, "MEMORY_BYTES", 60_000)
    raws = [random.Random(n).randbytes(20_000) for n in range(60)]
    for store in (directory, holding := Holding(directory)):
        made.clear()
        uploader = PackUploader(store, PackKind.DATA, target_bytes=50_000)
        locations = [uploader.add(hash_of(raw), raw) for raw in raws]
        assert len(uploader.flush()) == 20
        uploader.close()
        assert [read(PackReader(directory), at, raw) for at, raw in zip(locations, raws, strict=True)] == raws
        assert len(made) <= 4 if store is directory else len(made) == 20
    assert len(holding.views) == 20
    assert all(directory.get(key) == view for key, view in holding.views.items())


@pytest.mark.quick
def test_neighbours_come_in_one_request(directory: ObjectStore) -> None:
    raws = [random.Random(n).randbytes(50_000) for n in range(20)]
    locations = put_pack(directory, raws)
    faulty = FaultyStore(directory)
    reader = PackReader(faulty)
    wanted = [7, 3, 4, 5, 3, 19]  # 4 and 5 adjoin 3; 7 lies behind a gap of one chunk (< 64 KiB); 19 is far away
    found = reader.read_many(locations[0].pack, [request(locations[i], raws[i]) for i in wanted])
    assert found == [raws[i] for i in wanted]
    assert faulty.count("get_range") == 2
    assert reader.read_many(locations[0].pack, []) == []


@pytest.mark.quick
def test_runs_are_bounded(directory: ObjectStore) -> None:
    raws = [random.Random(n).randbytes(1 << 20) for n in range(20)]
    locations = put_pack(directory, raws, target_bytes=64 << 20)
    faulty = FaultyStore(directory)
    found = PackReader(faulty).read_many(
        locations[0].pack, [request(at, raw) for at, raw in zip(locations, raws, strict=True)]
    )
    assert found == raws
    assert faulty.count("get_range") == 3


@pytest.mark.quick
@pytest.mark.parametrize("fault", [Fault.FLIP_BIT, Fault.TRUNCATE])
def test_bytes_that_are_wrong_are_never_returned(directory: ObjectStore, fault: Fault) -> None:
    """Whatever the store answers, a read gives the chunk or an error that names the pack (pitfalls
    5, 22)."""
    raws = chunks(12)
    locations = put_pack(directory, raws)
    for seed in range(30):
        faulty = FaultyStore(directory, seed=seed)
        reader = PackReader(faulty)
        faulty.inject(fault, "get_range", times=math.inf, probability=0.5)
        for location, raw in zip(locations, raws, strict=True):
            try:
                assert read(reader, location, raw) == raw
            except CorruptError as error:
                assert location.pack.hex() in str(error)
        try:
            assert reader.read_many(locations[0].pack, list(map(request, locations, raws))) == raws
        except CorruptError as error:
            assert locations[0].pack.hex() in str(error)


@pytest.mark.quick
@pytest.mark.parametrize("fault", [Fault.FLIP_BIT, Fault.TRUNCATE])
@pytest.mark.parametrize("has_moved", [False, True])
def test_what_the_wire_has_damaged_is_read_again(directory: ObjectStore, fault: Fault, has_moved: bool) -> None:
    """Each time until ASKS answers are damaged; chunks, and directories of any length."""
    for raws in (chunks(3), [random.Random(number).randbytes(100) for number in range(2000)]):
        locations = put_pack(directory, raws, target_bytes=1 << 20)
        pack, offsets = locations[0].pack, {at.offset for at in locations}
        if has_moved:
            repacking.move(directory, pack, 1)
        faulty = FaultyStore(directory)
        for times in (1, ASKS - 1):
            faulty.inject(fault, "get_range", times=times, skip=has_moved)  # that the pack is gone it says at once
            assert read(PackReader(faulty), locations[1], raws[1]) == raws[1]
            faulty.heal()
            faulty.inject(fault, "get_range", times=times)
            assert {entry.offset for entry in PackReader(faulty).directory(pack)} == offsets
            faulty.heal()


@pytest.mark.quick
def test_a_pack_with_a_flipped_bit_or_cut_short(directory: ObjectStore) -> None:
    raws = chunks(3)
    locations = put_pack(directory, raws)
    key, pack = keys.pack(locations[0].pack), locations[0].pack
    whole = directory.get(key)
    spoilt = bytearray(whole)
    spoilt[locations[1].offset + 5] ^= 4
    reader = PackReader(directory)
    for bad in (bytes(spoilt), whole[: locations[1].offset + 5]):
        directory.put(key, bad)
        with pytest.raises(CorruptError, match=pack.hex()) as caught:
            read(reader, locations[1], raws[1])
        assert caught.value.details["hash"] == hash_of(raws[1]).hex()
        assert read(reader, locations[0], raws[0]) == raws[0]
        with pytest.raises(CorruptError):
            reader.read_many(pack, list(map(request, locations, raws)))
    for length in range(0, len(whole), 997):
        directory.put(key, whole[:length])
        with pytest.raises(CorruptError):
            reader.directory(pack)
    directory.delete([key])
    with pytest.raises(CorruptError, match="does not exist"):
        read(reader, locations[1], raws[1])
    with pytest.raises(NotFoundError):
        reader.directory(pack)


@pytest.mark.quick
def test_kept_directories_are_counted_in_bytes(directory: ObjectStore) -> None:
    locations = put_pack(directory, chunks(400, 500), target_bytes=20_000)
    packs = list(dict.fromkeys(location.pack for location in locations))
    assert len(packs) > 4
    faulty, limit = FaultyStore(directory), 150 * ENTRY_BYTES
    kept = DirectoryCache(PackReader(faulty), limit)
    for pack in packs:
        assert {entry.offset for entry in kept.get(pack)} == {at.offset for at in locations if at.pack == pack}
        assert 0 < kept.size_bytes <= limit
    fetched = faulty.count("get_range")
    kept.get(packs[-1])
    assert faulty.count("get_range") == fetched
    kept.get(packs[0])
    assert faulty.count("get_range") > fetched
    kept.clear()
    assert kept.size_bytes == 0


def test_a_directory_beyond_the_limit_is_kept_alone(directory: ObjectStore) -> None:
    locations = put_pack(directory, chunks(400, 500), target_bytes=20_000)
    first, last = locations[0].pack, locations[-1].pack
    kept = DirectoryCache(PackReader(directory), 0)
    assert len(kept.get(first)) > 0
    assert ENTRY_BYTES * len(kept.get(last)) == kept.size_bytes


def test_impossible_addresses_fetch_nothing(directory: ObjectStore) -> None:
    """An index from a store is untrusted too (pitfalls 22)."""
    faulty = FaultyStore(directory)
    reader = PackReader(faulty)
    pack, digest = PackId(bytes(16)), ChunkHash(bytes(32))
    for offset, stored, raw in ((-1, 1, 1), (0, -1, 1), (0, 2, 1), (0, 1 << 60, 1 << 60), (0, 1, 1 << 40)):
        with pytest.raises(CorruptError, match="impossible"):
            reader.read(pack, offset, stored, raw, 0, digest)
        with pytest.raises(CorruptError, match="impossible"):
            reader.read_many(pack, [ChunkRequest(offset, stored, raw, 0, digest)])
    assert faulty.calls == []


def test_moved_records_are_followed(store: ObjectStore) -> None:
    raws = chunks(5)
    locations = put_pack(store, raws)
    pack = locations[0].pack
    first_home = move(store, pack, 1)
    second_home = move(store, pack, 2)
    before = PackReader(store)
    assert [read(before, at, raw) for at, raw in zip(locations, raws, strict=True)] == raws
    store.delete([keys.pack(pack), keys.pack(first_home)])
    for reader in (before, PackReader(store)):
        assert [read(reader, at, raw) for at, raw in zip(locations, raws, strict=True)] == raws
        assert reader.read_many(pack, list(map(request, locations, raws))) == raws
    third_home = PackId(clock.random_bytes(16))
    newest = refs.newest(store, refs.moved(pack))
    assert newest is not None
    store.put(keys.pack(third_home), store.get(keys.pack(second_home)))
    blobs = tuple(MovedBlob(b.offset, third_home, b.new_offset, b.stored_length) for b in newest[1].blobs)
    record = MovedRecord(pack=pack, created_ns=1, write_id=WriteId(clock.random_bytes(16)), blobs=blobs)
    refs.append(store, refs.moved(pack), 3, record)
    store.delete([keys.pack(second_home)])
    assert [
        read(before, at, raw) for at, raw in zip(locations, raws, strict=True)
    ] == raws  # its cached record is stale
    store.delete([keys.pack(third_home)])
    with pytest.raises(CorruptError, match="where it was moved to"):
        read(before, locations[0], raws[0])


def test_who_reads_what_was_collected_is_told_so(directory: ObjectStore) -> None:
    raws = chunks(2)
    locations = put_pack(directory, raws)
    reader = PackReader(directory)
    key = keys.pack(locations[0].pack)
    whole = bytes(directory.get(key))
    directory.delete([key])
    with pytest.raises(CorruptError) as gone:
        read(reader, locations[0], raws[0])
    assert "collected since it was opened" in gone.value.hint
    directory.put(key, bytes(len(whole)))
    with pytest.raises(CorruptError) as damaged:
        read(reader, locations[1], raws[1])
    assert "collected" not in damaged.value.hint
    changed = "something between this machine and the server changes answers"
    assert (changed in gone.value.hint, changed in damaged.value.hint) == (False, True)


def repack(store: ObjectStore, packs: list[PackId], number: int) -> PackId:
    """Copies all blobs of `packs` into one new pack and deletes the old ones."""
    builder = PackBuilder(PackKind.DATA)
    new_pack = PackId(clock.random_bytes(16))
    for pack in packs:
        whole, blobs = store.get(keys.pack(pack)), []
        for entry in PackReader(store).directory(pack):
            stored = whole[entry.offset : entry.offset + entry.stored_length]
            at = builder.add(entry.hash, stored, entry.raw_length, entry.codec, entry.blob_kind)
            blobs.append(MovedBlob(entry.offset, new_pack, at.offset, entry.stored_length))
        record = MovedRecord(pack, 1, WriteId(clock.random_bytes(16)), tuple(blobs))
        refs.append(store, refs.moved(pack), number, record)
    store.put(keys.pack(new_pack), builder.seal())
    store.delete([keys.pack(pack) for pack in packs])
    return new_pack


def test_neighbours_that_moved_are_read_together(store: ObjectStore) -> None:
    raws = chunks(100, size=1000)
    locations = put_pack(store, raws)
    pack = locations[0].pack
    directory = list(PackReader(store).directory(pack))
    repack(store, [pack, put_pack(store, chunks(3, size=5000))[0].pack], 1)
    faulty = FaultyStore(store)
    reader = PackReader(faulty)
    assert reader.read_many(pack, list(map(request, locations, raws))) == raws
    assert len(faulty.calls) <= 5, "the pack, its newest record (looked for and read), the blobs"
    faulty.calls.clear()
    assert list(reader.directory(pack)) == directory
    assert reader.read_many(pack, list(map(request, locations, raws))) == raws
    assert len(faulty.calls) <= 3


def test_the_directory_of_a_moved_pack_is_that_of_its_newest_record(store: ObjectStore) -> None:
    raws = chunks(4)
    locations = put_pack(store, raws)
    pack = locations[0].pack
    directory = list(PackReader(store).directory(pack))
    first_home = repack(store, [pack], 1)
    reader = PackReader(store)
    assert list(reader.directory(pack, directory_offset=0, directory_length=48)) == directory
    assert reader.homes(pack) == {first_home}
    assert reader.list_moved_into({first_home}) == {pack}
    second_home = PackId(clock.random_bytes(16))
    blobs = tuple(MovedBlob(entry.offset, second_home, entry.offset, entry.stored_length) for entry in directory[1:])
    store.put(keys.pack(second_home), store.get(keys.pack(first_home)))
    store.delete([keys.pack(first_home)])
    with pytest.raises(NotFoundError):
        reader.directory(pack)
    refs.append(store, refs.moved(pack), 2, MovedRecord(pack, 1, WriteId(clock.random_bytes(16)), blobs))
    assert list(reader.directory(pack)) == directory[1:], "the first blob was not live any more"
    assert reader.homes(pack) == {first_home, second_home}, "what was looked up before relies on the first"
    found = reader.read_many(pack, list(map(request, locations[1:], raws[1:])))
    assert found == raws[1:]
    with pytest.raises(CorruptError, match="names nothing"):
        reader.read_many(pack, list(map(request, locations, raws)))


@pytest.mark.quick
def test_a_failed_upload_is_never_reported_as_durable(directory: ObjectStore) -> None:
    raws = chunks(30)
    for seed in range(20):
        faulty = FaultyStore(directory, seed=seed)
        faulty.inject(Fault.FAIL, "put", times=2, probability=0.4)
        uploader = PackUploader(faulty, PackKind.DATA, target_bytes=32 << 10)
        try:
            for raw in raws:
                uploader.add(hash_of(raw), raw)
            receipts = uploader.flush()
        except UnavailableError:
            with pytest.raises(UnavailableError):
                uploader.flush()
            with pytest.raises(UnavailableError):
                uploader.add(hash_of(b"x"), b"x")
            receipts = uploader.take_durable()
        uploader.close()
        for receipt in receipts:
            assert directory.size(keys.pack(receipt.pack)) == receipt.size_bytes


@pytest.mark.quick
def test_memory_is_bounded(directory: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "MEMORY_BYTES", 100_000)
    faulty = FaultyStore(directory)
    faulty.inject(Fault.DELAY, "put", times=math.inf)
    uploader = PackUploader(faulty, PackKind.DATA, target_bytes=40_000)
    most = 0
    raws = [random.Random(n).randbytes(10_000) for n in range(60)]
    locations = []
    for raw in raws:
        locations.append(uploader.add(hash_of(raw), raw))
        most = max(most, uploader._pending_bytes)
    uploader.flush()
    uploader.close()
    assert most < 100_000 + 60_000
    assert [read(PackReader(directory), at, raw) for at, raw in zip(locations, raws, strict=True)] == raws


@pytest.mark.quick
def test_a_closed_uploader_refuses(directory: ObjectStore) -> None:
    uploader = PackUploader(directory, PackKind.DATA)
    uploader.add(hash_of(b"x"), b"x")
    uploader.close()
    for call in (uploader.flush, lambda: uploader.add(hash_of(b"x"), b"x")):
        with pytest.raises(InvalidStateError):
            call()
    assert directory.list(keys.PACKS) == []


@pytest.mark.quick
def test_pack_keys_are_spread(directory: ObjectStore) -> None:
    """Stores limit requests by prefix: keys start with random digits (pitfalls 21)."""
    uploader = PackUploader(directory, PackKind.DATA, target_bytes=1)
    for n in range(200):
        uploader.add(hash_of(bytes([n])), bytes([n]))
    uploader.flush()
    uploader.close()
    assert len({info.key.split("/")[1] for info in directory.list(keys.PACKS)}) > 90
