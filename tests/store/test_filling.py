"""Chunks go from packs into a cache as their bytes arrive: whole, whatever the pieces; what is
damaged never, and it costs nobody else anything."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from cowfs.base.ids import StoreId
from cowfs.errors import CorruptError, UnavailableError
from cowfs.format import keys
from cowfs.format.codec import Codec
from cowfs.format.pack import PackKind
from cowfs.format.sealed import Sealed
from cowfs.native import Engine
from cowfs.store import ObjectStore
from cowfs.store.contract import Data
from cowfs.store.packs import ChunkRequest, PackReader, PackUploader
from cowfs.store.reliability.patience import Patience
from cowfs.store.reliability.retrying import RetryingStore
from cowfs.store.sealed import sealing_of
from cowfs.store.streams import PIECE_BYTES, RANGE_BYTES, stream_range
from tests.engine.volumes import open_engine
from tests.faulty_store import Fault, FaultyStore
from tests.version.repacking import move

pytestmark = pytest.mark.quick

KEY = Sealed(b"\x5a" * 32, StoreId(bytes(16)))


class Pieces(FaultyStore):
    """Ranges arrive in pieces of random lengths."""

    def __init__(self, store: ObjectStore, seed: int) -> None:
        super().__init__(store, seed=seed)
        self.random = random.Random(seed)

    def stream_range(self, key: str, offset: int, length: int) -> Iterator[Data]:
        data = bytes(self.get_range(key, offset, length))
        while data:
            at = self.random.randrange(1, 200_000)
            yield data[:at]
            data = data[at:]


@pytest.fixture(params=["plain", "encrypted"])
def packs(request: pytest.FixtureRequest, directory: ObjectStore) -> ObjectStore:
    if request.param == "encrypted":
        assert isinstance(directory, RetryingStore)
        directory.seal_with(KEY)
    return directory


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(tmp_path)
    yield engine
    engine.close()


def stored(store: ObjectStore, count: int) -> tuple[list[bytes], list[ChunkRequest]]:
    """One pack of chunks: noise, text, and short ones."""
    source = random.Random(3)
    raws = [source.randbytes(source.randrange(1, 300_000)) for _ in range(count)]
    raws[1::3] = [raw[:100] * (len(raw) // 100 + 1) for raw in raws[1::3]]
    raws[2::3] = [raw[:50] for raw in raws[2::3]]
    uploader = PackUploader(store, PackKind.DATA)
    found = [(uploader.sealing.name(raw), uploader.add(uploader.sealing.name(raw), raw)) for raw in raws]
    uploader.flush()
    uploader.close()
    requests = [ChunkRequest(at.offset, at.stored_length, at.raw_length, at.codec, name) for name, at in found]
    assert len({at.pack for _, at in found}) == 1
    return raws, requests


def pack_of(store: ObjectStore) -> str:
    return next(info.key for info in store.list("packs/") if "." not in info.key)


def cached(engine: Engine, requests: list[ChunkRequest]) -> list[bytes | None]:
    return [engine.cached_chunk(request.hash, request.raw_length) for request in requests]


def test_every_chunk_comes_whole(packs: ObjectStore, engine: Engine) -> None:
    raws, requests = stored(packs, 30)
    pack = keys.parse_pack(pack_of(packs))
    assert pack is not None
    faulty = Pieces(packs, 1)
    shuffled = random.Random(2).sample(range(30), 30)
    given = list(PackReader(faulty).fill(engine, pack, [requests[i] for i in shuffled]))
    assert sorted(given) == list(range(30))
    assert cached(engine, requests) == raws
    assert faulty.count("get_range") == 1


def test_real_pieces(packs: ObjectStore, engine: Engine) -> None:
    source = random.Random(4)
    raws = [source.randbytes(700_000) for _ in range(8)]
    uploader = PackUploader(packs, PackKind.DATA)
    at = [uploader.add(uploader.sealing.name(raw), raw) for raw in raws]
    uploader.flush()
    uploader.close()
    names = [sealing_of(packs).name(raw) for raw in raws]
    requests = [
        ChunkRequest(a.offset, a.stored_length, a.raw_length, a.codec, name) for a, name in zip(at, names, strict=True)
    ]
    assert list(PackReader(packs).fill(engine, at[0].pack, requests)) == list(range(8))
    assert cached(engine, requests) == raws


def test_a_pack_that_has_moved(packs: ObjectStore, engine: Engine) -> None:
    raws, requests = stored(packs, 12)
    pack = keys.parse_pack(pack_of(packs))
    assert pack is not None
    move(packs, pack, 1)
    packs.delete([keys.pack(pack)])
    assert sorted(PackReader(Pieces(packs, 5)).fill(engine, pack, requests)) == list(range(12))
    assert cached(engine, requests) == raws


@pytest.mark.parametrize("fault", [Fault.FLIP_BIT, Fault.TRUNCATE])
def test_what_is_wrong_is_never_cached(packs: ObjectStore, engine: Engine, fault: Fault) -> None:
    raws, requests = stored(packs, 9)
    pack = keys.parse_pack(pack_of(packs))
    assert pack is not None
    for seed in range(20):
        faulty = Pieces(packs, seed)
        faulty.inject(fault, "get_range", times=math.inf, probability=0.7)
        try:
            given = list(PackReader(faulty).fill(engine, pack, requests))
        except CorruptError as error:
            assert pack.hex() in str(error)
        else:
            assert sorted(given) == list(range(9))
        assert all(found in (None, raw) for found, raw in zip(cached(engine, requests), raws, strict=True))


def test_a_flip_on_the_wire_is_read_again(packs: ObjectStore, engine: Engine) -> None:
    raws, requests = stored(packs, 6)
    pack = keys.parse_pack(pack_of(packs))
    assert pack is not None
    faulty = FaultyStore(packs)
    faulty.inject(Fault.FLIP_BIT, "get_range")
    assert sorted(PackReader(faulty).fill(engine, pack, requests)) == list(range(6))
    assert cached(engine, requests) == raws


def test_damage_costs_one_chunk(packs: ObjectStore, engine: Engine) -> None:
    """The others come first; the error names the pack, and deduplication is told."""
    raws, requests = stored(packs, 9)
    key = pack_of(packs)
    pack = keys.parse_pack(key)
    assert pack is not None
    data = bytearray(packs.get(key))
    data[requests[4].offset + 20] ^= 1
    packs.put(key, data)
    reader, given = PackReader(packs), set[int]()
    with pytest.raises(CorruptError, match=pack.hex()) as caught:
        given.update(reader.fill(engine, pack, requests))
    assert caught.value.details["hash"] == requests[4].hash.hex()
    assert given == set(range(9)) - {4}
    assert cached(engine, requests) == [raw if number != 4 else None for number, raw in enumerate(raws)]
    assert reader.has_failed(pack, requests[4].hash)
    assert not reader.has_failed(pack, requests[3].hash)


@pytest.mark.parametrize(
    "changed",
    [
        {"offset": -1},
        {"offset": 1 << 62},
        {"stored_length": 0},
        {"raw_length": 1 << 31},
        {"stored_length": 1 << 31, "raw_length": 1 << 31},
        {"codec": Codec.RAW},
        {"raw_length": 300_001},
    ],
)
def test_an_impossible_address_costs_nobody_else(packs: ObjectStore, engine: Engine, changed: dict[str, int]) -> None:
    raws, requests = stored(packs, 3)
    pack = keys.parse_pack(pack_of(packs))
    assert pack is not None
    r = requests[1]
    wrong = {
        "offset": r.offset,
        "stored_length": r.stored_length,
        "raw_length": r.raw_length,
        "codec": r.codec,
    } | changed
    asked = [requests[0], ChunkRequest(hash=r.hash, **wrong), requests[2]]
    with pytest.raises(CorruptError, match=pack.hex()):
        list(PackReader(packs).fill(engine, pack, asked))
    assert cached(engine, requests) == [raws[0], None, raws[2]]


def test_a_full_disk_makes_misses(packs: ObjectStore, tmp_path: Path) -> None:
    """What the cache's directory cannot take is held in memory, as far as that goes."""
    raws, requests = stored(packs, 3)
    pack = keys.parse_pack(pack_of(packs))
    assert pack is not None
    (tmp_path / "cache").touch()  # no directory can be made there
    engine = open_engine(tmp_path)
    assert sorted(PackReader(packs).fill(engine, pack, requests)) == [0, 1, 2]
    assert all(found in (None, raw) for found, raw in zip(cached(engine, requests), raws, strict=True))
    engine.close()


# -- pieces of a range


class Breaking(FaultyStore):
    """Answers every third piece with an error."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.asked: list[tuple[int, int]] = []

    def stream_range(self, key: str, offset: int, length: int) -> Iterator[Data]:
        self.asked.append((offset, length))
        for number, piece in enumerate(stream_range(self._store, key, offset, length)):
            if number == 2:
                raise UnavailableError("the connection broke")
            yield piece


def test_a_stream_that_breaks_goes_on_where_it_was(directory: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cowfs.store.reliability.patience.FIRST_PAUSE_S", 0.0)
    data = random.Random(6).randbytes(5 * PIECE_BYTES + 7)
    directory.put("key", data)
    breaking = Breaking(directory)
    found = b"".join(bytes(piece) for piece in RetryingStore(breaking).stream_range("key", 3, len(data) - 3))
    assert found == data[3:]
    assert breaking.asked == [(3 + n * 2 * PIECE_BYTES, len(data) - 3 - n * 2 * PIECE_BYTES) for n in range(3)]


def test_a_stream_that_brings_nothing_ends(directory: ObjectStore) -> None:
    directory.put("key", b"value")
    faulty = FaultyStore(directory)
    faulty.inject(Fault.FAIL, "get_range", times=math.inf)
    with pytest.raises(UnavailableError):
        list(RetryingStore(faulty, Patience(0.0)).stream_range("key", 0, 5))


def test_a_store_without_streams_gives_ranges(directory: ObjectStore) -> None:
    data = random.Random(7).randbytes(RANGE_BYTES + 5)
    directory.put("key", data)
    faulty = FaultyStore(directory)
    assert [bytes(piece) for piece in stream_range(faulty, "key", 0, len(data))] == [data[:RANGE_BYTES], data[-5:]]
    assert faulty.count("get_range") == 2
