"""Who goes through many versions asks for the beginnings of their indexes side by side, not one
after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cowfs.base.ids import VersionId
from cowfs.format import keys
from cowfs.maintain.check.verify import Scope, Verifier
from cowfs.maintain.collect.marking import Marker
from cowfs.maintain.kept_versions import find_kept_versions
from cowfs.store import ObjectStore
from cowfs.store.contract import Data
from cowfs.store.credentials.identity import Access
from cowfs.store.initialize import load_record
from tests.faulty_store import FaultyStore
from tests.maintain.fixtures import store
from tests.maintain.stores import commit

__all__ = ["store"]

VERSIONS = 4


class MeetingStore(FaultyStore):
    """Answers no read of an index before somebody asks for each of them."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._all = threading.Barrier(VERSIONS, timeout=30)
        self._asked: set[str] = set()

    def get_range(self, key: str, offset: int, length: int) -> Data:
        if key not in self._asked and key.startswith(keys.PACKS):
            self._asked.add(key)
            self._all.wait()
        return super().get_range(key, offset, length)


def mark(store: ObjectStore, home: Path, versions: list[VersionId]) -> None:
    Marker(store, home / "cold").mark(versions)


def verify(store: ObjectStore, home: Path, versions: list[VersionId]) -> None:
    verifier = Verifier(store, load_record(store), cache_dir=home / "cold", access=Access())
    assert verifier.run(Scope(find_kept_versions(store))).is_sound


@pytest.mark.parametrize("work", [mark, verify])
def test_indexes_are_begun_side_by_side(
    store: ObjectStore, tmp_path: Path, work: Callable[[ObjectStore, Path, list[VersionId]], None]
) -> None:
    versions = [commit(store, f"v{n}", tmp_path, {b"f": b"%d" % n}) for n in range(VERSIONS)]
    work(MeetingStore(store), tmp_path, versions)
