"""Staged bytes that are committed: a cache while the mount lives, within a part of the cache size,
gone with the mount."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.mount.daemons import Mount, Place

pytestmark = [pytest.mark.mount, pytest.mark.slow]

SEGMENT_BYTES = 64 << 20


def kept_bytes(mount: Mount) -> int:
    """What the working copy takes, but for its log."""
    assert mount.spec.working_copy is not None
    files = [path for path in Path(mount.spec.working_copy).rglob("*") if path.is_file()]
    return sum(path.stat().st_blocks * 512 for path in files)


def test_nothing_committed_stays_staged_after_an_unmount(mount: Mount, place: Place) -> None:
    data = os.urandom(80 << 20)
    (mount.path / "f").write_bytes(data)
    mount.unmount(commit=True)
    assert kept_bytes(mount) < 1 << 20
    assert (place.mount("v").path / "f").read_bytes() == data


def test_what_is_not_committed_stays(mount: Mount, place: Place) -> None:
    (mount.path / "f").write_bytes(os.urandom(SEGMENT_BYTES + 1000))
    mount.commit()
    data = os.urandom(1 << 20)
    (mount.path / "g").write_bytes(data)
    mount.unmount()
    assert kept_bytes(mount) < 2 * SEGMENT_BYTES
    assert (place.mount("v").path / "g").read_bytes() == data


def test_committed_bytes_stay_within_a_quarter_of_the_cache_size(place: Place) -> None:
    mount = place.mount("v", cache_size=512 << 20)
    for number in range(6):
        (mount.path / f"f{number}").write_bytes(os.urandom(50 << 20))
        mount.commit()
        segments = Path(mount.spec.working_copy or "") / "staging"
        held_bytes = sum(path.stat().st_size for path in segments.iterdir() if path.suffix in {".seg", ".spare"})
        # And the segment that takes appends. Files of removed ones that are used again count.
        assert held_bytes <= (128 << 20) + SEGMENT_BYTES
    mount.unmount()
    assert kept_bytes(mount) < 1 << 20
