"""A store of the test's own, in a directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cowfs.store import ObjectStore, initialize, open_store, patience, refs


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    store = open_store((tmp_path / "store").as_uri(), create=True)
    initialize(store)
    yield store
    store.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the store does not answer is given up soon."""
    monkeypatch.setattr(refs, "APPEND_S", 0.2)
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 0.01)
