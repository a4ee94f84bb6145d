"""Object keys: built and parsed back, newest first, and no name escapes its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowfs.base.ids import PackId, VersionId, WriteId
from cowfs.errors import InvalidInputError
from cowfs.format import keys
from tests.format.samples import PACK_A, VERSION

pytestmark = pytest.mark.quick

numbers = st.integers(0, (1 << 64) - 1)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", fullmatch=True)


def test_every_key_stands_where_the_design_says() -> None:
    last = "fffffffffffffffe"
    assert keys.STORE == "cowfs.json"
    assert keys.meta("v", 1) == f"volumes/v/meta/{last}"
    assert keys.head("v", 1) == f"volumes/v/head/{last}"
    assert keys.tag("v", "t.1", 1) == f"volumes/v/tags/t.1/{last}"
    assert keys.pruning_record("v", 1) == f"volumes/v/pruned/{last}"
    assert keys.lease("v", 1) == f"volumes/v/lease/{last}"
    assert keys.heartbeat("v", 1) == f"volumes/v/heartbeat/{last}"
    assert keys.version(VERSION) == f"versions/00/{VERSION.hex()}"
    assert keys.pack(PACK_A) == f"packs/a1/{PACK_A.hex()}"
    assert keys.move_record(PACK_A, 1) == f"packs/a1/{PACK_A.hex()}.moved/{last}"
    assert keys.pin(WriteId(bytes(16)), 1) == f"pins/{'00' * 16}/{last}"
    assert keys.condemnation(1) == f"gc/{last}/condemned"


@given(numbers, numbers)
def test_newer_numbers_sort_first(a: int, b: int) -> None:
    assert (keys.count_down(a) < keys.count_down(b)) == (a > b)
    assert keys.parse_number("any/prefix/" + keys.count_down(a)) == a


@pytest.mark.parametrize("number", [-1, 1 << 64])
def test_numbers_have_64_bits(number: int) -> None:
    with pytest.raises(InvalidInputError):
        keys.count_down(number)


@given(names, names, numbers)
def test_keys_parse_back(name: str, tag: str, number: int) -> None:
    for key in (
        keys.meta(name, number),
        keys.head(name, number),
        keys.pruning_record(name, number),
        keys.lease(name, number),
        keys.heartbeat(name, number),
    ):
        assert keys.parse_volume(key) == name
        assert keys.parse_number(key) == number
        assert keys.parse_tag(key) is None
    if len(tag) != 64:
        assert keys.parse_tag(keys.tag(name, tag, number)) == tag
        assert keys.parse_volume(keys.tag(name, tag, number)) == name
    assert keys.parse_generation(keys.condemnation(number)) == number
    assert keys.parse_generation(keys.condemnation_shard(number, 7)) == number
    pin = WriteId(bytes(range(16)))
    assert keys.parse_pin(keys.pin(pin, number)) == (pin, number)


@given(st.binary(min_size=32, max_size=32))
def test_ids_parse_back(raw: bytes) -> None:
    version, pack = VersionId(raw), PackId(raw[:16])
    assert keys.parse_version(keys.version(version)) == version
    assert keys.parse_pack(keys.pack(pack)) == pack
    assert keys.parse_pack(keys.move_record(pack, 1)) is None
    assert keys.move_record(pack, 1).startswith(keys.move_prefix(pack))


@given(st.text())
def test_foreign_keys_are_nobodys(key: str) -> None:
    for parse in (
        keys.parse_volume,
        keys.parse_tag,
        keys.parse_version,
        keys.parse_pack,
        keys.parse_pin,
        keys.parse_generation,
    ):
        for tried in (key, key + "\n"):
            assert parse(tried) is None


@pytest.mark.parametrize(
    "key", ["packs/00/" + PACK_A.hex(), keys.pack(PACK_A) + "\n", keys.pack(PACK_A).upper(), keys.pack(PACK_A) + ".tmp"]
)
def test_misplaced_packs_are_not_packs(key: str) -> None:
    assert keys.parse_pack(key) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "-x", "a/b", "a b", "a\n", "ä", "a\0", "a" * 129, "a@b", "%41", "volumes/x"]
)
def test_names_that_could_mean_something_else_are_refused(name: str) -> None:
    for check in (keys.check_volume_name, keys.check_tag_name, keys.volume):
        with pytest.raises(InvalidInputError) as caught:
            check(name)
        assert "128" in caught.value.hint


@given(names)
def test_good_names_pass(name: str) -> None:
    assert keys.check_volume_name(name) == name


def test_a_tag_is_never_taken_for_a_version() -> None:
    with pytest.raises(InvalidInputError):
        keys.check_tag_name(VERSION.hex())
    assert keys.check_tag_name(VERSION.hex()[:63])
