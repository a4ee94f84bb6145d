"""The small tree that docs/format/index.md shows, and the golden database made from it.

The golden file is what format 1 looked like when it was released; it is read for ever and never
made again. (SQLite may lay the same rows out differently one day.) `python -m tests.index.example`
wrote it.
"""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

import zstandard

from cowfs.base.ids import PackId
from cowfs.index import empty_index
from tests.index.bench import change_set

GOLDEN = Path(__file__).parent / "golden" / "index-1.zst"
T = 1_750_000_000_000_000_000

EXAMPLE = change_set(
    next_ino=6,
    inodes=[
        (1, stat.S_IFDIR | 0o755, 3, 1000, 1000, 0, 0, 0, T, T + 1, T + 1, 0, b""),
        (2, stat.S_IFREG | 0o644, 1, 1000, 1000, 0, 11, 11, T, T, T, 0, b""),
        (3, stat.S_IFLNK | 0o777, 1, 1000, 1000, 0, 7, 0, T, T, T, 0, b"bin/run"),
        (4, stat.S_IFDIR | 0o755, 2, 1000, 1000, 0, 0, 0, T, T, T, 0, b""),
        (5, stat.S_IFREG | 0o755, 2, 1000, 1000, 0, 700_000, 200_000, T, T, T, 1, b""),
    ],
    entries=[(1, b"readme.txt", 2), (1, b"run", 3), (1, b"bin", 4), (4, b"run", 5), (4, b"\xff", 5)],
    contents={
        2: [(0, 11, b"\x11" * 32, 1, 16, 11, 11, 0, 0)],
        5: [
            (0, 100_000, b"\x22" * 32, 1, 27, 60_000, 150_000, 0, 1),
            (600_000, 100_000, b"\x22" * 32, 1, 27, 60_000, 150_000, 50_000, 1),
        ],
    },
    xattrs={5: [(b"user.origin", b"example")]},
    packs={1: PackId(b"\xa1" * 16)},
)


def pages_of_example() -> list[bytes]:
    with tempfile.TemporaryDirectory() as directory:
        with empty_index(Path(directory), uid=1000, gid=1000, now_ns=T) as index, index.apply(EXAMPLE) as delta:
            return [page for _, page in delta.pages()]


def golden_pages() -> list[bytes]:
    data = zstandard.decompress(GOLDEN.read_bytes())
    return [data[at : at + 16384] for at in range(0, len(data), 16384)]


if __name__ == "__main__":
    GOLDEN.write_bytes(zstandard.compress(b"".join(pages_of_example()), 19))
