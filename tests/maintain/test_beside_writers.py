"""Processes that commit, fork, merge, tag, prune, delete and undelete, copy, keep their work, and
are killed and paused until their pins expire, beside one that collects: nobody misses anything, and
afterwards nothing is left that nobody needs. COWFS_TEST_SECONDS=120 takes two minutes.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cowfs.base.ids import VersionId
from cowfs.format import keys
from cowfs.maintain.collect import planning
from cowfs.maintain.collect.roots import RootReader
from cowfs.store import ObjectStore, initialize, open_store
from cowfs.store.refs import refs
from cowfs.version.names import head_line
from cowfs.version.names.deletion import delete_volume
from cowfs.version.names.tags import all_tags
from cowfs.version.names.volumes import find_head, volume_names
from cowfs.version.retention import pruned
from tests.effort import share
from tests.maintain.crew import HOUR_S, PIN_S
from tests.maintain.fixtures import store
from tests.maintain.stores import ME, collect, stored, tree
from tests.simulation.roots import closure

__all__ = ["store"]

CREW = (
    ("writer", "writer1"),
    ("leaver", "writer2"),
    ("forker", "fork"),
    ("merger", "trunk"),
    ("keeper", "kept"),
    ("copier", "copy"),
    ("breaker", "broken"),
    ("collector", "collector"),
)
SECONDS = os.environ.get("COWFS_TEST_SECONDS", str(share(10)))
MOST_S = 300 + float(SECONDS)  # a busy machine


@pytest.fixture
def on_s3(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    opened = open_store(s3["COWFS_STORE"], create=True)
    initialize(opened)
    yield opened
    opened.close()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["store", pytest.param("on_s3", marks=pytest.mark.s3)])
def test_nothing_is_missed_and_nothing_is_left(
    place: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: ObjectStore = request.getfixturevalue(place)
    command = [sys.executable, "-m", "tests.maintain.crew"]
    crew = []
    for role, name in CREW:
        arguments = [role, name, store.url, str(tmp_path), SECONDS]
        crew.append(subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    pause(crew, tmp_path / "stop")
    said = [each.communicate(timeout=MOST_S) for each in crew]
    assert [each.returncode for each in crew] == [0] * len(crew), "\n".join(err for _, err in said)
    dead = sum(pin.record.kind == "dead" for pin in RootReader(store).pins())
    ended = sum(info.key.endswith("/done") for info in store.list(keys.GC))
    print(f"{ended} collections have ended, and taken {dead} pins for dead")

    for name in volume_names(store):
        head = find_head(store, name)
        if head is not None and not (head.is_void or head.is_deleted) and name.startswith("fork"):
            delete_volume(store, name, ME)
    monkeypatch.setattr(planning, "HOUR_NS", -2 * 10**9)  # what is there is old
    time.sleep(2)
    for _ in range(2):
        collect(store, tmp_path, grace_s=1)
    kept = {version for name in volume_names(store) for version in roots_of(store, name)}
    needed = set().union(*(closure(store, version, tmp_path / "c") for version in kept))
    left = stored(store).keys()
    moved = {pack: refs.newest(store, refs.moved(pack)) for pack in map(keys.parse_moved, left) if pack is not None}
    assert {keys.pack(pack) for pack in moved} <= needed, "records of packs that no version names"
    homes = {keys.pack(blob.new_pack) for found in moved.values() if found is not None for blob in found[1].blobs}
    assert {key for key in left if keys.parse_moved(key) is None} <= needed | homes
    assert needed - left <= {keys.pack(pack) for pack in moved}
    assert all(tree(store, version, tmp_path) for version in kept)


def pause(crew: list[subprocess.Popen[str]], stop: Path) -> None:
    """One process after another stands still: for so long that what it is about to name is no
    longer young, and one of them until its pin has expired."""
    seed = int(os.environ.get("COWFS_TEST_SEED") or random.randrange(1 << 32))
    print(f"COWFS_TEST_SEED={seed}")
    drawn = random.Random(seed)
    while not stop.exists() and all(each.poll() is None for each in crew):
        chosen = drawn.choice(crew)
        most_s = PIN_S * 1.5 if CREW[crew.index(chosen)][0] == "breaker" else HOUR_S * 1.7
        chosen.send_signal(signal.SIGSTOP)
        try:
            time.sleep(drawn.uniform(HOUR_S, most_s))
        finally:
            chosen.send_signal(signal.SIGCONT)
        time.sleep(drawn.random())


def roots_of(store: ObjectStore, name: str) -> set[VersionId]:
    head = find_head(store, name)
    if head is None or head.version is None or head.is_void or head.is_deleted:
        return set()
    hidden = pruned.read(store, name)
    named = {step.version for step in head_line.steps(store, name, head.number, hidden) if not step.is_pruned}
    return named | {tag.version for tag in all_tags(store, name)}
