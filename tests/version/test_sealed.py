"""What lies in an encrypted store, and that it works as any other: equal content once, moved packs,
readers that have nothing but the key."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from blake3 import blake3

from cowfs.errors import CorruptError
from cowfs.format import keys
from cowfs.format.sealed import Sealed
from cowfs.store import ObjectStore, initialize, load_record, open_store
from tests.version.repacking import move
from tests.version.working_volume import ReadingVolume, WorkingVolume

KEY = b"\x5a" * 32
WINDOW = 32
NAME = b"a-name-nobody-may-see.txt"
TEXT = b"".join(b"line %d of a text that everybody knows\n" % n for n in range(4000))
NOISE = random.Random(20262).randbytes(3 << 20)
SECRETS = {NAME: TEXT, b"noise.bin": NOISE, b"short": b"thirty-two bytes of a short file" * 2}


@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[ObjectStore]:
    store = open_store((tmp_path / "store").as_uri(), create=True)
    store.seal_with(Sealed(KEY, initialize(store).store_id))
    yield store
    store.close()


def objects(path: Path) -> dict[str, bytes]:
    """As somebody sees them who has no key."""
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def data_packs(path: Path) -> list[str]:
    return [key for key, data in objects(path).items() if keys.parse_pack(key) and data[10] == 1]


def filled(store: ObjectStore, home: Path, name: str = "v") -> WorkingVolume:
    volume = WorkingVolume(store, name, home)
    for path, data in SECRETS.items():
        volume.write(path, data)
    return volume


def test_no_object_shows_what_was_stored(sealed: ObjectStore, tmp_path: Path) -> None:
    with filled(sealed, tmp_path / "home") as volume:
        base = volume.commit("a-message-nobody-may-see")
    assert base.version_id is not None
    found = objects(tmp_path / "store")
    windows = {data[at : at + WINDOW] for data in SECRETS.values() for at in range(0, len(data) - WINDOW, 997)}
    hashes = {hash for data in SECRETS.values() for hash in (blake3(data).digest(), sealing_name(sealed, data))}
    words = {NAME, b"a-message-nobody", *(hash.hex().encode() for hash in hashes), *hashes}
    for key, data in found.items():
        seen = {data[at : at + WINDOW] for at in range(len(data) - WINDOW + 1)}
        assert not seen & windows, key
        assert not [word for word in words if word in data or word.decode("latin-1") in key], key
    with ReadingVolume(sealed, base.version_id, tmp_path / "reader") as reader:
        assert reader.tree() == SECRETS


def sealing_name(store: ObjectStore, data: bytes) -> bytes:
    return Sealed(KEY, load_record(store).store_id).name(data)


def test_equal_content_is_stored_once(sealed: ObjectStore, tmp_path: Path) -> None:
    with filled(sealed, tmp_path / "home") as volume:
        volume.commit()
        before = data_packs(tmp_path / "store")
        volume.write(b"again", NOISE)
        volume.commit()
    with WorkingVolume(sealed, "v", tmp_path / "other") as machine:  # it knows the catalogues alone
        machine.write(b"once more", NOISE)
        machine.commit()
    assert data_packs(tmp_path / "store") == before


def test_packs_that_have_moved_are_read(sealed: ObjectStore, tmp_path: Path) -> None:
    with filled(sealed, tmp_path / "home") as volume:
        base = volume.commit()
    assert base.version_id is not None
    for key in [key for key in objects(tmp_path / "store") if keys.parse_pack(key)]:
        pack = keys.parse_pack(key)
        assert pack is not None
        move(sealed, pack, 1)
    with ReadingVolume(sealed, base.version_id, tmp_path / "reader") as reader:
        assert reader.tree() == SECRETS


def test_another_key_opens_nothing(sealed: ObjectStore, tmp_path: Path) -> None:
    with filled(sealed, tmp_path / "home") as volume:
        base = volume.commit()
    assert base.version_id is not None
    other = open_store(sealed.url)
    other.seal_with(Sealed(bytes(32), load_record(other).store_id))
    with pytest.raises(CorruptError, match="cannot be opened with the store's key"):
        ReadingVolume(other, base.version_id, tmp_path / "reader")
    with pytest.raises(CorruptError, match="cannot be opened with the store's key"):
        WorkingVolume(other, "v", tmp_path / "writer")
