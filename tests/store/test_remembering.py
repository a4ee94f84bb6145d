"""What a machine has seen of a store counts: what was replaced or put back since is refused, until
somebody accepts it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from cowfs.api.mounts.overview import volumes_of
from cowfs.base.ids import StoreId, VersionId, WriteId
from cowfs.blocking import Store
from cowfs.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    NotFoundError,
)
from cowfs.format import keys
from cowfs.format.key_slots import KeysRecord, Secret, new_slot
from cowfs.format.records import Cipher, HeadRecord, StoreRecord, TagRecord
from cowfs.format.store_record import AES_256_GCM
from cowfs.machine import known_stores
from cowfs.machine.known_stores import PLAIN, KnownStore, Mark
from cowfs.maintain.check.verify import Scope
from cowfs.maintain.collect.roots import RootReader
from cowfs.storage import accept_store
from cowfs.store import ObjectStore, initialize, load_record, open_store
from cowfs.store.credentials import unlocking
from cowfs.store.refs import refs
from cowfs.store.remembering import memory_of
from cowfs.version.names import tags
from cowfs.version.names.volumes import create_volume, find_head, read_head
from cowfs.version.publish import seen

pytestmark = pytest.mark.quick

LATER = (2, 3)
KEY = bytes(range(100, 140))
HEAD = refs.head("v")
TAG = refs.tag("v", "t")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COWFS_STATE_DIR", str(tmp_path / "state"))
    for name in (*unlocking.VARIABLES, unlocking.REQUIRED):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "state"


@pytest.fixture(params=["plain", "encrypted"])
def key_file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "encrypted":
        (tmp_path / "key").write_bytes(KEY)
        monkeypatch.setenv(unlocking.KEY_FILE, str(tmp_path / "key"))


@pytest.fixture
def url(shared_url: str, key_file: None) -> str:
    """Of a store with a volume of three heads and a tag of two records, which this machine has put
    there."""
    with closing(open_store(shared_url, create=True)) as store:
        initialize(store)
        create_volume(store, "v")
        for number in LATER:
            put_head(store, number)
        for number in (1, 2):
            refs.append(store, TAG, number, tag(number))
    return shared_url


@pytest.fixture
def store(url: str) -> Iterator[ObjectStore]:
    """As the next process opens it."""
    with closing(opened(url)) as store:
        yield store


@pytest.fixture
def other(url: str) -> Iterator[ObjectStore]:
    """What others do to it."""
    with closing(opened(url, remembers=False)) as store:
        yield store


def opened(url: str, *, remembers: bool = True) -> ObjectStore:
    store = open_store(url, remembers=remembers)
    load_record(store)
    return store


def head(number: int, prev: str | None) -> HeadRecord:
    version = VersionId(bytes([number]) * 32)
    return HeadRecord("commit", version, 1, number, WriteId(os.urandom(16)), prev=prev)


def put_head(store: ObjectStore, number: int) -> HeadRecord:
    return refs.append(store, HEAD, number, head(number, refs.read(store, HEAD, number - 1).check))


def tag(number: int) -> TagRecord:
    return TagRecord(VersionId(bytes([number]) * 32), number, WriteId(os.urandom(16)))


def put_back(other: ObjectStore, *numbers: int) -> None:
    other.delete([keys.head("v", number) for number in numbers])


READS: dict[str, Callable[[ObjectStore], object]] = {
    "newest": lambda store: refs.newest(store, HEAD),
    "likely": lambda store: find_head(store, "v", likely=2),
    "read_head": lambda store: read_head(store, "v"),
    "opening": lambda store: seen.read_seen(store, "v", seen.list_objects(store, "v")),
    "history": lambda store: refs.history(store, HEAD),
}


@pytest.mark.parametrize("read", READS)
def test_heads_that_were_put_back_are_refused(store: ObjectStore, other: ObjectStore, url: str, read: str) -> None:
    READS[read](store)
    put_back(other, 3)
    with pytest.raises(
        InvalidStateError, match=r"put back to an earlier state: .* number 2.* saw number 3 on 2"
    ) as told:
        READS[read](store)
    assert "cowfs store accept --volume v" in told.value.hint
    (accepted,) = accept_store(url, volume="v")
    assert accepted.subject == "volume v"
    assert "number 3" in accepted.known
    assert ", seen 2" in accepted.known
    assert "number 2" in accepted.now
    READS[read](store)
    assert accept_store(url, volume="v") == []


def test_a_volume_that_was_put_back_does_not_hide_the_others(store: ObjectStore, other: ObjectStore, url: str) -> None:
    Store(url).create("w")
    READS["newest"](store)
    put_back(other, 3)
    found = {volume.name: volume.problem for volume in Store(url).volumes()}
    assert found["w"] is None
    assert "put back to an earlier state" in (found["v"] or "")


def test_a_lost_record_below_the_newest_is_accepted(store: ObjectStore, other: ObjectStore, url: str) -> None:
    refs.newest(store, HEAD)
    refs.append(other, HEAD, 4, head(4, "0" * 64))
    other.delete([keys.head("v", 3)])
    assert [each.subject for each in accept_store(url)] == ["volume v"]
    assert refs.newest(store, HEAD) == (4, refs.read(store, HEAD, 4))


def test_no_head_takes_the_place_of_one_that_was_lost(store: ObjectStore, other: ObjectStore) -> None:
    known = refs.read(store, HEAD, 2)
    put_back(other, 3)
    with pytest.raises(InvalidStateError, match="put back"):
        refs.append(store, HEAD, 3, head(3, known.check))
    assert other.size(keys.head("v", 3)) is None
    with pytest.raises(InvalidStateError, match="put back"):
        refs.append(store, HEAD, 2, head(2, None))


def test_who_comes_second_is_told_as_ever(store: ObjectStore, other: ObjectStore) -> None:
    """The number is taken by another process of this machine."""
    known = refs.read(store, HEAD, 2)
    with pytest.raises(ConflictError):
        refs.append(store, HEAD, 3, head(3, known.check))
    again = refs.read(store, HEAD, 3)
    assert refs.append(store, HEAD, 3, again) == again, "ours, put again after a doubt"


def test_tags_that_were_put_back_are_refused(store: ObjectStore, other: ObjectStore, url: str) -> None:
    other.delete([keys.tag("v", "t", 2)])
    for read in (lambda: tags.find_tag(store, "v", "t"), lambda: tags.all_tags(store, "v")):
        with pytest.raises(InvalidStateError, match="tag t of volume v is number 1"):
            read()
    other.delete([keys.tag("v", "t", 1)])
    for read in (lambda: tags.find_tag(store, "v", "t"), lambda: tags.all_tags(store, "v")):
        with pytest.raises(InvalidStateError, match="tag t of volume v is not there"):
            read()
    assert [each.now for each in accept_store(url)] == ["none"]
    assert tags.all_tags(store, "v") == []


@pytest.mark.parametrize("key_file", ["encrypted"], indirect=True)
def test_keys_that_were_put_back_are_refused(store: ObjectStore, other: ObjectStore, url: str) -> None:
    first = other.get(keys.key_slots(1))
    key = unlocking.store_key_of(store)
    assert key is not None
    slot = new_slot(key.value, Secret("key", os.urandom(32)))
    unlocking.change_slots(store, lambda slots: slots if slot in slots else (*slots, slot))
    second = other.get(keys.key_slots(2))
    other.delete([keys.key_slots(2)])
    other.put(keys.key_slots(1), first)
    with pytest.raises(
        InvalidStateError, match="the keys of the store is number 1, and this machine saw number 2"
    ) as told:
        unlocking.authentic_slots(store)
    assert "--volume" not in told.value.hint
    other.put(keys.key_slots(2), second)
    assert unlocking.authentic_slots(store)[0] == 2
    assert accept_store(url) == []
    other.delete([keys.key_slots(2)])
    assert [each.subject for each in accept_store(url)] == ["keys"]
    assert unlocking.authentic_slots(store)[0] == 1


@pytest.mark.parametrize("key_file", ["encrypted"], indirect=True)
def test_only_keys_that_are_signed_are_remembered(store: ObjectStore, other: ObjectStore) -> None:
    number, record = unlocking.authentic_slots(store)
    earlier = new_slot(os.urandom(32), Secret("key", KEY))
    unsigned = KeysRecord((replace(earlier, wrapped=bytes(48), format=1),), 1, WriteId(os.urandom(16)))
    for forged in (record, unsigned):
        other.put(keys.key_slots(1000), forged.encode())
        with pytest.raises(CorruptError, match="were changed without the store's key"):
            unlocking.authentic_slots(store)
    other.delete([keys.key_slots(1000)])
    assert unlocking.authentic_slots(store) == (number, record)


def test_a_volume_that_a_list_does_not_show_is_missed(store: ObjectStore, other: ObjectStore, url: str) -> None:
    create_volume(store, "w")
    assert {each.name for each in volumes_of(url)} >= {"w"}
    other.delete([info.key for info in other.list(keys.volume("w"))])
    assert [each.problem is None for each in volumes_of(url)] == [True, False]
    assert "no volume 'w' any more" in str(volumes_of(url)[1].problem)
    (damaged,) = Scope.of_store(store).records
    assert (damaged.volume, "no volume 'w' any more" in damaged.problem) == ("w", True)
    assert "w" not in {each.name for each in volumes_of(url, deleted=True)}
    accept_store(url)
    assert "w" not in {each.name for each in volumes_of(url)}


def test_what_a_list_does_not_show_is_no_garbage(store: ObjectStore, other: ObjectStore, url: str) -> None:
    create_volume(store, "w")
    RootReader(store).read()
    hidden = {info.key: other.get(info.key) for info in other.list(keys.tags_prefix("v"))}
    other.delete(hidden)
    with pytest.raises(InvalidStateError, match="tag t of volume v is not there"):
        RootReader(store).read()
    for key, data in hidden.items():
        other.put(key, data)
    other.delete([info.key for info in other.list(keys.volume("w"))])
    with pytest.raises(NotFoundError, match="no volume 'w' any more"):
        RootReader(store).read()
    accept_store(url)
    RootReader(store).read()


def test_a_volume_that_cannot_be_seen_is_not_made_anew(store: ObjectStore, other: ObjectStore, url: str) -> None:
    other.delete([info.key for info in other.list(keys.volume("v"))])
    with pytest.raises(NotFoundError, match="no volume 'v' any more") as told:
        read_head(store, "v")
    assert "saw its head 3 on 2" in told.value.hint
    with pytest.raises(CowfsError, match="no volume 'v' any more"):
        create_volume(store, "v")
    assert other.list(keys.head_prefix("v")) == []
    accept_store(url, volume="v")
    create_volume(store, "v")


def test_another_head_of_the_same_number_is_refused(store: ObjectStore, other: ObjectStore, url: str) -> None:
    other.put(keys.head("v", 3), head(3, refs.read(store, HEAD, 2).check).encode(key=keys.head("v", 3)))
    for read in READS.values():
        with pytest.raises(InvalidStateError, match="shows another number 3"):
            read(store)
    assert len(accept_store(url)) == 1
    refs.newest(store, HEAD)


def test_two_heads_seen_under_one_number_are_refused_until_one_is_accepted(store: ObjectStore, url: str) -> None:
    known = memory_of(store)
    assert known is not None
    known.saw("v", "head", 3, "0" * 64, None)  # as another process does that was shown another one
    for read in READS.values():
        with pytest.raises(InvalidStateError, match="shows another number 3"):
            read(store)
    assert len(accept_store(url)) == 1
    refs.newest(store, HEAD)


@pytest.mark.parametrize("more", [1, 2, 3])
@pytest.mark.parametrize("is_hidden", [False, True])
def test_a_line_that_another_machine_was_shown_is_found(
    store: ObjectStore, other: ObjectStore, url: str, more: int, is_hidden: bool
) -> None:
    """The other one wrote behind another head 3; is_hidden: this one gets its own again."""
    ours = other.get(keys.head("v", 3))
    put_back(other, 3)
    for number in range(3, 4 + more):
        put_head(other, number)
    if is_hidden:
        other.put(keys.head("v", 3), ours)
    for read in READS.values():
        with pytest.raises(CowfsError, match="another number 3"):
            read(store)
    (accepted,) = accept_store(url, volume="v")
    assert f"number {3 + more} " in accepted.now
    assert refs.newest(store, HEAD) == (3 + more, refs.read(store, HEAD, 3 + more))
    assert accept_store(url) == []


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_head_that_is_hidden_does_not_hide_another_line(
    store: ObjectStore, other: ObjectStore, url: str, is_damaged: bool
) -> None:
    """It would say which head it was put behind."""
    for number in range(4, 7):
        put_head(other, number)
    whole = other.get(keys.head("v", 4))
    other.delete([keys.head("v", 4)])
    if is_damaged:
        other.put(keys.head("v", 4), whole[:-9] + b"!" + whole[-8:])
    for read in READS.values():
        with pytest.raises(CowfsError, match=r"number 4|head 4"):
            read(store)
    other.put(keys.head("v", 4), whole)
    for read in READS.values():
        read(store)


def test_what_others_go_on_with_is_taken_up(store: ObjectStore, other: ObjectStore, state: Path) -> None:
    for number in range(4, 9):
        put_head(other, number)
        if number in (4, 7):
            assert (refs.newest(store, HEAD) or (0,))[0] == number
    marks = [path.name for path in state.rglob("head@*")]
    assert [name.split("@")[1] for name in marks] == ["7"]


def test_what_came_before_the_look_at_the_memory_alone_counts(
    store: ObjectStore, other: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process of this machine may see more while this one asks the store."""
    listed = refs.newest_listed

    def meanwhile(store: ObjectStore, ref: refs.Ref[HeadRecord]) -> int:
        found = listed(store, ref)
        memory = memory_of(store)
        assert memory is not None
        memory.saw("v", "head", 9, "0" * 64, None)
        return found

    monkeypatch.setattr(refs, "newest_listed", meanwhile)
    assert (refs.newest(store, HEAD) or (0,))[0] == 3


def climb(url: str, state: str, numbers: list[int]) -> None:
    os.environ["COWFS_STATE_DIR"] = state
    known = KnownStore(url)
    for number in numbers:
        before = known.newest("v", "head")
        if before is None or before.number < number:
            known.saw("v", "head", number, f"{number:064x}", before)


def test_processes_never_lower_each_others_marks(state: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    drawn = random.Random(seed)
    numbers = [drawn.sample(range(1, 10_000), 200) for _ in range(4)]
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as processes:
        for done in [processes.submit(climb, "file:///x", str(state), each) for each in numbers]:
            done.result()
    highest = max(map(max, numbers))
    known = KnownStore("file:///x").newest("v", "head")
    assert known is not None
    assert (known.number, known.check) == (highest, f"{highest:064x}")
    assert len(list(state.rglob("head@*"))) == 1


def test_a_state_directory_that_cannot_be_written_forgets(
    url: str, other: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("COWFS_STATE_DIR", str(tmp_path / "file/state"))
    put_back(other, 3)
    with closing(opened(url)) as store:
        for read in READS.values():
            read(store)
        put_head(store, 3)
        initialize(store)
        load_record(store)


def test_a_memory_that_others_can_change_is_refused(url: str, state: Path) -> None:
    (state / "stores").chmod(0o770)
    with pytest.raises(AccessDeniedError, match="can write to"):
        opened(url)
    (state / "stores").chmod(0o700)
    with closing(opened(url)) as store:
        load_record(store)


def test_what_is_remembered_is_bounded(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_stores, "MOST_TAGS", 5)
    monkeypatch.setattr(known_stores, "MOST_VOLUMES", 6)
    monkeypatch.setattr(known_stores, "MOST_STORES", 7)
    for number in range(9):
        known = KnownStore(f"file:///{number}")
        known.remember(StoreId(bytes(16)), PLAIN)
        for volume in range(9):
            for each in range(9):
                known.saw(f"v{volume}", f"tag@{each}", 1, "0", None)
            known.saw(f"v{volume}", "head", 1, "0", Mark(0, ""))
    stores = [path for path in (state / "stores").iterdir() if path.is_dir()]
    assert len(stores) == 7
    assert {len(list(path.iterdir())) for path in stores} == {6}
    assert {len(list(volume.iterdir())) for path in stores for volume in path.iterdir()} == {6 + 1}
    assert known_stores.was_used("file:///0"), "that is not forgotten"


def test_a_store_that_is_used_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_stores, "MOST_STORES", 3)
    ours = KnownStore("file:///ours")
    ours.remember(StoreId(bytes(16)), PLAIN)
    ours.saw("v", "head", 1, "0", None)
    for number in range(6):
        other = KnownStore(f"file:///{number}")
        other.remember(StoreId(bytes(16)), PLAIN)
        os.utime(known_stores.note(f"file:///{number}"), ns=(number, number))
        other.saw("v", "head", 1, "0", None)
    assert ours.newest("v", "head") is not None
    assert KnownStore("file:///0").newest("v", "head") is None


def record_of(url: str) -> StoreRecord:
    with closing(open_store(url, remembers=False)) as store:
        return StoreRecord.decode(store.get(keys.STORE), what="x")


def replace_record(url: str, record: StoreRecord) -> None:
    with closing(open_store(url, remembers=False)) as store:
        store.put(keys.STORE, record.encode())


@pytest.mark.parametrize("is_same_id", [False, True])
def test_a_store_that_was_replaced_is_refused_before_anything_of_it_is_used(
    url: str, store: ObjectStore, is_same_id: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = record_of(url)
    other = replace(before, store_id=before.store_id if is_same_id else StoreId(bytes(16)))
    if before.cipher is not None:
        other = replace(other, cipher=None)
    elif is_same_id:
        other = replace(other, cipher=Cipher(AES_256_GCM, bytes(16)))
    replace_record(url, other)
    words = {(False, True): "is encrypted, and was not", (False, False): "is another store"}
    with pytest.raises(
        InvalidStateError, match=words.get((before.cipher is not None, is_same_id), "is not encrypted, and was")
    ) as told:
        opened(url)
    assert "cowfs store accept" in told.value.hint
    with pytest.raises(InvalidStateError):
        accept_store(url, volume="v")
    if before.cipher is None and not is_same_id:
        (accepted,) = accept_store(url)
        assert (accepted.subject, accepted.now) == ("store", f"{'0' * 32}, not encrypted")
        opened(url).close()
        assert KnownStore(url).volumes() == [], "they were those of the other store"
    replace_record(url, before)


def test_another_key_is_refused_before_the_secret_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with a key of the attacker's, wrapped for a passphrase that he knows."""
    monkeypatch.setenv(unlocking.PASSPHRASE, "correct horse battery staple")
    for name in ("one", "two"):
        with closing(open_store(str(tmp_path / name), create=True)) as store:
            initialize(store)
    for name in ("keys", "cowfs.json"):
        (tmp_path / "one" / name).rename(tmp_path / f"old {name}")
        (tmp_path / "two" / name).rename(tmp_path / "one" / name)
    record = replace(record_of(str(tmp_path / "one")), store_id=record_of_old(tmp_path).store_id)
    (tmp_path / "one/cowfs.json").write_bytes(record.encode())
    with monkeypatch.context() as patch:
        patch.setattr(unlocking, "key_of", None)
        with pytest.raises(InvalidStateError, match="has another key than when"):
            opened(str(tmp_path / "one"))


def record_of_old(tmp_path: Path) -> StoreRecord:
    return StoreRecord.decode((tmp_path / "old cowfs.json").read_bytes(), what="x")


def test_a_note_of_an_earlier_cowfs_says_what_it_knows(url: str, state: Path) -> None:
    """Which store it was, and not whether it was encrypted."""
    place = known_stores.note(open_store(url).url)
    store_id = record_of(url).store_id
    place.write_text(f'{{"format": 1, "url": "x", "store_id": "{store_id.hex()}"}}')
    opened(url).close()
    known = KnownStore(open_store(url).url).load()
    assert known is not None
    assert known.cipher is not None
    place.write_text(f'{{"format": 1, "url": "x", "store_id": "{bytes(16).hex()}"}}')
    with pytest.raises(InvalidStateError, match="another store"):
        opened(url)


def test_required_encryption_refuses_what_is_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(open_store(str(tmp_path / "plain"), create=True)) as store:
        initialize(store)
        monkeypatch.setenv(unlocking.REQUIRED, "required")
        with pytest.raises(InvalidInputError, match="is not encrypted, and COWFS_ENCRYPTION=required"):
            load_record(store)
    with closing(open_store(str(tmp_path / "new"), create=True)) as store:
        with pytest.raises(InvalidInputError, match="would not be encrypted"):
            initialize(store)
        assert store.list("") == []
        (tmp_path / "key").write_bytes(KEY)
        monkeypatch.setenv(unlocking.KEY_FILE, str(tmp_path / "key"))
        assert initialize(store).cipher is not None
    monkeypatch.setenv(unlocking.REQUIRED, "yes")
    with pytest.raises(InvalidInputError, match="COWFS_ENCRYPTION is 'yes'"):
        opened(str(tmp_path / "new"))
