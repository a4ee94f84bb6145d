"""Stores of the test's own, in a directory: plain and encrypted. Imported by the tests that use
them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cowfs.format.sealed import Sealed
from cowfs.store import ObjectStore, initialize, open_store
from cowfs.store.refs import refs
from cowfs.store.reliability import patience


@pytest.fixture(params=["plain", "encrypted"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    opened = open_store((tmp_path / "store").as_uri(), create=True)
    record = initialize(opened)
    if request.param == "encrypted":
        opened.seal_with(Sealed(bytes(range(32)), record.store_id))
    yield opened
    opened.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    opened = open_store((tmp_path / "store").as_uri(), create=True)
    initialize(opened)
    yield opened
    opened.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the store does not answer is given up soon."""
    monkeypatch.setattr(refs, "APPEND_S", 0.2)
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 0.01)
