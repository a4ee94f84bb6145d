"""Slots: which secret opens which, and what a slot may ask for."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from cowfs.errors import CorruptError, InvalidInputError
from cowfs.format import canonical, fields
from cowfs.format.key_slots import KeysRecord, Secret, Slot, new_slot
from tests.format.samples import GOLDEN, SLOTS

STORE_KEY = bytes(range(32))
PASSPHRASE = Secret("passphrase", b"correct horse battery staple")
KEY = Secret("key", bytes(range(100, 132)))


def test_the_golden_slots_open_with_what_the_page_says() -> None:
    record = KeysRecord.decode((GOLDEN / "keys.json").read_bytes(), what="keys")
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
@pytest.mark.parametrize(
    "change", [{"label": "bob"}, {"id": "00000000"}, {"created_ns": 1}, {"salt": bytes(16)}, {"wrapped": b"short"}]
)
def test_a_slot_that_was_changed_opens_no_more(change: dict[str, Any]) -> None:
    assert dataclasses.replace(SLOTS[1], **change).unwrap(KEY) is None


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
        {"salt": "00"},
        {"salt": "zz"},
        {"id": "x"},
        {"label": "a" * 129},
        {"label": "\x1b[2J"},
    ],
)
def test_a_slot_that_asks_for_too_much_is_damage(change: dict[str, Any]) -> None:
    """Before it is paid for: anybody may have written it who can write to the bucket."""
    body = canonical.decode((GOLDEN / "keys.json").read_bytes(), what="x")
    body["slots"][0] |= change
    data = fields.seal("keys", 1, {key: body[key] for key in ("slots", "created_ns", "write_id")})
    with pytest.raises(CorruptError):
        KeysRecord.decode(data, what="keys")


@pytest.mark.quick
def test_a_record_needs_slots_and_each_its_id() -> None:
    record = KeysRecord.decode((GOLDEN / "keys.json").read_bytes(), what="keys")
    for slots in ((), (SLOTS[0], SLOTS[0])):
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
