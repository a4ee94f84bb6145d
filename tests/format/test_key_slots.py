"""Slots: which secret opens which, and what a slot may ask for."""

from __future__ import annotations

import dataclasses
import pickle
import unicodedata
from typing import Any

import pytest

from cowfs.base.ids import WriteId
from cowfs.errors import CorruptError, InvalidInputError, UnsupportedFormatError
from cowfs.format import canonical, fields, keys
from cowfs.format.key_slots import KeysRecord, Secret, Slot, first_record, new_slot
from cowfs.format.records import StoreRecord
from cowfs.format.sealed import is_key_of
from tests.format.samples import GOLDEN, SIGNED_SLOTS, SLOTS

STORE_KEY = bytes(range(32))
PASSPHRASE = Secret("passphrase", b"correct horse battery staple")
KEY = Secret("key", bytes(range(100, 132)))


@pytest.mark.parametrize("file", ["keys.json", "keys-signed.json"])
def test_the_golden_slots_open_with_what_the_page_says(file: str) -> None:
    record = KeysRecord.decode((GOLDEN / file).read_bytes(), what="keys")
    assert record.is_signed(STORE_KEY, keys.key_slots(1))
    assert [slot.unwrap(secret) for slot, secret in zip(record.slots, (PASSPHRASE, KEY), strict=True)] == [
        STORE_KEY
    ] * 2


@pytest.mark.parametrize("secret", [PASSPHRASE, KEY], ids=["passphrase", "key"])
def test_a_slot_opens_with_its_secret_alone(secret: Secret) -> None:
    slot = new_slot(STORE_KEY, secret, label="x")
    other: Any = {"passphrase": "key", "key": "passphrase"}[secret.kind]
    wrong = (Secret(secret.kind, secret.value + b"!"), Secret(other, bytes(32) if other == "key" else secret.value))
    assert slot.unwrap(secret) == STORE_KEY
    assert [slot.unwrap(each) for each in wrong] == [None, None]


@pytest.mark.quick
@pytest.mark.parametrize("slot", [SLOTS[1], SIGNED_SLOTS[1]], ids=["earlier", "committing"])
@pytest.mark.parametrize(
    "change", [{"label": "bob"}, {"id": "00000000"}, {"created_ns": 1}, {"salt": bytes(16)}, {"wrapped": b"short"}]
)
def test_a_slot_that_was_changed_opens_no_more(slot: Slot, change: dict[str, Any]) -> None:
    assert slot.unwrap(KEY) == STORE_KEY
    assert dataclasses.replace(slot, **change).unwrap(KEY) is None


@pytest.mark.quick
def test_a_slot_of_one_format_does_not_open_as_the_other() -> None:
    old, new = SLOTS[1], SIGNED_SLOTS[1]
    assert dataclasses.replace(new, format=1, wrapped=new.wrapped[:48]).unwrap(KEY) is None
    assert dataclasses.replace(old, format=2).unwrap(KEY) is None
    assert dataclasses.replace(new, wrapped=new.wrapped[:48] + bytes(32)).unwrap(KEY) is None


@pytest.mark.quick
def test_a_new_slot_commits_to_its_secret() -> None:
    """A ciphertext that AES-GCM opens under the keys of two secrets opens for one of them at most:
    the commitment of a slot is that of one secret."""
    slot = new_slot(STORE_KEY, KEY)
    aes, tag_key = slot._keys(KEY.value)
    _, other = slot._keys(bytes(32))
    sealed = slot.wrapped[:48]
    assert aes.decrypt(bytes(12), sealed, slot._encode_body()) == STORE_KEY
    assert slot.wrapped[48:] == slot._commitment(tag_key, sealed) != slot._commitment(other, sealed)


@pytest.mark.quick
def test_two_slots_of_one_secret_have_nothing_in_common() -> None:
    one, other = new_slot(STORE_KEY, KEY), new_slot(STORE_KEY, KEY)
    assert one.id != other.id
    assert one.wrapped != other.wrapped


@pytest.mark.quick
@pytest.mark.parametrize(
    "change",
    [
        {"memory_kib": (1 << 20) + 1},
        {"passes": 17},
        {"lanes": 65},
        {"memory_kib": 0},
        {"memory_kib": 8},
        {"memory_kib": (64 << 10) - 1},
        {"passes": 2},
        {"wrapped": "00" * 47},
        {"wrapped": "00" * 49},
        {"wrapped": "00" * 80},
        {"wrapped": ""},
        {"wrapped": "00" * (1 << 20)},
        {"salt": "00"},
        {"salt": "zz"},
        {"id": "x"},
        {"label": "a" * 129},
        {"label": "\x1b[2J"},
    ],
)
def test_a_slot_that_is_too_dear_too_cheap_or_too_long_is_damage(change: dict[str, Any]) -> None:
    """Before it is paid for: anybody may have written it who can write to the bucket."""
    body = canonical.decode((GOLDEN / "keys.json").read_bytes(), what="x")
    body["slots"][0] |= change
    data = fields.seal("keys", 1, {key: body[key] for key in ("slots", "created_ns", "write_id")})
    with pytest.raises(CorruptError):
        KeysRecord.decode(data, what="keys")


@pytest.mark.quick
@pytest.mark.parametrize("length", [48, 79, 81, 1 << 20])
def test_a_new_slot_has_one_length(length: int) -> None:
    body = canonical.decode((GOLDEN / "keys-signed.json").read_bytes(), what="x")
    body["slots"][1]["wrapped"] = "00" * length
    data = fields.seal("keys", 2, {key: body[key] for key in ("slots", "created_ns", "write_id", "mac")})
    with pytest.raises(CorruptError, match="another length"):
        KeysRecord.decode(data, what="keys")


@pytest.mark.quick
def test_a_slot_of_a_later_format_is_named() -> None:
    body = canonical.decode((GOLDEN / "keys-signed.json").read_bytes(), what="x")
    body["slots"][1]["format"] = 3
    data = fields.seal("keys", 2, {key: body[key] for key in ("slots", "created_ns", "write_id", "mac")})
    with pytest.raises(UnsupportedFormatError, match="has format 3"):
        KeysRecord.decode(data, what="keys")


@pytest.mark.quick
def test_a_record_has_64_slots_at_most() -> None:
    """Each is a guess at the secret of who opens the store."""
    body = canonical.decode((GOLDEN / "keys.json").read_bytes(), what="x")
    slots = [body["slots"][1] | {"id": f"{n:08x}"} for n in range(65)]
    rest = {key: body[key] for key in ("created_ns", "write_id")}
    KeysRecord.decode(fields.seal("keys", 1, {"slots": slots[:64], **rest}), what="keys")
    with pytest.raises(CorruptError, match="at most 64 keys"):
        KeysRecord.decode(fields.seal("keys", 1, {"slots": slots, **rest}), what="keys")


@pytest.mark.quick
def test_the_mac_covers_everything_and_the_place() -> None:
    place, slot, later = keys.key_slots(3), new_slot(STORE_KEY, KEY), SIGNED_SLOTS[1]
    record = first_record(slot, STORE_KEY, place)
    assert KeysRecord.decode(record.encode(key=place), what="keys", key=place).is_signed(STORE_KEY, place)
    assert not record.is_signed(STORE_KEY, keys.key_slots(2))
    assert not record.is_signed(bytes(32), place)
    relabelled = dataclasses.replace(slot, label="contractor")
    for change in (
        {"slots": (slot, later)},
        {"slots": (relabelled,)},
        {"created_ns": 1},
        {"write_id": WriteId(bytes(16))},
        {"extra": {"later": 1}},
    ):
        assert not dataclasses.replace(record, **change).is_signed(STORE_KEY, place), change
    both = record.sign(STORE_KEY, place, slots=(slot, later))
    assert both.is_signed(STORE_KEY, place)
    assert not dataclasses.replace(both, slots=(later, slot)).is_signed(STORE_KEY, place)


@pytest.mark.quick
def test_the_mac_of_new_slots_cannot_be_taken_away() -> None:
    body = canonical.decode((GOLDEN / "keys-signed.json").read_bytes(), what="x")
    for number in (1, 2):
        data = fields.seal("keys", number, {key: body[key] for key in ("slots", "created_ns", "write_id")})
        with pytest.raises(CorruptError, match="have a MAC"):
            KeysRecord.decode(data, what="keys")


@pytest.mark.parametrize("slot", [SLOTS[0], SIGNED_SLOTS[0]], ids=["earlier", "committing"])
def test_a_passphrase_is_the_same_from_every_keyboard(slot: Slot) -> None:
    """macOS gives NFD where Linux gives NFC. A slot of an earlier version may have been made with
    either."""
    nfc, nfd = "büro geheim".encode(), unicodedata.normalize("NFD", "büro geheim").encode()
    assert nfc != nfd
    made = slot.wrapping(STORE_KEY, Secret("passphrase", nfd))
    assert [made.unwrap(Secret("passphrase", each)) for each in (nfc, nfd)] == [STORE_KEY] * 2
    aes, tag_key = slot._keys(nfd)
    sealed = aes.encrypt(bytes(12), STORE_KEY, slot._encode_body())
    as_typed = dataclasses.replace(slot, wrapped=sealed + slot._commitment(tag_key, sealed))
    assert as_typed.unwrap(Secret("passphrase", nfd)) == STORE_KEY


@pytest.mark.quick
def test_a_passphrase_that_is_no_text_counts_as_it_is() -> None:
    assert Secret("passphrase", b"\xff secret").forms == (b"\xff secret",)
    assert Secret("passphrase", b"ascii").forms == (b"ascii",)


@pytest.mark.quick
@pytest.mark.parametrize("file", ["store-bound.json", "store-encrypted.json"])
def test_the_check_value_of_a_store_is_that_of_its_key_and_record(file: str) -> None:
    record = StoreRecord.decode((GOLDEN / file).read_bytes(), what="store")
    assert is_key_of(STORE_KEY, record)
    assert not is_key_of(bytes(32), record)
    probed = dataclasses.replace(record, probe=dataclasses.replace(record.probe, put_if_absent=False))
    assert is_key_of(STORE_KEY, probed) is (file == "store-encrypted.json")  # of an earlier version


@pytest.mark.quick
def test_a_record_needs_slots_and_each_its_id() -> None:
    record = KeysRecord.decode((GOLDEN / "keys.json").read_bytes(), what="keys")
    for slots in ((), (SLOTS[0], SLOTS[0]), (SIGNED_SLOTS[0],)):
        with pytest.raises(InvalidInputError):
            dataclasses.replace(record, slots=slots)


@pytest.mark.quick
def test_short_secrets_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="32 bytes"):
        Secret("key", bytes(31))
    with pytest.raises(InvalidInputError):
        Secret("passphrase", b"")


@pytest.mark.quick
def test_secrets_are_not_shown() -> None:
    assert "horse" not in repr(PASSPHRASE)
    with pytest.raises(TypeError):
        pickle.dumps(PASSPHRASE)


@pytest.mark.quick
def test_slots_of_another_kind_have_no_costs() -> None:
    with pytest.raises(InvalidInputError):
        Slot("00000000", "key", "", 0, bytes(16), passes=1, lanes=0, memory_kib=0)
