"""Mount specifications survive the way through JSON, and nothing else passes for one."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowfs.control import MountSpec
from cowfs.control.spec import CACHE_DEFAULT_S, CACHE_UNLIMITED_S
from cowfs.errors import InvalidInputError

pytestmark = pytest.mark.quick

WRITABLE: dict[str, Any] = {
    "store_url": "file:///store",
    "volume": "v",
    "mode": "rw",
    "source": "v",
    "mount_path": "/mnt/v",
    "cache_dir": "/cache",
    "registration": "0123456789abcdef",
    "socket": "/run/s.sock",
    "log": "/state/daemon.log",
    "working_copy": "/state/v",
}
READ_ONLY: dict[str, Any] = {**WRITABLE, "mode": "ro", "working_copy": None, "version": "ab" * 32}


@given(
    attr_cache=st.none() | st.floats(min_value=0, max_value=CACHE_UNLIMITED_S) | st.integers(0, 1000),
    max_uploads=st.integers(1, 1000),
    cache_size_bytes=st.none() | st.integers(0, 1 << 60),
    fuse_fd=st.none() | st.integers(3, 1000),
    allow_other=st.none() | st.booleans(),
    resident=st.booleans(),
    volume=st.text(min_size=1),
)
def test_round_trip(**fields: Any) -> None:
    spec = MountSpec(**{**WRITABLE, **fields})
    assert MountSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "rwx"},
        {"max_uploads": 0},
        {"max_uploads": True},
        {"max_uploads": 1.5},
        {"attr_cache": -1.0},
        {"entry_cache": math.nan},
        {"dir_entry_cache": "60"},
        {"cache_size_bytes": -1},
        {"resident": 1},
        {"mount_path": "relative"},
        {"working_copy": None},
        {"working_copy": "relative"},
        {"version": "ab" * 32},
        {"allow_other": "yes"},
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
        ({"format": 2}, "2"),
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
    assert MountSpec(**READ_ONLY, entry_cache=60.0).cache_s("entry_cache") == 60.0
    assert MountSpec(**WRITABLE, entry_cache=0).cache_s("entry_cache") == 0


def test_an_infinite_cache_time_passes_through_json() -> None:
    spec = MountSpec.from_json(MountSpec(**WRITABLE, attr_cache=math.inf).to_json())
    assert spec.cache_s("attr_cache") == CACHE_UNLIMITED_S
