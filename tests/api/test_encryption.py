"""An encrypted store from programs: the mount's daemon gets the key from the program, and it is
found nowhere else; what lies in the store shows nothing of a wheel that everybody has."""

from __future__ import annotations

import dataclasses
import io
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from blake3 import blake3

from cowfs import DeclaredStore, storage
from cowfs.api import stores
from cowfs.blocking import ROVolume, RWVolume, Store, Volume
from cowfs.errors import AccessDeniedError, CorruptError, InvalidInputError
from cowfs.format import keys
from cowfs.format.codec import hash_of
from cowfs.format.key_slots import KeysRecord, Secret, first_record, new_slot
from cowfs.machine import registry
from cowfs.native.chunks import cut_points
from cowfs.storage import KeyCommand, KeyFile, Storage
from cowfs.store.credentials import unlocking
from cowfs.store.sealed import sealing_of

PASSPHRASE = "a passphrase that is found nowhere"
WINDOW = 32
EARLIER = Path(__file__).parent / "golden" / "encrypted-1"


@pytest.fixture(autouse=True)
def ambient(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in unlocking.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    yield
    unlocking.remember(None)


@pytest.fixture
def key_file(place: Path) -> Path:
    file = place / "key"
    file.write_bytes(bytes(range(200, 240)))
    return file


def url(place: Path) -> str:
    return (place / "store").as_uri()


def wheel() -> bytes:
    """Of the standard library: what somebody who looks for it has, too."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:  # stored, so that its members are in it as they are
        for path in sorted(Path(os.__file__).parent.glob("*.py"))[:120]:
            file.write(path, path.name)
    return data.getvalue()


def objects(place: Path) -> dict[str, bytes]:
    root = place / "store"
    return {str(each.relative_to(root)): each.read_bytes() for each in root.rglob("*") if each.is_file()}


def test_nothing_of_a_known_file_is_found_in_the_objects(place: Path, key_file: Path) -> None:
    files = {"known-1.0-py3-none-any.whl": wheel(), "zoneinfo-of-mine.txt": Path(os.__file__).read_bytes()}
    source = place / "source"
    (source / "a-directory-of-mine").mkdir(parents=True)
    for name, data in files.items():
        (source / "a-directory-of-mine" / name).write_bytes(data)
    store = storage.Local(place / "store", encryption_key=KeyFile(key_file))
    volume: RWVolume = Volume.new("v", store=store)
    volume.files.upload(source)
    volume.commit("a message of mine")
    volume.files.write("/again", files["known-1.0-py3-none-any.whl"])
    sealing = sealing_of(stores.open_store(store).objects)
    volume.commit("another message of mine", labels={"label-of-mine": "x"})

    windows, hashes = set(), set()
    for data in files.values():
        windows |= {data[at : at + WINDOW] for at in range(0, len(data) - WINDOW, 61)}
        for gear in (None, sealing.gear):
            ends = [0, *cut_points(data, True, 0, None, gear)]
            for begin, end in pairwise(ends):
                hashes |= {hash_of(data[begin:end]), sealing.name(data[begin:end])}
    names = [b"of-mine", b"known-1.0", b"of mine"]
    words = [*names, *hashes, *(each[:8] for each in hashes), *(each.hex().encode() for each in hashes)]
    found = objects(place)
    for key, stored in found.items():
        assert not windows & {stored[at : at + WINDOW] for at in range(len(stored) - WINDOW + 1)}, key
        assert not [word for word in words if word in stored or word.decode("latin-1") in key], key
        assert blake3(stored).digest() not in hashes
        if keys.parse_pack(key):
            assert stored.startswith(b"cowfspk\0\0\3"), key
        elif not key.startswith((keys.STORE, keys.KEYS)):
            assert stored.startswith(b"cowfssl\0\0\2"), key
    packs = sum(len(data) for key, data in found.items() if keys.parse_pack(key))
    assert packs < 1.5 * sum(len(data) for data in files.values())  # the wheel is there once


@pytest.mark.mount
def test_a_mount_has_the_key_from_its_program_and_nobody_else(place: Path) -> None:
    asked: list[int] = []

    def passphrase() -> str:
        asked.append(os.getpid())
        return PASSPHRASE

    store = Storage(url(place), encryption_key=passphrase)
    volume: RWVolume = Volume.new("v", store=store)
    mounted = volume.mount()
    (mounted / "file").write_bytes(b"x" * 100_000)
    locator = volume.commit().locator
    opened = stores.open_store(store)
    key = unlocking.store_key_of(opened.objects)
    assert key is not None
    [entry] = registry.list_mounts()
    process = Path(f"/proc/{entry.pid}")
    secrets = (PASSPHRASE.encode(), key.value, key.value.hex().encode())
    files = [path for path in place.rglob("*") if path.is_file() and mounted not in path.parents]
    for file in (*files, process / "cmdline", process / "environ"):
        assert not [each for each in secrets if each in file.read_bytes()], file
    assert not [each for each in secrets if each.decode("latin-1") in repr((store, opened, locator))]
    assert pickle.loads(pickle.dumps(store)).encryption_key is None
    volume.unmount()

    reader: ROVolume = Volume.from_locator(locator, store=store)
    assert (reader.mount() / "file").read_bytes() == b"x" * 100_000
    reader.unmount()
    assert set(asked) == {os.getpid()}
    stores._open.clear()
    with pytest.raises(AccessDeniedError, match="no passphrase or key"):
        Volume.from_locator(locator).files.read("/file")


@pytest.mark.mount
def test_a_daemon_shows_its_key_neither_in_its_environment_nor_in_a_core(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(unlocking.PASSPHRASE, PASSPHRASE)
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        volume: RWVolume = Volume.new("v", store=url(place))
        path = volume.mount()
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    (path / "file").write_bytes(b"x")
    volume.commit()
    [entry] = registry.list_mounts()
    process, before = Path(f"/proc/{entry.pid}"), set(os.listdir("/"))
    environ = (process / "environ").read_bytes()
    assert b"COWFS_STATE_DIR" in environ
    assert not [each for each in unlocking.VARIABLES if each.encode() in environ]
    [limit] = [line for line in (process / "limits").read_text().splitlines() if line.startswith("Max core file size")]
    assert limit.split()[4:6] == ["0", "0"]
    os.kill(entry.pid, signal.SIGABRT)
    while entry.process.is_there:
        time.sleep(0.01)
    assert set(os.listdir("/")) <= before  # its working directory
    volume.unmount()
    assert Volume.open("v", store=url(place)).files.read("file") == b"x"


def test_a_store_that_is_not_encrypted_takes_no_key(place: Path) -> None:
    Volume.new("v", store=url(place)).resolve()
    with pytest.raises(InvalidInputError, match="is not encrypted, and cannot become so"):
        Volume.new("w", store=Storage(url(place), encryption_key=PASSPHRASE)).resolve()
    with pytest.raises(InvalidInputError, match="is not encrypted"):
        storage.list_keys(url(place))


def test_keys_of_every_kind_open_a_store(place: Path, key_file: Path) -> None:
    def at(key: storage.EncryptionKey) -> Storage:
        return Storage(url(place), encryption_key=key)

    Volume.new("v", store=at(PASSPHRASE)).resolve()
    added = storage.add_key(KeyFile(key_file), at(PASSPHRASE), label="a file")
    assert [each.kind for each in storage.list_keys(at(KeyFile(key_file)))] == ["passphrase", "key"]
    first, second = storage.list_keys(at(KeyCommand(f"cat {key_file}")))
    assert second == added
    storage.remove_key(first.id, at(KeyFile(key_file)))
    stores._open.clear()
    with pytest.raises(AccessDeniedError, match="does not open"):
        Volume.open("v", store=at(PASSPHRASE)).resolve()
    with pytest.raises(InvalidInputError, match="is the last key"):
        storage.remove_key(second.id, at(KeyFile(key_file)))
    Volume.open("v", store=at(KeyFile(key_file))).resolve()


def test_what_was_taken_out_opens_a_mirror_until_it_is_taken_out_there(
    place: Path, key_file: Path, tmp_path: Path
) -> None:
    def at(store: Path, key: storage.EncryptionKey) -> Storage:
        stores._open.clear()
        return Storage(url(store), encryption_key=key)

    mirror, kept = tmp_path / "mirror", KeyFile(key_file)
    mirror.mkdir()
    volume: RWVolume = Volume.new("v", store=at(place, PASSPHRASE))
    volume.files.write("a", b"a")
    volume.commit()
    volume.finalize()
    storage.add_key(kept, at(place, PASSPHRASE))
    Store(storage=at(place, kept)).push("v", at(mirror, kept))
    first = storage.list_keys(at(place, kept))[0]
    storage.remove_key(first.id, at(place, kept))
    Store(storage=at(place, kept)).push("v", at(mirror, kept))
    assert Volume.open("v", store=at(mirror, PASSPHRASE)).files.read("a") == b"a"
    storage.remove_key(first.id, at(mirror, kept))
    with pytest.raises(AccessDeniedError, match="does not open"):
        Volume.open("v", store=at(mirror, PASSPHRASE)).resolve()


@pytest.mark.parametrize("is_signed", [True, False])
def test_a_push_uses_no_keys_that_somebody_has_prepared(place: Path, key_file: Path, is_signed: bool) -> None:
    source = Storage(url(place), encryption_key=KeyFile(key_file))
    volume: RWVolume = Volume.new("v", store=source)
    volume.files.write("a", b"a")
    volume.commit()
    secret, theirs = unlocking.of_file(key_file), b"k" * 32
    record = first_record(new_slot(theirs, secret), theirs, keys.key_slots(1))
    if not is_signed:  # as versions made them whose slots did not commit to their secret
        slot = dataclasses.replace(record.slots[0], format=1).wrapping(theirs, secret)
        record = dataclasses.replace(record, slots=(slot,), mac=None)
    prepared = record.encode(key=keys.key_slots(1))
    mirror = place / "mirror"
    (mirror / keys.KEYS).mkdir(parents=True)
    (mirror / keys.key_slots(1)).write_bytes(prepared)
    with pytest.raises(AccessDeniedError, match="another process has begun"):
        Store(storage=source).push("v", Storage(mirror.as_uri(), encryption_key=KeyFile(key_file)))
    assert [path.read_bytes() for path in mirror.rglob("*") if path.is_file()] == [prepared]


def test_a_command_that_makes_a_new_key_each_time_opens_nothing(place: Path, key_file: Path) -> None:
    changing = KeyCommand("head -c 32 /dev/urandom")
    with pytest.raises(InvalidInputError, match="differs each time"):
        Volume.new("v", store=Storage(url(place), encryption_key=changing)).resolve()
    kept = Storage(url(place), encryption_key=KeyFile(key_file))
    Volume.new("v", store=kept).resolve()
    with pytest.raises(InvalidInputError, match="differs each time"):
        storage.add_key(changing, kept)
    assert len(storage.list_keys(kept)) == 1


def test_a_declared_store_finds_its_passphrase(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", PASSPHRASE)
    declared = DeclaredStore(preset="local", path=str(place / "store"), encryption_key={"env": "SECRET_OF_MINE"})
    assert PASSPHRASE not in repr(declared)
    Volume.new("v", store=declared.storage()).resolve()
    assert [each.kind for each in storage.list_keys(Storage(url(place), encryption_key=PASSPHRASE))] == ["passphrase"]


def test_a_store_of_an_earlier_version_opens_and_gets_a_mac_with_the_next_change(place: Path, key_file: Path) -> None:
    """Made before slots committed to their secret and records had a MAC."""
    shutil.copytree(EARLIER, place / "store")
    key_file.write_text(bytes(range(100, 132)).hex())
    store = Storage(url(place), encryption_key=KeyFile(key_file))
    for key in ("correct horse battery staple", KeyFile(key_file)):
        stores._open.clear()
        assert Volume.open("diary", store=Storage(url(place), encryption_key=key)).files.read("today") == (
            b"nobody reads this\n"
        )
    opened = stores.open_store(store).objects
    before = unlocking.authentic_slots(opened)[1]
    assert before.mac is None
    assert [(each.kind, each.label) for each in storage.list_keys(store)] == [("passphrase", ""), ("key", "backup")]
    added = storage.add_key("another passphrase of mine", store)
    after = unlocking.authentic_slots(opened)[1]
    assert after.mac is not None
    assert [slot.format for slot in after.slots] == [1, 1, 2]
    for slot in before.slots:
        storage.remove_key(slot.id, store)
    stores._open.clear()
    store = Storage(url(place), encryption_key="another passphrase of mine")
    assert storage.list_keys(store) == [added]
    volume: RWVolume = Volume.open("diary", store=store)
    volume.files.write("today", b"changed")
    volume.commit()
    mirror = Storage((place / "mirror").as_uri(), encryption_key="another passphrase of mine")
    Store(storage=store).push("diary", mirror)
    assert Volume.open("diary", store=mirror).files.read("today") == b"changed"
    assert storage.list_keys(mirror) == [added]


def test_an_edited_label_is_refused_and_the_store_opens(place: Path, key_file: Path) -> None:
    store = Storage(url(place), encryption_key=KeyFile(key_file))
    Volume.new("v", store=store).resolve()
    storage.add_key(PASSPHRASE, store, label="contractor")
    [file] = (place / "store" / "keys").iterdir()
    record = KeysRecord.decode(file.read_bytes(), what="keys")
    file.chmod(0o644)
    slots = (record.slots[0], dataclasses.replace(record.slots[1], label="admin"))
    file.write_bytes(dataclasses.replace(record, slots=slots).encode(key=f"keys/{file.name}"))
    stores._open.clear()
    for call in (
        lambda: storage.list_keys(store),
        lambda: storage.remove_key(slots[0].id, store),
        lambda: storage.add_key("another passphrase of mine", store),
    ):
        with pytest.raises(CorruptError, match="cannot be trusted"):
            call()
    Volume.open("v", store=store).resolve()


def test_a_store_has_64_keys_at_most(place: Path, key_file: Path) -> None:
    store = Storage(url(place), encryption_key=KeyFile(key_file))
    Volume.new("v", store=store).resolve()
    opened = stores.open_store(store).objects
    key = unlocking.store_key_of(opened)
    assert key is not None
    more = tuple(new_slot(key.value, Secret("key", os.urandom(32))) for _ in range(63))
    unlocking.change_slots(opened, lambda slots: slots if set(more) <= set(slots) else (*slots, *more))
    with pytest.raises(InvalidInputError, match="at most 64 keys") as caught:
        storage.add_key(KeyCommand(f"cat {key_file}"), store)
    assert "cowfs key list" in caught.value.hint
    assert len(storage.list_keys(store)) == 64


@pytest.mark.parametrize("bad", ["", 7, []], ids=str)
def test_what_is_no_key_is_refused(bad: object) -> None:
    with pytest.raises(InvalidInputError, match="encryption_key"):
        Storage("s3://bucket", encryption_key=bad)  # type: ignore[arg-type]


@pytest.mark.mount
def test_workers_open_it_with_what_their_environment_names(place: Path, key_file: Path) -> None:
    store = Storage(url(place), encryption_key=KeyFile(key_file))
    volume: RWVolume = Volume.new("v", store=store)
    volume.files.write("/file", b"content")
    locator = volume.commit().locator
    code = f"import fsspec; print(fsspec.open({locator + '/file'!r}).open().read())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), unlocking.KEY_FILE: str(key_file)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "b'content'\n", done.stderr


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_contents_are_not_compressed_where_the_volume_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encrypted: bool
) -> None:
    """By uploads, mounts and copies alike; a volume beside it compresses."""
    monkeypatch.setenv("COWFS_STORE", str(tmp_path / "store"))
    if encrypted:
        monkeypatch.setenv("COWFS_ENCRYPTION_PASSPHRASE", "correct horse battery staple")
    source = tmp_path / "source"
    source.mkdir()
    lengths = {"small": 50_000, "large": 3_000_000}
    for number, name in enumerate(("uploaded", "written", "usual")):
        (source / name).mkdir()
        for file, length in lengths.items():
            (source / name / file).write_bytes(bytes([65 + number]) * length)
    raw: RWVolume = Volume.new("raw", compress=False).resolve()
    assert _grown(tmp_path, lambda: raw.files.upload(source / "uploaded", "/uploaded")) > sum(lengths.values())

    def write() -> None:
        for file in lengths:
            raw.files.write(f"/{file}", (source / "written" / file).read_bytes())
        raw.commit()

    assert _grown(tmp_path, write) > sum(lengths.values())
    raw.unmount()
    usual: RWVolume = Volume.new("usual").resolve()
    assert _grown(tmp_path, lambda: usual.files.upload(source / "usual", "/")) < 500_000
    assert [(each.name, each.is_compressed) for each in Store().volumes()] == [("raw", False), ("usual", True)]
    assert Volume.version("raw").files.read("/large") == b"B" * lengths["large"]


def _grown(tmp_path: Path, work: Callable[[], object]) -> int:
    """By how many bytes of packs."""

    def size() -> int:
        return sum(each.stat().st_size for each in (tmp_path / "store" / "packs").rglob("*") if each.is_file())

    before = size()
    work()
    return size() - before
