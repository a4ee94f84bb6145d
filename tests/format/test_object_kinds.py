"""What may stand at each key: every key that `keys` builds is an object, everything above it a
directory, and nothing that a writer may make is refused by a reader."""

from __future__ import annotations

import re

import pytest

from cowfs.base.ids import PackId, VersionId, WriteId
from cowfs.errors import CorruptError, InvalidInputError
from cowfs.format import canonical, keys, object_kinds
from cowfs.format.pack import MAX_PACK_BYTES
from cowfs.format.sealed import Sealed, round_up

pytestmark = pytest.mark.quick

PACK, VERSION, PIN = PackId(bytes(16)), VersionId(bytes(32)), WriteId(bytes(16))
SMALL = [
    keys.STORE,
    keys.head("v", 1),
    keys.tag("v", "t", 1),
    keys.lease("v", 1),
    keys.heartbeat("v", 1),
    keys.collection(1, "begin"),
    keys.PINS + "shown",
]
LISTS = [
    keys.purge_record(1),
    keys.key_slots(1),
    keys.meta("v", 1),
    keys.pruning_record("v", 1),
    keys.version(VERSION),
    keys.move_record(PACK, 1),
    keys.pin(PIN, 1),
    keys.condemnation(1),
    keys.collection(1, "spared"),
    keys.collection(1, "done"),
    keys.sight_shard(1, PIN, 2),
    keys.condemnation_shard(1, 2),
]


@pytest.mark.parametrize("key", [*SMALL, *LISTS, keys.pack(PACK)])
def test_each_key_is_an_object_below_directories(key: str) -> None:
    assert object_kinds.is_object(key)
    assert not object_kinds.is_directory(key)
    parts = key.split("/")
    for count in range(1, len(parts)):
        above = "/".join(parts[:count])
        assert not object_kinds.is_object(above), above
        assert object_kinds.is_directory(above) != (keys.parse_old_pin(above) is not None), above
        assert keys.is_ours(above)


@pytest.mark.parametrize(
    "key",
    [
        "probe/" + "0" * 32,
        "ref/1",
        "README",
        "volumes/v/later/1",
        "packs.old",
        "volumes/.DS_Store",
        "volumes/v/tags/.nfs1",
    ],
)
def test_other_keys_may_be_anything(key: str) -> None:
    assert not object_kinds.is_object(key)
    assert not object_kinds.is_directory(key)


def test_each_key_that_is_documented_has_a_kind() -> None:
    """So that a new record is not forgotten here."""
    number, hex32, hex64 = keys.count_down(1), "ab" * 16, "ab" * 32
    texts = {
        "<n>": number,
        "<epoch>": number,
        "<generation>": number,
        "<pin id>": hex32,
        "<id>": hex32,
        "<pack id>": hex32,
        "<version id>": hex64,
        "<2 hex>": "ab",
        "<8 hex>": "00000001",
        "<name>": "v",
        "<tag>": "t",
    }
    documented = re.findall(r"^    ((?:[a-z]+/|cowfs)\S*(?: (?:hex|id)>\S*)*)  ", str(keys.__doc__), re.MULTILINE)
    assert len(documented) >= 16
    for each in documented:
        key = each
        for text, value in texts.items():
            key = key.replace(text, value)
        assert object_kinds.is_object(key), f"{each}: {key}"


def test_limits() -> None:
    assert {object_kinds.largest(key) for key in SMALL} == {1 << 20}
    assert {object_kinds.largest(key) for key in LISTS} == {canonical.MAX_BYTES}
    assert object_kinds.largest(keys.pack(PACK)) == MAX_PACK_BYTES
    for key in [*SMALL, *LISTS, keys.pack(PACK), "other"]:
        limit = object_kinds.largest(key)
        object_kinds.check_write(key, limit, url="u")
        with pytest.raises(InvalidInputError, match=f"{limit + 1} bytes"):
            object_kinds.check_write(key, limit + 1, url="u")
        object_kinds.check_read(key, round_up(limit + 64, Sealed.object_step_bytes), url="u")
        with pytest.raises(CorruptError, match=f"{limit * 2} bytes"):
            object_kinds.check_read(key, limit * 2, url="u")
