"""Stores with something in them, for tests of what maintains stores."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from cowfs.base import clock
from cowfs.base.ids import VersionId
from cowfs.format import keys
from cowfs.format.locator import Locator
from cowfs.format.store_url import StoreUrl
from cowfs.maintain.collect.collecting import Collection, Outcome
from cowfs.maintain.collect.planning import GRACE_S, Plan, Survey
from cowfs.store import ObjectStore
from cowfs.store.refs.holder import current_holder
from cowfs.version.names.volumes import Head, fork_volume, read_head
from cowfs.version.retention import pruned
from tests.version.working_volume import ReadingVolume, WorkingVolume

ME = current_holder("test")


def age(home: Path, seconds: float = 2 * 3600.0) -> None:
    """Everything in the directory store below `home` counts as that much older."""
    for path in (home / "store").rglob("*"):
        if path.is_file():
            found = path.stat().st_mtime_ns - int(seconds * 1e9)
            os.utime(path, ns=(found, found))


def random_bytes(seed: int, size: int = 100_000) -> bytes:
    return random.Random(seed).randbytes(size)


def commit(store: ObjectStore, volume: str, home: Path, files: dict[bytes, bytes | None]) -> VersionId:
    """The next version, by a writer that goes away. None: the file is removed."""
    with WorkingVolume(store, volume, home / volume) as working:
        for path, data in files.items():
            if data is None:
                working.unlink(path)
            else:
                working.write(path, data)
        version = working.commit().version_id
        working.publisher._protection.remove()
    assert version is not None
    shutil.rmtree(home / volume)
    return version


def tree(store: ObjectStore, version: VersionId, home: Path) -> dict[bytes, bytes | None]:
    with ReadingVolume(store, version, home / f"read-{version.hex()[:8]}-{clock.random_bytes(4).hex()}") as reader:
        return reader.tree()


def fork(store: ObjectStore, volume: str, name: str, version: VersionId | None = None) -> Head:
    chosen = version or read_head(store, volume).version
    assert chosen is not None
    return fork_volume(store, name, Locator(StoreUrl.parse(store.url), volume, chosen))


def prune(store: ObjectStore, volume: str, *heads: int) -> None:
    pruned.append(store, volume, pruned.read(store, volume), [(head, head) for head in heads])


def survey(store: ObjectStore, home: Path, *, grace_s: float = GRACE_S) -> tuple[Survey, Plan]:
    found = Survey(store, home / "collector", grace_s=grace_s)
    return found, found.plan()


def collect(store: ObjectStore, home: Path, *, grace_s: float = GRACE_S, wait_s: float = 0.0) -> Outcome:
    found, plan = survey(store, home, grace_s=grace_s)
    return Collection(found, ME, wait_s=wait_s).apply(plan)


def settle(store: ObjectStore, home: Path, *, wait_s: float = 0.0) -> list[str]:
    """The owners of the pins that have not acknowledged an empty list."""
    late = Collection(survey(store, home)[0], ME, wait_s=wait_s).settle()
    return [pin.record.owner for pin in late]


def stored(store: ObjectStore) -> dict[str, int]:
    """Key and size of every version and pack."""
    return {info.key: info.size for prefix in (keys.VERSIONS, keys.PACKS) for info in store.list(prefix)}
