"""Random damage to archives: each is refused, or gives what GNU tar or unzip make of the good one.
Never other bytes.

The directory of a zip alone says which kind of file a member is, and has no checksum. So a file
that became a link counts as right, if no other is wrong.

COWFS_ARCHIVE_DAMAGES: how many of each kind of archive (200); COWFS_ARCHIVE_SEED replays one run.
A plain tar has no checksum of contents, so it is not among them; what must be found of one is in
`test_archive_tree`.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from cowfs.errors import InvalidInputError
from cowfs.store.origin.archive import Damaged, input
from cowfs.store.origin.archive import unpacked as unpacked_stream
from tests.archives import on_disk, plain, run, unpacked

DAMAGES = int(os.environ.get("COWFS_ARCHIVE_DAMAGES", "200"))
SEED = int(os.environ.get("COWFS_ARCHIVE_SEED", str(random.randrange(1 << 32))))
PACKERS = {"tar.gz": "gzip", "tar.bz2": "bzip2", "tar.xz": "xz", "tar.zst": "zstd"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that compress well, badly and not at all; names, links and directories."""
    root = tmp_path_factory.mktemp("source")
    chance = random.Random(7)
    for number in range(24):
        directory = root / f"part-{number % 5}" / "below"
        directory.mkdir(parents=True, exist_ok=True)
        words = b" ".join(b"%d" % chance.randrange(50) for _ in range(chance.randrange(3000)))
        (directory / f"file-{number}").write_bytes(words if number % 2 else chance.randbytes(chance.randrange(6000)))
    (root / "empty").mkdir()
    (root / "nothing").write_bytes(b"")
    (root / "link").symlink_to("part-0/below/file-0")
    return root


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a large archive: its end is not unpacked with its beginning."""
    monkeypatch.setattr(unpacked_stream, "PIECE_BYTES", 4 << 10)
    monkeypatch.setattr(input, "PIECE_BYTES", 8 << 10)


@pytest.mark.parametrize("kind", [*PACKERS, "zip"])
def test_a_damaged_archive_is_refused_or_right(source: Path, tmp_path: Path, kind: str) -> None:
    archive, made = tmp_path / f"a.{kind}", tmp_path / "made"
    made.mkdir()
    if kind == "zip":
        run("zip", "-q", "-r", "-y", archive, ".", cwd=source)
        run("unzip", "-q", archive, "-d", made)
    else:
        run("tar", "-C", source, f"--use-compress-program={PACKERS[kind]}", "-cf", archive, ".")
        run("tar", "-C", made, "-xf", archive)
    whole, right = archive.read_bytes(), plain(on_disk(made))
    reader = "zip" if kind == "zip" else "tar"
    assert plain(unpacked(reader, whole)) == right
    refused = 0
    for number in range(DAMAGES):
        chance = random.Random(f"{SEED}/{kind}/{number}")
        what, data = damaged(whole, chance)
        try:
            found = plain(unpacked(reader, data))
        except (Damaged, InvalidInputError):
            refused += 1
            continue
        if kind == "zip":  # nothing tells whether kinds and permissions are right
            found |= {path: right[path] for path in right if path in found and found[path][0] != right[path][0]}
        assert found == right, f"{kind}: {what}, COWFS_ARCHIVE_SEED={SEED}, case {number}"
    print(f"{kind}: {refused} of {DAMAGES} were refused, the others right; COWFS_ARCHIVE_SEED={SEED}")
    assert refused > DAMAGES // 2


def damaged(whole: bytes, chance: random.Random) -> tuple[str, bytes]:
    """What was done, and the archive then."""
    first = chance.randrange(len(whole))
    last = min(len(whole), first + chance.choice([1, 16, 600, 5000]))
    match chance.randrange(5):
        case 0:
            bit = 1 << chance.randrange(8)
            return f"bit {bit} of byte {first}", whole[:first] + bytes([whole[first] ^ bit]) + whole[first + 1 :]
        case 1:
            return f"cut at {first}", whole[:first]
        case 2:
            return f"zeros from {first} to {last}", whole[:first] + bytes(last - first) + whole[last:]
        case 3:
            return f"{first} to {last} twice", whole[:last] + whole[first:]
        case _:
            return "garbage behind it", whole + chance.randbytes(chance.choice([1, 3, 40, 5000]))
