"""Staged bytes that are committed: a cache while the mount lives, within a part of the cache size,
gone with the mount; and within the cache size together with what else the cache holds."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.mount.daemons import WAIT_S, Mount, Place

pytestmark = [pytest.mark.mount, pytest.mark.slow]

SEGMENT_BYTES = 64 << 20
OTHERS_BYTES = 8 << 20
"""Directories, indexes of segments, blocks of indexes."""


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


def allocated_bytes(paths: Iterable[Path]) -> int:
    total = 0
    for path in paths:
        with suppress(FileNotFoundError):
            total += path.stat().st_blocks * 512
    return total


def read_anew(path: Path) -> None:
    """Not from the kernel's memory."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while file.read(1 << 20):
            pass


def test_committed_bytes_and_the_cache_stay_within_the_cache_size_together(place: Place) -> None:
    """Soon after the last commit, the segment that takes appends aside."""
    mount = place.mount("v", cache_size=256 << 20)
    files = [mount.path / f"f{number}" for number in range(6)]
    for file in files:
        file.write_bytes(os.urandom(SEGMENT_BYTES))
        mount.commit()
    for file in (*files, *files):  # of a store on the same disk, chunks are kept the second time
        read_anew(file)
    segments = Path(mount.spec.working_copy or "") / "staging"
    end_s = time.monotonic() + 2 * WAIT_S
    while True:
        staged = sorted(path for path in segments.iterdir() if path.suffix in {".seg", ".spare"})
        current = max((path for path in staged if path.suffix == ".seg"), default=None)
        staged_bytes = allocated_bytes(path for path in staged if path != current)
        cached_bytes = allocated_bytes(path for path in (place.root / "c" / "cache").rglob("*") if path.is_file())
        if staged_bytes + cached_bytes <= (256 << 20) + OTHERS_BYTES:
            break
        assert time.monotonic() < end_s, (staged_bytes, cached_bytes)
        time.sleep(0.5)
    assert staged_bytes > 0
    mount.unmount()
