"""A cache holds what it may, however short mounts live and however much they read."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.mount.daemons import WAIT_S, Place

pytestmark = pytest.mark.mount
LIMIT_BYTES = 16 << 20
FILES, FILE_BYTES = 4, 24 << 20
OTHERS_BYTES = 1 << 20
"""Directories and what lies beside the segments, which is no chunk."""


def held_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def read(path: Path) -> None:
    assert len(path.read_bytes()) == FILE_BYTES


def test_mounts_of_a_moment_keep_the_cache_size(place: Place) -> None:
    writer = place.mount("v")
    for number in range(FILES):
        (writer.path / f"{number}").write_bytes(os.urandom(FILE_BYTES))
    version = writer.commit()
    writer.unmount()
    cache = place.root / "small"
    for number in range(FILES):
        mount = place.mount("v", version=version, cache_dir=str(cache), cache_size=LIMIT_BYTES)
        read(mount.path / f"{number}")
        mount.unmount()
        assert 0 < held_bytes(cache) <= LIMIT_BYTES + OTHERS_BYTES

    mount = place.mount("v", version=version, cache_dir=str(cache), cache_size=LIMIT_BYTES)
    for number in range(FILES):
        read(mount.path / f"{number}")
    end_s = time.monotonic() + WAIT_S
    while held_bytes(cache) > LIMIT_BYTES + LIMIT_BYTES // 16 + OTHERS_BYTES:
        assert time.monotonic() < end_s
        time.sleep(0.1)
    mount.unmount()
