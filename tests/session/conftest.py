"""A store of the test's own, in a directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cowfs.store import ObjectStore, initialize, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    store = open_store((tmp_path / "store").as_uri(), create=True)
    initialize(store)
    yield store
    store.close()
