"""Making an encrypted store, and opening it: which secret, in which order, and what is said when
none fits."""

from __future__ import annotations

import base64
import contextlib
import math
import os
import pickle
import signal
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from cowfs.base.ids import WriteId
from cowfs.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from cowfs.format import keys
from cowfs.format.key_slots import Secret, Slot, first_record, new_slot
from cowfs.format.pack import PackKind
from cowfs.format.records import HeadRecord
from cowfs.format.sealed import Sealed
from cowfs.store import Access, ObjectInfo, ObjectStore, initialize, load_record, open_store
from cowfs.store.credentials import commands, unlocking
from cowfs.store.credentials.unlocking import StoreKey
from cowfs.store.packs import PackReader, PackUploader
from cowfs.store.refs import refs
from cowfs.store.sealed import sealing_of
from tests.faulty_store import Fault, FaultyStore

KEY = Secret("key", b"a key of thirty-two bytes or more")
OTHER = Secret("key", b"another key of thirty-two bytes..")


class Given:
    """A source that has this one, and counts how often it was asked."""

    def __init__(self, secret: Secret | None) -> None:
        self.asked = 0
        self._secret = secret

    def secret(self) -> Secret | None:
        self.asked += 1
        return self._secret


@pytest.fixture(autouse=True)
def no_other(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in unlocking.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    yield
    unlocking.remember(None)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


def opened(url: str, secret: Secret | StoreKey | None = None) -> ObjectStore:
    source = secret if secret is None or isinstance(secret, StoreKey) else Given(secret)
    return open_store(url, create=True, access=Access(key=source))


@pytest.fixture
def made(url: str) -> ObjectStore:
    store = opened(url, KEY)
    initialize(store)
    return store


def test_a_secret_makes_an_encrypted_store_and_opens_it(url: str, made: ObjectStore) -> None:
    record = load_record(opened(url, KEY))
    assert record.cipher is not None
    assert record.cipher.name == "aes-256-gcm"
    refs.append(made, refs.head("v"), 1, HeadRecord("create", None, 0, 1, WriteId(bytes(16))))
    reader = opened(url, KEY)
    load_record(reader)
    found = refs.newest(reader, refs.head("v"))
    assert found is not None
    assert found[1].kind == "create"


def test_every_kind_of_store_can_be_encrypted(shared_url: str) -> None:
    made = opened(shared_url, KEY)
    initialize(made)
    uploader = PackUploader(made, PackKind.DATA)
    at = uploader.add(made_name := sealing_of(made).name(b"content"), b"content")
    uploader.flush()
    uploader.close()
    reader = opened(shared_url, KEY)
    load_record(reader)
    found = PackReader(reader).read(at.pack, at.offset, at.stored_length, at.raw_length, at.codec, made_name)
    assert found == b"content"
    key = unlocking.store_key_of(made)
    assert key is not None
    other = new_slot(key.value, OTHER)
    unlocking.change_slots(reader, lambda _: (other,))
    load_record(opened(shared_url, OTHER))
    with pytest.raises(AccessDeniedError, match="does not open"):
        load_record(opened(shared_url, KEY))


def test_without_a_secret_nothing_is_encrypted(url: str) -> None:
    store = opened(url)
    assert initialize(store).cipher is None
    assert not isinstance(sealing_of(store), Sealed)
    assert not store.list(keys.KEYS)


def test_a_read_only_view_opens_as_its_store(url: str, made: ObjectStore) -> None:
    view = opened(url, KEY).read_only()
    load_record(view)
    assert sealing_of(view).name(b"x") == sealing_of(made).name(b"x")


def test_a_wrong_secret_fails_at_the_slot(url: str, made: ObjectStore) -> None:
    watched = FaultyStore(made)
    with pytest.raises(AccessDeniedError, match="does not open"):
        unlocking.key_of(watched, load_record(made), Given(OTHER))
    assert {key for method, key in watched.calls if method == "get"} <= {keys.key_slots(1), keys.key_slots(2)}
    with pytest.raises(AccessDeniedError, match="does not open") as caught:
        load_record(opened(url, OTHER))
    assert caught.value.details[unlocking.LOCKED] == url


def test_no_secret_says_what_to_set(url: str, made: ObjectStore) -> None:
    with pytest.raises(AccessDeniedError, match="no passphrase or key") as caught:
        load_record(opened(url))
    assert all(variable in caught.value.hint for variable in unlocking.VARIABLES)


def test_the_key_itself_opens_without_a_request_for_slots(url: str, made: ObjectStore) -> None:
    key = unlocking.store_key_of(made)
    assert key is not None
    watched = FaultyStore(made)
    assert unlocking.key_of(watched, load_record(made), key) == key.value
    assert not watched.calls
    with pytest.raises(AccessDeniedError, match="does not open"):
        load_record(opened(url, StoreKey(bytes(32))))


def test_a_store_that_is_not_encrypted_is_refused_when_a_key_was_given_for_it(url: str) -> None:
    """Somebody may have put it in the place of one that was."""
    initialize(opened(url))
    for secret in (KEY, StoreKey(bytes(32))):
        with pytest.raises(InvalidInputError, match="is not encrypted"):
            load_record(opened(url, secret))
        with pytest.raises(InvalidInputError, match="is not encrypted"):
            initialize(opened(url, secret))


def test_who_loses_the_race_against_a_plain_store_hears_of_it(url: str) -> None:
    class PlainFirst(FaultyStore):
        def put_if_absent(self, key: str, data: object) -> None:
            if key == keys.STORE:
                initialize(opened(url))
            super().put_if_absent(key, data)  # type: ignore[arg-type]

    store = opened(url, KEY)
    store._store = PlainFirst(store._store)  # type: ignore[attr-defined]
    with pytest.raises(InvalidInputError, match="is not encrypted"):
        initialize(store)


def test_a_crash_before_the_record_is_gone_on_from(url: str) -> None:
    store, place = opened(url, KEY), keys.key_slots(1)
    refs.append(store, refs.key_slots(), 1, first_record(new_slot(b"k" * 32, KEY), b"k" * 32, place))
    with pytest.raises(AccessDeniedError, match="another process has begun"):
        initialize(opened(url, OTHER))
    initialize(store)
    key = unlocking.store_key_of(store)
    assert key is not None
    assert key.value == b"k" * 32


@pytest.mark.parametrize("owner", [None, KEY])
@pytest.mark.parametrize("comer", [None, KEY, OTHER])
def test_no_store_is_made_over_one_whose_record_is_missing(
    url: str, owner: Secret | None, comer: Secret | None
) -> None:
    store = opened(url, owner)
    initialize(store)
    refs.append(store, refs.head("v"), 1, HeadRecord("create", None, 0, 1, WriteId(bytes(16))))
    record = store.get(keys.STORE)
    store.delete([keys.STORE])
    before = store.list("")
    with pytest.raises(CorruptError, match=r"has volumes, and its cowfs\.json is missing") as caught:
        initialize(opened(url, comer))
    assert "from a backup" in caught.value.hint
    assert store.list("") == before
    store.put(keys.STORE, record)
    assert load_record(opened(url, owner)).store_id == load_record(store).store_id


@pytest.mark.parametrize(
    ("key", "comer", "refused"),
    [(None, None, None), (KEY, KEY, None), (None, KEY, InvalidInputError), (KEY, OTHER, AccessDeniedError)],
)
def test_a_store_that_another_makes_with_a_volume_meanwhile_is_taken(
    url: str, key: Secret | None, comer: Secret | None, refused: type[CowfsError] | None
) -> None:
    class MadeMeanwhile(FaultyStore):
        def list(self, prefix: str, **options: Any) -> list[ObjectInfo]:
            if prefix == keys.VOLUMES:
                other = opened(url, key)
                initialize(other)
                refs.append(other, refs.head("v"), 1, HeadRecord("create", None, 0, 1, WriteId(bytes(16))))
            return super().list(prefix, **options)

    store = opened(url, comer)
    store._store = MadeMeanwhile(store._store)  # type: ignore[attr-defined]
    with pytest.raises(refused) if refused is not None else contextlib.nullcontext():
        assert initialize(store) == load_record(opened(url, key))


WORDS = unlocking.passphrase("five random words or more")


@pytest.mark.parametrize(
    ("secret", "prepare"),
    [
        (KEY, lambda slot: (new_slot(b"k" * 32, OTHER), slot)),
        (WORDS, lambda slot: (replace(slot, memory_kib=128 << 10).wrapping(b"k" * 32, WORDS),)),
        (KEY, lambda slot: (replace(slot, label="edited"),)),
    ],
    ids=["many", "dear", "edited"],
)
def test_nothing_is_made_with_keys_that_somebody_has_prepared(
    url: str, secret: Secret, prepare: Callable[[Slot], tuple[Slot, ...]]
) -> None:
    """Of many guesses at the secret one may be right: the store would have a key that they know."""
    store, place = opened(url), keys.key_slots(1)
    record = first_record(new_slot(b"k" * 32, secret), b"k" * 32, place)
    prepared = record.sign(b"k" * 32, place, slots=prepare(record.slots[0]))
    store.put(place, prepared.encode(key=place))
    with pytest.raises(AccessDeniedError, match="another process has begun") as caught:
        initialize(opened(url, secret))
    assert "delete the objects below keys/" in caught.value.hint
    assert [info.key for info in store.list("")] == [place]


def test_prepared_keys_under_a_later_number_are_refused(url: str) -> None:
    store = opened(url)
    for place in (keys.key_slots(1), keys.key_slots(2)):
        store.put(place, first_record(new_slot(b"k" * 32, KEY), b"k" * 32, place).encode(key=place))
    with pytest.raises(AccessDeniedError, match="another process has begun"):
        initialize(opened(url, KEY))


def test_prepared_keys_without_a_mac_are_refused(url: str) -> None:
    """Such slots open with several secrets each."""
    store, place = opened(url), keys.key_slots(1)
    made = first_record(new_slot(b"k" * 32, KEY), b"k" * 32, place)
    slot = replace(made.slots[0], format=1).wrapping(b"k" * 32, KEY)
    store.put(place, replace(made, slots=(slot,), mac=None).encode(key=place))
    with pytest.raises(AccessDeniedError, match="another process has begun"):
        initialize(opened(url, KEY))


def tampered(store: ObjectStore, change: Callable[[tuple[Slot, ...]], tuple[Slot, ...]]) -> None:
    """By somebody who can write to the bucket and has no key."""
    number, record = unlocking.newest_slots(store)
    place = keys.key_slots(number)
    store.put(place, replace(record, slots=change(record.slots)).encode(key=place))


@pytest.mark.parametrize("guess", [KEY, OTHER], ids=["right", "wrong"])
def test_a_guess_at_the_secret_is_answered_the_same_whether_it_is_right(
    url: str, made: ObjectStore, guess: Secret
) -> None:
    """A slot that wraps any key for a guess, before the real one, or alone."""
    foreign = new_slot(b"k" * 32, guess)
    tampered(made, lambda slots: (foreign, *slots))
    load_record(opened(url, KEY))
    tampered(made, lambda _: (foreign,))
    watched = FaultyStore(made)
    with pytest.raises(AccessDeniedError, match="does not open") as caught:
        unlocking.key_of(watched, load_record(made), Given(KEY))
    assert {key for method, key in watched.calls if method == "get"} <= {keys.key_slots(1), keys.key_slots(2)}
    without = str(caught.value), caught.value.hint, caught.value.details
    tampered(made, lambda _: (new_slot(b"k" * 32, OTHER),))
    with pytest.raises(AccessDeniedError) as caught:
        unlocking.key_of(watched, load_record(made), Given(KEY))
    assert (str(caught.value), caught.value.hint, caught.value.details) == without


def test_slots_that_somebody_without_the_key_has_changed_are_neither_listed_nor_changed(made: ObjectStore) -> None:
    """Swapped labels would make people remove the wrong one."""
    assert len(unlocking.authentic_slots(made)[1].slots) == 1
    tampered(made, lambda slots: (replace(slots[0], label="contractor"),))
    before = made.list(keys.KEYS)
    with pytest.raises(CorruptError, match="changed without the store's key") as caught:
        unlocking.authentic_slots(made)
    assert "history or a copy" in caught.value.hint
    with pytest.raises(CorruptError, match="changed without the store's key"):
        unlocking.change_slots(made, lambda slots: (*slots, new_slot(b"k" * 32, OTHER)))
    assert made.list(keys.KEYS) == before


def test_an_older_record_under_a_higher_number_is_refused(made: ObjectStore) -> None:
    """It would bring back what was removed."""
    number, record = unlocking.newest_slots(made)
    key = unlocking.store_key_of(made)
    assert key is not None
    slot = new_slot(key.value, OTHER)
    unlocking.change_slots(made, partial(with_slot, slot=slot))
    made.put(keys.key_slots(number + 2), record.encode(key=keys.key_slots(number + 2)))
    with pytest.raises(CorruptError, match="changed without the store's key"):
        unlocking.authentic_slots(made)


def test_a_slot_that_wants_much_memory_is_not_tried_unless_asked(
    url: str, made: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, secret = unlocking.store_key_of(made), unlocking.passphrase("a passphrase of mine")
    assert key is not None
    dear = replace(new_slot(key.value, secret), memory_kib=257 << 10).wrapping(key.value, secret)
    unlocking.change_slots(made, lambda _: (dear,))
    tried: list[Slot] = []
    unwrap = Slot.unwrap

    def unwrapped(slot: Slot, secret: Secret) -> bytes | None:
        tried.append(slot)
        return unwrap(slot, secret)

    monkeypatch.setattr(Slot, "unwrap", unwrapped)
    with pytest.raises(AccessDeniedError, match="does not open") as caught:
        load_record(opened(url, secret))
    assert not tried
    assert f"{unlocking.MEMORY}=257" in caught.value.hint
    monkeypatch.setenv(unlocking.MEMORY, "257")
    load_record(opened(url, secret))
    assert tried == [dear]
    monkeypatch.setenv(unlocking.MEMORY, "much")
    with pytest.raises(InvalidInputError, match="is 'much'"):
        load_record(opened(url, secret))


def test_an_edited_store_record_does_not_open(url: str, made: ObjectStore) -> None:
    """Its probe says whether puts need a condition."""
    record = load_record(made)
    edited = replace(record, probe=replace(record.probe, put_if_absent=False))
    made.put(keys.STORE, edited.encode())
    with pytest.raises(AccessDeniedError, match="does not open") as caught:
        load_record(opened(url, KEY))
    assert "may have been replaced" in caught.value.hint


def test_lost_keys_are_named(url: str, made: ObjectStore) -> None:
    made.delete([info.key for info in made.list(keys.KEYS)])
    for call in (load_record, initialize):
        with pytest.raises(NotFoundError, match="its keys are gone"):
            call(opened(url, KEY))


def test_slots_are_added_and_taken_out(url: str, made: ObjectStore) -> None:
    key = unlocking.store_key_of(made)
    assert key is not None
    first, other = unlocking.newest_slots(made)[1].slots[0], new_slot(key.value, OTHER)
    unlocking.change_slots(made, lambda _: (first, other))
    for secret in (KEY, OTHER):
        load_record(opened(url, secret))
    unlocking.change_slots(made, lambda _: (other,))
    load_record(opened(url, OTHER))
    with pytest.raises(AccessDeniedError, match="does not open"):
        load_record(opened(url, KEY))
    assert [info.key for info in made.list(keys.KEYS)] == [keys.key_slots(3)]


def test_what_an_interrupted_change_left_is_deleted_by_the_next(made: ObjectStore) -> None:
    number, record = unlocking.newest_slots(made)
    key = unlocking.store_key_of(made)
    assert key is not None
    refs.append(made, refs.key_slots(), number + 1, record.sign(key.value, keys.key_slots(number + 1)))

    def refuse(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        raise NotFoundError("there is no such slot")

    with pytest.raises(NotFoundError, match="no such slot"):
        unlocking.change_slots(made, refuse)
    assert [info.key for info in made.list(keys.KEYS)] == [keys.key_slots(number + 1)]


@pytest.mark.parametrize("may_repeat", [True, False])
@pytest.mark.parametrize("meanwhile", [1, 2, 3])
def test_all_who_change_slots_at_once_succeed_or_are_told(made: ObjectStore, meanwhile: int, may_repeat: bool) -> None:
    """Those who are done have deleted the record that the first one makes."""
    key = unlocking.store_key_of(made)
    assert key is not None
    before = {slot.id for slot in unlocking.newest_slots(made)[1].slots}
    mine, others = new_slot(key.value, KEY), [new_slot(key.value, OTHER) for _ in range(meanwhile)]
    calls = 0

    def change(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        nonlocal calls
        calls += 1
        if calls == 1:
            for other in others:
                unlocking.change_slots(made, partial(with_slot, slot=other))
        return with_slot(slots, mine)

    is_overtaken = meanwhile > 1 and not may_repeat
    with pytest.raises(ConflictError, match="at the same time") if is_overtaken else contextlib.nullcontext():
        unlocking.change_slots(made, change, may_repeat=may_repeat)
    number, record = unlocking.newest_slots(made)
    expected = {*before, *(slot.id for slot in others)} | (set() if is_overtaken else {mine.id})
    assert {slot.id for slot in record.slots} == expected
    assert [info.key for info in made.list(keys.KEYS)] == [keys.key_slots(number)]


@pytest.mark.parametrize("may_repeat", [True, False])
def test_a_record_that_is_replaced_before_it_is_read_back_is_a_conflict(
    made: ObjectStore, may_repeat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is deleted as an older one then, and nobody can tell whose it was."""
    key = unlocking.store_key_of(made)
    assert key is not None
    mine, first, second = (new_slot(key.value, KEY) for _ in range(3))
    read_ours = refs._read_ours
    asked: list[int] = []

    def change(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        if not asked:
            asked.append(1)
            unlocking.change_slots(made, partial(with_slot, slot=first))
            monkeypatch.setattr(refs, "_read_ours", replaced)
        return with_slot(slots, mine)

    def replaced(*arguments: Any) -> Any:
        monkeypatch.setattr(refs, "_read_ours", read_ours)
        unlocking.change_slots(made, partial(with_slot, slot=second))
        return read_ours(*arguments)

    with contextlib.nullcontext() if may_repeat else pytest.raises(ConflictError, match="at the same time"):
        unlocking.change_slots(made, change, may_repeat=may_repeat)
    found = unlocking.newest_slots(made)[1].slots
    assert {first, second} <= set(found)
    assert (mine in found) is may_repeat


@pytest.mark.usefixtures("patient_clock")
def test_a_change_whose_outcome_cannot_be_looked_at_is_unknown(made: ObjectStore) -> None:
    key = unlocking.store_key_of(made)
    assert key is not None
    faulty, mine = FaultyStore(made), new_slot(key.value, OTHER)

    def change(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        faulty.inject(Fault.LOSE_REPLY, "put_if_absent")
        faulty.inject(Fault.FAIL, "get", times=math.inf, error=AccessDeniedError("expired"))
        return with_slot(slots, mine)

    with pytest.raises(UnavailableError, match="is unknown: expired"):
        unlocking.change_slots(faulty, change)
    assert mine in unlocking.newest_slots(made)[1].slots


def with_slot(slots: tuple[Slot, ...], slot: Slot) -> tuple[Slot, ...]:
    return slots if slot in slots else (*slots, slot)


# -- where secrets come from


@pytest.mark.parametrize(
    ("stored", "value"),
    [
        (b"text with a line end, which is not a part of it\n", b"text with a line end, which is not a part of it"),
        (bytes(range(200, 240)) + b"\n", bytes(range(200, 240)) + b"\n"),
    ],
    ids=["text", "bytes"],
)
def test_a_key_file_and_a_command_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bytes, value: bytes
) -> None:
    file = tmp_path / "a key"
    file.write_bytes(stored)
    monkeypatch.setenv(unlocking.KEY_FILE, str(file))
    assert unlocking.AMBIENT_KEY.secret() == Secret("key", value)
    monkeypatch.delenv(unlocking.KEY_FILE)
    monkeypatch.setenv(unlocking.KEY_COMMAND, f"cat '{file}'")
    assert unlocking.AMBIENT_KEY.secret() == Secret("key", value)


def test_what_was_typed_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unlocking.AMBIENT_KEY.secret() is None
    monkeypatch.setenv(unlocking.PASSPHRASE, "of the environment")
    assert unlocking.AMBIENT_KEY.secret() == unlocking.passphrase("of the environment")
    unlocking.remember(unlocking.passphrase("typed"))
    assert unlocking.AMBIENT_KEY.secret() == unlocking.passphrase("typed")


def test_two_variables_are_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(unlocking.PASSPHRASE, "a passphrase")
    monkeypatch.setenv(unlocking.KEY_FILE, "/a/file")
    with pytest.raises(InvalidInputError, match="COWFS_ENCRYPTION_PASSPHRASE and COWFS_ENCRYPTION_KEY_FILE"):
        unlocking.AMBIENT_KEY.secret()


@pytest.mark.parametrize(
    ("command", "said"),
    [("false", "exit status 1"), ("true", "printed nothing"), ("/no/such/program", "cannot be run")],
)
def test_a_command_that_fails_says_how(command: str, said: str) -> None:
    with pytest.raises(AccessDeniedError, match=said):
        unlocking.of_command(command)


@pytest.mark.usefixtures("process_descriptors")
def test_a_command_is_not_waited_for_when_it_has_ended(tmp_path: Path) -> None:
    """It leaves an agent behind, which keeps its output open."""
    begun, value = tmp_path / "agent", "k" * 300_000
    script = tmp_path / "print"
    script.write_text(f"#!/bin/sh\nsleep 300 &\necho $! > {begun}\nhead -c {len(value)} /dev/zero | tr '\\0' k\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    try:
        began_s = time.monotonic()
        assert commands.run([str(script)], unlocking._failure) == (0, value.encode())
        assert time.monotonic() - began_s < commands.TIMEOUT_S
        os.kill(int(begun.read_text()), 0)
    finally:
        os.kill(int(begun.read_text()), signal.SIGKILL)


def test_what_an_agent_prints_after_the_end_of_a_command_is_no_answer(tmp_path: Path) -> None:
    script = '(while [ ! -e "$0" ]; do sleep 0.01; done; echo agent ready) & echo secret'
    for number in range(30):
        answered = tmp_path / str(number)
        try:
            assert commands.run(["sh", "-c", script, str(answered)], unlocking._failure) == (0, b"secret\n")
        finally:
            answered.touch()


@pytest.mark.usefixtures("process_descriptors")
def test_a_command_that_prints_without_end_is_refused() -> None:
    began_s = time.monotonic()
    with pytest.raises(AccessDeniedError, match="printed more than 1 MiB"):
        unlocking.of_command("yes")
    assert time.monotonic() - began_s < commands.TIMEOUT_S


@pytest.mark.usefixtures("process_descriptors")
def test_a_command_is_run_where_children_are_not_waited_for() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert commands.run(["echo", "secret"], unlocking._failure) == (0, b"secret\n")
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("process_descriptors")
def test_a_command_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "TIMEOUT_S", 0.3)
    for script in ("exec sleep 300", "exec 1>&-; exec sleep 300"):
        with pytest.raises(AccessDeniedError, match="has not ended"):
            unlocking.of_command(f"sh -c '{script}'")


def test_what_is_too_short_for_a_key_is_not_repeated(tmp_path: Path) -> None:
    script = tmp_path / "print"
    script.write_text("#!/bin/sh\necho short-secret\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(InvalidInputError, match="at least 32 bytes") as caught:
        unlocking.of_command(str(script))
    assert "short-secret" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o644])
def test_a_key_file_that_others_may_read_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    file, link = tmp_path / "key", tmp_path / "link"
    file.write_bytes(KEY.value)
    file.chmod(mode)
    link.symlink_to(file)  # as Kubernetes has it
    for _ in range(2):
        assert unlocking.of_file(link) == KEY
    warned = [each.getMessage() for each in caplog.records]
    assert [f"(mode {mode:04o}): `chmod 600`" in text for text in warned] == [True] * (mode & 0o77 != 0)


@pytest.mark.parametrize(
    ("text", "is_short"), [("a", True), ("elevenchars", True), ("twelve chars", False), ("büro büro b", True)]
)
def test_a_new_passphrase_that_is_short_is_warned_of(
    caplog: pytest.LogCaptureFixture, text: str, is_short: bool
) -> None:
    assert unlocking.steady(lambda: unlocking.passphrase(text)).value == text.encode()
    assert ["the passphrase is short" in each.getMessage() for each in caplog.records] == [True] * is_short


@pytest.mark.parametrize("weak", [b"a" * 32, b"ab" * 20, b"password" * 5 + b"pa", b"0" * 16 + b"1" * 16, bytes(64)])
def test_a_new_key_that_repeats_itself_is_refused_and_opens_what_it_opens(url: str, weak: bytes) -> None:
    secret = Secret("key", weak)
    with pytest.raises(InvalidInputError, match="not random") as caught:
        initialize(opened(url, secret))
    assert "umask 077" in caught.value.hint
    store = opened(url, KEY)
    initialize(store)
    key = unlocking.store_key_of(store)
    assert key is not None
    slot = new_slot(key.value, secret)
    unlocking.change_slots(store, partial(with_slot, slot=slot))
    load_record(opened(url, secret))


def test_random_keys_in_any_spelling_are_accepted() -> None:
    for seed in range(200):
        value = blake3(str(seed).encode()).digest()
        digits = str(int.from_bytes(value)).encode()[:32]
        for key in (value, value.hex().encode(), base64.b64encode(value), digits):
            unlocking.steady(partial(Secret, "key", key))


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(AccessDeniedError, match="No such file") as caught:
        unlocking.of_file(tmp_path / "nothing")
    assert "Name the file" in caught.value.hint


@pytest.mark.parametrize("stored", [b"", b"\n"])
def test_an_empty_key_file_is_called_so(tmp_path: Path, stored: bytes) -> None:
    file = tmp_path / "key"
    file.write_bytes(stored)
    with pytest.raises(AccessDeniedError, match="key is empty"):
        unlocking.of_file(file)


def test_keys_are_neither_shown_nor_pickled(made: ObjectStore) -> None:
    key = unlocking.store_key_of(made)
    assert key is not None
    for shown in (repr(key), repr(Access(key=key)), repr(sealing_of(made)), str(ConflictError(key.value.hex()))):
        assert key.value.hex() not in shown
    with pytest.raises(TypeError):
        pickle.dumps(key)
