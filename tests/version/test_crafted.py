"""Every reader of a version whose rows make no sense: it ends, within limits of memory and time,
with what is there or with `corrupt`, and `verify` says what is wrong.

`COWFS_CRAFTED_CASES` says how many random versions there are; `COWFS_MODEL_SEED` replays one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from cowfs.errors import CowfsError
from cowfs.store.open import open_store
from tests.version.crafted import Names, craft, outcomes
from tests.version.working_volume import ME, ROOT, WorkingVolume

CASES = int(os.environ.get("COWFS_CRAFTED_CASES", "6"))
LEVELS = 1100
WALKERS = ("walk", "list", "download", "find", "du", "fsspec walk", "verify", "content id")
NO_TREE = {
    "loop": "INSERT INTO dirents VALUES ({d/e}, CAST('back' AS BLOB), {d})",
    "itself": "INSERT INTO dirents VALUES ({d/e}, CAST('me' AS BLOB), {d/e})",
    "root below": "INSERT INTO dirents VALUES ({d/e}, CAST('root' AS BLOB), 1)",
    "two names": "INSERT INTO dirents VALUES (1, CAST('h' AS BLOB), {d/e})",
    "two names in one directory": "INSERT INTO dirents VALUES ({d}, CAST('h' AS BLOB), {d/e})",
    "fan": "INSERT INTO dirents VALUES ({d/e}, CAST('a' AS BLOB), {d}), ({d/e}, CAST('b' AS BLOB), {d})",
    "dangling": "INSERT INTO dirents VALUES (1, CAST('h' AS BLOB), 999)",
    "unreachable loop": "UPDATE dirents SET parent = {d/e} WHERE ino = {d}",
    "no name": "DELETE FROM dirents WHERE ino = {d/e}",
    "entry of a file": "INSERT INTO dirents VALUES ({g}, CAST('x' AS BLOB), {s})",
    "large inode": "UPDATE inodes SET ino = 281474976710657 WHERE ino = {g};"
    "UPDATE dirents SET ino = 281474976710657 WHERE ino = {g}",
    "negative inode": "UPDATE inodes SET ino = -5 WHERE ino = {g}; UPDATE dirents SET ino = -5 WHERE ino = {g}",
    "large next_ino": "UPDATE meta SET value = 281474976710656 WHERE key = 'next_ino'",
    "largest next_ino": "UPDATE meta SET value = 9223372036854775807 WHERE key = 'next_ino'",
    "next_ino in use": "UPDATE meta SET value = 2 WHERE key = 'next_ino'",
    "no links": "UPDATE inodes SET nlink = 0 WHERE ino = {g}",
    "no such pack": "UPDATE extents SET pack = 1000",
    "empty target": "UPDATE inodes SET target = x'', size = 0 WHERE ino = {s}",
}
UNSEEN = ("no such pack", "unreachable loop", "no name", "entry of a file", "next_ino in use")
"""Wrong where no path leads, or in what no reader needs: `verify` sees it."""
COLUMNS = {
    "dirents": ("parent", "ino"),
    "inodes": ("ino", "mode", "nlink", "uid", "rdev", "size", "mapped_bytes", "mtime_ns", "flags"),
    "extents": ("ino", "offset", "length", "pack", "pack_offset", "stored_length", "raw_length", "skip", "codec"),
    "meta": ("value",),
}
VALUES = (
    *range(-1, 9),
    1000,
    *(sign * (1 << bits) + more for bits in (31, 32, 48, 62) for sign in (1, -1) for more in (-1, 0, 1)),
)


def made(statements: str, names: Names) -> list[str]:
    for path, ino in names.items():
        statements = statements.replace("{" + path + "}", str(ino))
    return statements.split(";")


@pytest.mark.parametrize("kind", NO_TREE)
def test_what_is_no_tree_is_corrupt_to_all_who_meet_it(kind: str, tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    with closing(open_store(url, create=True)) as store:
        good, crafted = craft(store, "v", tmp_path / "writer", lambda names: made(NO_TREE[kind], names))
    found = outcomes(url, crafted, good, tmp_path / "reader", os.environ)
    assert found["verify"] == "corrupt", found
    if kind not in UNSEEN:
        assert {name: found[name] for name in WALKERS if found[name] == "read"} == {}, found


def test_a_good_version_is_read_by_all(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    with closing(open_store(url, create=True)) as store:
        good, same = craft(store, "v", tmp_path / "writer", lambda names: [])
    assert set(outcomes(url, same, good, tmp_path / "reader", os.environ).values()) == {"read"}


def test_a_tree_deeper_than_the_stack_of_python_is_read_by_all(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    with closing(open_store(url, create=True)) as store, WorkingVolume(store, "v", tmp_path / "writer") as volume:
        base = volume.commit()
        parent = ROOT
        for _ in range(LEVELS):
            parent = volume.call(volume.engine.mkdir, parent, b"d", 0o755, ME).ino
        volume.call(volume.engine.symlink, parent, b"s", b"s", ME)
        deep = volume.commit()
        assert len(list(volume.files.walk())) == LEVELS + 1
    found = outcomes(url, f"v@{deep.version_id}", f"v@{base.version_id}", tmp_path / "reader", os.environ)
    assert set(found.values()) == {"read"}


@pytest.mark.parametrize("case", range(CASES))
def test_no_row_keeps_a_reader_for_ever(case: int, tmp_path: Path) -> None:
    seed = int(os.environ.get("COWFS_MODEL_SEED") or random.randrange(1 << 32)) + case
    print(f"COWFS_MODEL_SEED={seed - case} (case {case})")
    chance = random.Random(seed)

    def statements(names: Names) -> Sequence[str]:
        return [_change(chance, names) for _ in range(chance.randrange(1, 4))]

    url = (tmp_path / "store").as_uri()
    with closing(open_store(url, create=True)) as store:
        try:
            good, crafted = craft(store, "v", tmp_path / "writer", statements)
        except CowfsError:
            return  # to the publisher it was plain
    found = outcomes(url, crafted, good, tmp_path / "reader", os.environ)
    assert set(found.values()) <= {"read", "corrupt", "not_found", "invalid_state", "unavailable"}, found


def _change(chance: random.Random, names: Names) -> str:
    table = chance.choice(list(COLUMNS))
    column, value = chance.choice(COLUMNS[table]), chance.choice((*VALUES, *names.values()))
    place = chance.randrange(6)
    keys = {"dirents": "parent, name", "inodes": "ino", "extents": "ino, offset", "meta": "key"}[table]
    return (
        f"UPDATE OR REPLACE {table} SET {column} = {value} WHERE ({keys}) = "
        f"(SELECT {keys} FROM {table} ORDER BY {keys} LIMIT 1 OFFSET {place} % (SELECT count(*) FROM {table}))"
    )
