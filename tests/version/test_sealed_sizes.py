"""What sizes and ranges tell somebody who sees an encrypted store, and has no key."""

from __future__ import annotations

import functools
import itertools
import os
import random
import shutil
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from cowfs.base.ids import PackId
from cowfs.format import keys
from cowfs.format.codec import Codec
from cowfs.format.pack import FOOTER_BYTES, HEADER_BYTES, PackKind
from cowfs.format.sealed import Sealed
from cowfs.native.chunks import cut_points
from cowfs.store import ObjectStore, initialize
from cowfs.store.backends.directory.directory_store import DirectoryStore
from cowfs.store.contract import Data
from cowfs.store.packs import PackReader, PackUploader
from cowfs.store.reliability.retrying import RetryingStore
from cowfs.store.sealed import sealing_of
from tests.version.working_volume import ReadingVolume, WorkingVolume

KEY = b"\x5a" * 32
SEED = int(os.environ.get("COWFS_MODEL_SEED", "20263"))
RANGE_BYTES = 64 << 10
SECRET = b"merger with Contoso Ltd - draft contract.docx"
GUESSES = (
    b"merger with Contoso Ltd - draft contrac%d",
    b"merger with Fabrikam In - draft contrac%d",
    b"qzkwvx upon Jdsfhui Pqn x lkwjf hgtrxc%d",
)


class Watched(DirectoryStore):
    """Remembers which ranges of what were asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, url=root.as_uri())
        self.ranges: list[tuple[str, int, int]] = []

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        self.ranges.append((key, offset, length))
        return super().get_range(key, offset, length)

    def stream_range(self, key: str, offset: int, length: int) -> Iterator[Data]:
        self.ranges.append((key, offset, length))
        yield from super().stream_range(key, offset, length)


def opened(path: Path) -> tuple[ObjectStore, Watched]:
    path.mkdir(exist_ok=True)
    watched = Watched(path)
    store = RetryingStore(watched)
    store.seal_with(Sealed(KEY, initialize(store, writers=[watched] * 2).store_id))
    return store, watched


def sizes(path: Path) -> dict[str, int]:
    return {str(each.relative_to(path)): each.stat().st_size for each in path.rglob("*") if each.is_file()}


def added(store: ObjectStore, path: Path, home: Path, name: bytes, data: bytes) -> list[tuple[str, int]]:
    """What a commit of one file puts: of what kind, how large."""
    before = sizes(path)
    with WorkingVolume(store, "v", home) as volume:
        volume.write(name, data)
        volume.commit("a message")
    return sorted((key.partition("/")[0], size) for key, size in sizes(path).items() if key not in before)


def test_commits_of_one_small_file_look_alike(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    store, _ = opened(tmp_path / "store")
    with WorkingVolume(store, "v", tmp_path / "home") as volume:
        volume.write(b"first", chance.randbytes(5000))
        volume.commit()
    found = {}
    for length in (1, 18, 777, 2048, 4096, *chance.sample(range(1, 4097), 5)):
        place = tmp_path / str(length)
        shutil.copytree(tmp_path / "store", place / "store")
        again, _ = opened(place / "store")
        for kind, data in (("noise", chance.randbytes(length)), ("letters", b"a" * length)):
            copy = place / kind
            shutil.copytree(place / "store", copy)
            again, _ = opened(copy)
            found[length, kind] = added(again, copy, place / f"home-{kind}", b"f", data)
    assert len({tuple(each) for each in found.values()}) == 1, found


def test_names_beside_a_secret_one_look_alike(tmp_path: Path) -> None:
    """An index that is compressed is smaller where a new name is like one that is there."""
    store, _ = opened(tmp_path / "store")
    with WorkingVolume(store, "v", tmp_path / "home") as volume:
        volume.write(SECRET, b"x")
        volume.commit()
    found = {}
    for guess in GUESSES:
        for number in range(2):
            copy = tmp_path / f"{GUESSES.index(guess)}-{number}"
            shutil.copytree(tmp_path / "store", copy)
            again, _ = opened(copy)
            found[guess % number] = added(again, copy, tmp_path / f"home-{copy.name}", guess % number, b"y")
    assert len({tuple(each) for each in found.values()}) == 1, found


def test_ranges_of_packs_are_rounded(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    store, watched = opened(tmp_path / "store")
    contents = {b"%d" % length: chance.randbytes(length) for length in (1, 5000, 70_000, 300_000, 3_000_000)}
    with WorkingVolume(store, "v", tmp_path / "home") as volume:
        for name, data in contents.items():
            volume.write(name, data)
        base = volume.commit()
    assert base.version_id is not None
    for name, data in contents.items():
        with ReadingVolume(store, base.version_id, tmp_path / f"reader-{name.decode()}") as reader:
            assert reader.read(name) == data
    packs = [(key, offset, length) for key, offset, length in watched.ranges if keys.parse_pack(key)]
    assert len(packs) > len(contents)
    assert not [each for each in packs if each[1] % RANGE_BYTES or each[2] % RANGE_BYTES]


# -- the table of the cuts, from lengths of chunks

A, B = 0x61, 0x62
TEXT_BYTES = 32 << 20
LONGEST_BYTES = 2 << 20


def test_the_table_of_the_cuts_does_not_follow_from_what_is_seen(tmp_path: Path) -> None:
    """Each cut of a text of two letters says that some bits of a sum are zero, in which the
    difference of their two numbers is the only unknown. Packs are of one chunk here, and each is
    read alone, which shows the most; chunks are stored as they are."""
    print(f"seed {SEED}")
    raw = random.Random(SEED).randbytes(TEXT_BYTES).translate(bytes(B if byte & 1 else A for byte in range(256)))
    store, watched = opened(tmp_path / "store")
    sealing = sealing_of(store)
    assert sealing.gear is not None
    gear = struct.unpack(">256Q", sealing.gear)
    ends = list(cut_points(raw, True, gear=sealing.gear))
    uploader = PackUploader(store, PackKind.DATA, target_bytes=1)
    places = []
    for start, end in zip([0, *ends], ends, strict=False):
        chunk = raw[start:end]
        places.append((sealing.name(chunk), uploader.add_stored(sealing.name(chunk), Codec.RAW, chunk, len(chunk))))
    uploader.flush()
    uploader.close()
    reader = PackReader(store)
    asked, held = [], []
    for name, at in places:
        watched.ranges.clear()
        reader.read(at.pack, at.offset, at.stored_length, at.raw_length, at.codec, name)
        asked += [length - 28 for _, _, length in watched.ranges]
        held.append(_blobs_bytes(watched, at.pack) - 28)
    difference = (gear[B] - gear[A]) % (1 << 64)
    bits, found = differences(raw, ends)
    assert difference % (1 << bits) in found  # or the attack is none
    for seen in (asked, held):
        _, found = differences(raw, _ends(seen))
        assert set(found) <= {0}  # which explains everything


def _blobs_bytes(store: Watched, pack: PackId) -> int:
    """By what the pack's footer says itself, in plain: where the directory lies."""
    footer = store.get(keys.pack(pack))[-FOOTER_BYTES:]
    return int.from_bytes(footer[8:16]) - HEADER_BYTES


def _ends(lengths: Sequence[int]) -> list[int]:
    ends, end = [], 0
    for length in lengths:
        end += length
        ends.append(end)
    return [end for end in ends if 64 <= end < TEXT_BYTES]


def differences(raw: bytes, ends: Sequence[int]) -> tuple[int, list[int]]:
    """Which differences of the two numbers explain these cuts, by their lowest bits, and how many
    bits these are."""
    lengths = [(end, end - start) for start, end in zip([0, *ends], ends, strict=False)]
    windows = [_window(raw, end) for end, length in lengths[:-1] if length != LONGEST_BYTES]
    masks = _mask_bits(raw)
    candidates = list(range(1 << masks[0] + 1))
    candidates = [each for each in candidates if _fits(windows, each, 1 << masks[0] + 1)]
    for lower, bit in itertools.pairwise(masks):
        candidates = [
            number
            for each in candidates
            for high in range(1 << bit - lower)
            if _fits(windows, number := each | high << lower + 1, 1 << bit + 1)
        ]
        if not candidates or len(candidates) > 20_000:
            break
    return masks[-1] + 1, candidates


def _mask_bits(raw: bytes) -> list[int]:
    """Bits of the sum that are zero at every cut, ascending: everybody can tell them by a table of
    his own."""
    own = random.Random(SEED + 1).randbytes(256 * 8)
    numbers = struct.unpack(">256Q", own)
    seen, start = 0, 0
    for end in cut_points(raw, True, gear=own)[:-1]:
        if end - start != LONGEST_BYTES:
            window = raw[end - 63 : end + 1]
            seen |= functools.reduce(lambda sum, byte: (sum << 1) + numbers[byte] & (1 << 64) - 1, window, 0)
        start = end
    return [bit for bit in range(64) if not seen >> bit & 1]


def _window(raw: bytes, end: int) -> int:
    """Where the second letter stands among the 64 before a cut."""
    return functools.reduce(lambda found, place: found | (raw[end - place] == B) << place, range(64), 0)


def _fits(windows: Sequence[int], difference: int, modulus: int) -> bool:
    """Whether all points lie on half of the circle, as they do where one bit of each sum is
    zero."""
    half, base = modulus >> 1, difference * windows[0] % modulus
    least = most = 0
    for window in windows[1:]:
        value = (difference * window - base) % modulus
        if value >= half:
            value -= modulus
        least, most = min(least, value), max(most, value)
        if most - least >= half:
            return False
    return True
