"""Mount specifications survive the way through JSON, and nothing else passes for one."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowfs.control import MountOptions, MountSpec
from cowfs.control.options import CACHE_DEFAULT_S, CACHE_UNLIMITED_S
from cowfs.errors import InvalidInputError

pytestmark = pytest.mark.quick

WRITABLE: dict[str, Any] = {
    "store_url": "file:///store",
    "volume": "v",
    "mode": "rw",
    "source": "v",
    "mount_path": "/mnt/v",
    "registration": "0123456789abcdef",
    "socket": "/run/s.sock",
    "log": "/state/daemon.log",
    "working_copy": "/state/v",
    "options": MountOptions(cache_dir="/cache", store_timeout=900, map_owner="none"),
}
READ_ONLY: dict[str, Any] = {**WRITABLE, "mode": "ro", "working_copy": None, "version": "ab" * 32}


def tuned(tuning: dict[str, Any], **fields: Any) -> MountSpec:
    return MountSpec(**{**WRITABLE, **fields, "options": replace(WRITABLE["options"], **tuning)})


@given(
    attr_cache=st.none() | st.floats(min_value=0, max_value=CACHE_UNLIMITED_S) | st.integers(0, 1000),
    max_uploads=st.integers(1, 1000),
    cache_size=st.none() | st.integers(0, 1 << 60),
    fuse_fd=st.none() | st.integers(3, 1000),
    allow_other=st.none() | st.booleans(),
    map_owner=st.sampled_from(["caller", "none", "0:0", "1000:4294967294"]),
    resident=st.booleans(),
    volume=st.text(min_size=1),
)
def test_round_trip(volume: str, **tuning: Any) -> None:
    spec = tuned(tuning, volume=volume)
    assert MountSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "rwx"},
        {"mount_path": "relative"},
        {"working_copy": None},
        {"working_copy": "relative"},
        {"version": "ab" * 32},
        {"options": {}},
        {"options": MountOptions(store_timeout=900, map_owner="none")},
        {"options": MountOptions(cache_dir="relative", store_timeout=900, map_owner="none")},
        {"options": MountOptions(cache_dir="/cache", map_owner="none")},
        {"options": MountOptions(cache_dir="/cache", store_timeout=900)},
        {"options": MountOptions(cache_dir="/cache", store_timeout=900, map_owner="none", cache_size="1G")},
    ],
    ids=str,
)
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        MountSpec(**{**WRITABLE, **wrong})


@pytest.mark.parametrize("version", [None, "ab", "AB" * 32, "xy" * 32])
def test_a_read_only_mount_needs_a_whole_version_id(version: str | None) -> None:
    with pytest.raises(InvalidInputError):
        MountSpec(**{**READ_ONLY, "version": version})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"format": 1}, "1"),
        ({"options": {"cache_dir": "/c", "store_timeout": 9, "later": 1}}, "later"),
        ({"options": {"cache_dir": "/c", "store_timeout": 9, "max_uploads": 0}}, "max_uploads"),
        ({"options": {"cache_dir": "/c", "store_timeout": 9, "resident": 1}}, "resident"),
        ({"format": None}, "None"),
        ({"later_option": 1}, "later_option"),
        ({"volume": ...}, "volume"),
    ],
)
def test_other_documents_are_refused_by_name(change: dict[str, Any], named: str) -> None:
    record = {**json.loads(MountSpec(**WRITABLE).to_json()), **change}
    text = json.dumps({key: value for key, value in record.items() if value is not ...})
    with pytest.raises(InvalidInputError, match=named):
        MountSpec.from_json(text)


@given(st.binary() | st.recursive(st.none() | st.text(), st.lists).map(lambda value: json.dumps(value).encode()))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInputError):
        MountSpec.from_json(data)


def test_cache_times_have_defaults_by_mode_and_explicit_values_win() -> None:
    assert MountSpec(**WRITABLE).cache_s("attr_cache") == CACHE_DEFAULT_S
    assert MountSpec(**READ_ONLY).cache_s("attr_cache") == CACHE_UNLIMITED_S
    assert tuned({"entry_cache": 60.0}, mode="ro", working_copy=None, version="ab" * 32).cache_s("entry_cache") == 60.0
    assert tuned({"entry_cache": 0}).cache_s("entry_cache") == 0


def test_an_infinite_cache_time_passes_through_json() -> None:
    options = MountOptions(attr_cache=math.inf, cache_dir="/cache").resolved()
    spec = MountSpec.from_json(MountSpec(**{**WRITABLE, "options": options}).to_json())
    assert spec.cache_s("attr_cache") == CACHE_UNLIMITED_S
