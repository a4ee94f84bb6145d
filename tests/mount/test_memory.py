"""What a daemon takes: a read-only mount lives in 128 MB, whatever eight readers want of it at once."""

from __future__ import annotations

import multiprocessing
import random
from pathlib import Path

import pytest

from tests.mount.daemons import Mount, Place

pytestmark = pytest.mark.mount
FILES = 600
LARGE = 4
LARGE_BYTES = 48 << 20
READERS = 8
LIMIT_BYTES = 128 << 20


def fill(path: Path) -> int:
    """Small files and large ones; returns their bytes."""
    rnd, total = random.Random(8), 0
    for number in range(FILES):
        folder = path / f"d{number // 100}"
        folder.mkdir(exist_ok=True)
        total += (folder / f"f{number}").write_bytes(rnd.randbytes(rnd.choice((2_000, 20_000, 100_000, 600_000))))
    for number in range(LARGE):
        with (path / f"large{number}").open("wb") as file:
            for _ in range(LARGE_BYTES >> 20):
                total += file.write(rnd.randbytes(1 << 20))
    return total


def read(paths: list[Path]) -> int:
    total = 0
    for path in paths:
        with path.open("rb") as file:
            while data := file.read(1 << 20):
                total += len(data)
    return total


def highest_bytes(mount: Mount) -> int:
    """The most memory that the daemon has had resident, its program's pages counted in."""
    status = Path(f"/proc/{mount.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))


def test_a_cold_read_only_mount_with_eight_readers_lives_in_128_mb(place: Place, mount: Mount) -> None:
    total = fill(mount.path)
    version = mount.commit()
    mount.unmount()
    reader = place.mount("v", version=version, cache_dir=str(place.root / "cold"))
    paths = sorted(path for path in reader.path.rglob("*") if path.is_file())
    with multiprocessing.get_context("spawn").Pool(READERS) as pool:
        assert sum(pool.map(read, [paths[n::READERS] for n in range(READERS)], chunksize=1)) == total
    assert highest_bytes(reader) < LIMIT_BYTES
    reader.unmount()
