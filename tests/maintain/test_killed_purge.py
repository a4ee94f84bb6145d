"""A purge that is killed at any of its steps goes on: by the next purge, or by a collection."""

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
import cowfs.maintain.purge.purging
from cowfs.base.ids import VersionId
from cowfs.errors import PurgedError
from cowfs.maintain.purge.target import Target
from cowfs.store import ObjectStore, initialize, open_store
from cowfs.store.packs import load_purged
from cowfs.version.names.volumes import read_head
from tests.maintain.stores import age, collect, commit, fork, random_bytes, tree
from tests.maintain.test_purging import OTHER, SECRET, decoded, purge, read

MODULES = (
    cowfs.maintain.purge.purging,
    cowfs.maintain.collect.collecting,
    cowfs.maintain.collect.generations,
    cowfs.maintain.collect.repacking,
)
SOURCES = [Path(module.__file__ or "") for module in MODULES]
POINTS = sorted({name for path in SOURCES for name in re.findall(r'hit\("([a-z-]+)"\)', path.read_text())})
NEVER = {"gc-after-void", "gc-after-dead", "gc-after-fence"}
"""A purge closes no volume, and no pin is too old here."""


def make(home: Path) -> tuple[ObjectStore, VersionId, VersionId]:
    """A store with a fork that has more, and a volume that has nothing of what goes."""
    store = open_store((home / "store").as_uri(), create=True)
    initialize(store)
    commit(store, "v", home, {b"secret": SECRET, b"a": OTHER})
    fork(store, "v", "w")
    forked = commit(store, "w", home, {b"b": random_bytes(2)})
    apart = commit(store, "x", home, {b"c": random_bytes(3)})
    return store, forked, apart


def run(store: ObjectStore, home: Path, failpoint: str, path: str) -> int:
    command = [sys.executable, "-m", "tests.maintain.killed_purge", store.url, str(home / "cache"), "v", path]
    return subprocess.run(command, env={**os.environ, "COWFS_FAILPOINT": failpoint}, check=False).returncode


@pytest.mark.parametrize("point", [name for name in POINTS if name not in NEVER])
@pytest.mark.parametrize("path", ["secret", ""])
def test_it_goes_on(point: str, path: str, tmp_path: Path) -> None:
    store, forked, apart = make(tmp_path)
    assert run(store, tmp_path, point, path) == -9
    is_recorded = bool(load_purged(store))
    assert is_recorded == (point != "purge-before-record")
    shutil.copytree(tmp_path / "store", tmp_path / "other" / "store")
    assert purge(store, tmp_path, Target("v", path=path.encode() or None)).is_done
    check(store, tmp_path, forked, apart, path)
    if is_recorded:
        other = open_store((tmp_path / "other" / "store").as_uri())
        age(tmp_path / "other")
        assert collect(other, tmp_path).is_ended
        check(other, tmp_path, forked, apart, path)
        other.close()
    store.close()


def check(store: ObjectStore, home: Path, forked: VersionId, apart: VersionId, path: str) -> None:
    assert SECRET not in decoded(store)
    assert tree(store, apart, home) == {b"c": random_bytes(3)}
    assert read(store, forked, home, b"b") == random_bytes(2)
    with pytest.raises(PurgedError):
        read(store, forked, home, b"secret")
    if path:
        assert read(store, forked, home, b"a") == OTHER
        return
    version = read_head(store, "v").version
    assert version is not None
    with pytest.raises(PurgedError):
        tree(store, version, home)
