"""A collection that is killed at any of its steps and run again ends as one that was not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cowfs.maintain.collect.collecting
import cowfs.maintain.collect.generations
import cowfs.maintain.collect.repacking
from cowfs.format import keys
from cowfs.store import ObjectStore, initialize, open_store
from cowfs.store.refs import refs
from cowfs.store.refs.pins import LIFETIME_S, Pin
from cowfs.version.names.deletion import delete_volume
from tests.maintain.stores import ME, age, collect, commit, prune, random_bytes, stored, tree

MODULES = (cowfs.maintain.collect.collecting, cowfs.maintain.collect.generations, cowfs.maintain.collect.repacking)
SOURCES = [Path(module.__file__ or "") for module in MODULES]
POINTS = sorted({name for path in SOURCES for name in re.findall(r'hit\("([a-z-]+)"\)', path.read_text())})


Collected = tuple[set[str], int, list[list[str]]]
FILES: dict[bytes, bytes | None] = {b"f%d" % n: random_bytes(100 + n) for n in range(9)}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which a collection has everything to do: pruned versions, a deleted volume that is
    too old, a pin past its lifetime, a pack of which little is needed."""
    home = tmp_path_factory.mktemp("prepared")
    store = open_store((home / "store").as_uri(), create=True)
    initialize(store)
    for n in range(3):
        commit(store, "v", home, {b"f": random_bytes(n)})
    prune(store, "v", 2, 3)
    commit(store, "gone", home, {b"f": random_bytes(9)})
    commit(store, "sparse", home, FILES)
    commit(store, "sparse", home, dict.fromkeys(list(FILES)[1:]))
    prune(store, "sparse", 2)
    delete_volume(store, "gone", ME)
    Pin.create(store, volume="v", number=4, owner="asleep")
    age(home, LIFETIME_S + 60)
    store.close()
    return home / "store"


def copied(prepared: Path, home: Path) -> ObjectStore:
    shutil.copytree(prepared, home / "store", copy_function=shutil.copy2)
    return open_store((home / "store").as_uri())


def run(store: ObjectStore, home: Path, failpoint: str) -> int:
    command = [sys.executable, "-m", "tests.maintain.killed", store.url, str(home / "cache")]
    return subprocess.run(command, env={**os.environ, "COWFS_FAILPOINT": failpoint}, check=False).returncode


def collected(store: ObjectStore, home: Path, before: set[str]) -> Collected:
    """Two more collections: what a pin held goes with the second. (versions and packs that were
    there before, bytes of the new packs, kinds of heads, without the fences, of which there may be
    more)."""
    for _ in range(2):
        age(home)
        assert not collect(store, home, grace_s=3600).waits_for
    lines: list[list[str]] = [
        [record.kind for _, record in refs.history(store, refs.head(name)) if record.kind != "fence"]
        for name in ("v", "gone")
    ]
    left = stored(store)
    new = sum(size for key, size in left.items() if key not in before and keys.parse_pack(key) is not None)
    return left.keys() & before, new, lines


@pytest.fixture(scope="module")
def unharmed(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Collected:
    home = tmp_path_factory.mktemp("unharmed")
    store = copied(prepared, home)
    before = set(stored(store))
    found = collected(store, home, before)
    store.close()
    assert found[1] > 100_000, "nothing was repacked"
    return found


def test_every_step_has_a_crash_point() -> None:
    assert len(POINTS) >= 10


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_collection_is_gone_on_with(point: str, prepared: Path, unharmed: Collected, tmp_path: Path) -> None:
    store = copied(prepared, tmp_path)
    before = set(stored(store))
    if run(store, tmp_path, point) == 0:  # the pin keeps the first from having much to do
        assert run(store, tmp_path, point) == -9, "it was not killed: the point was not reached"
    assert collected(store, tmp_path, before) == unharmed
    (version,) = [record.version for _, record in refs.history(store, refs.head("v"))][:1]
    assert version is not None
    assert tree(store, version, tmp_path) == {b"f": random_bytes(2)}
    assert [record.kind for _, record in refs.history(store, refs.head("v"))].count("fence") >= 1
    (sparse,) = [record.version for _, record in refs.history(store, refs.head("sparse"))][:1]
    assert sparse is not None
    assert tree(store, sparse, tmp_path) == {b"f0": FILES[b"f0"]}
    assert {keys.parse_version(key) for key in stored(store)} - {None} == {version, sparse}
    store.close()
