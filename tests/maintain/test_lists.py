"""Who deletes what no list names asks for lists that can be believed."""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest

from cowfs.errors import UnavailableError
from cowfs.maintain.kept_versions import find_kept_versions
from cowfs.store import ObjectStore
from cowfs.store.contract import ObjectInfo
from cowfs.store.readonly import ReadOnlyStore
from cowfs.store.reliability.patience import Patience
from cowfs.store.reliability.retrying import RetryingStore
from tests.faulty_store import FaultyStore
from tests.maintain.fixtures import impatient, store
from tests.maintain.stores import age, collect, commit, random_bytes

__all__ = ["impatient", "store"]

pytestmark = pytest.mark.usefixtures("impatient")


class Believing(FaultyStore):
    """A server answers every list of volumes with something else, which passes for an empty one
    until lists are looked at."""

    is_careful = False

    def list_carefully(self) -> None:
        self.is_careful = True

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        if not prefix.startswith("volumes/"):
            return super().list(prefix, start_after=start_after, limit=limit)
        if self.is_careful:
            raise UnavailableError("it lists nothing that can be relied on")
        return []


def test_nothing_is_deleted_for_an_answer_that_is_no_list(store: ObjectStore, tmp_path: Path) -> None:
    commit(store, "data", tmp_path, {b"file": random_bytes(1)})
    age(tmp_path)
    before = sorted(info.key for info in store.list(""))
    with pytest.raises(UnavailableError):
        collect(RetryingStore(Believing(store), Patience(0.0)), tmp_path)
    assert {info.key for info in store.list("packs/")} == {key for key in before if key.startswith("packs/")}
    with pytest.raises(UnavailableError):
        find_kept_versions(ReadOnlyStore(RetryingStore(Believing(store), Patience(0.0))))
