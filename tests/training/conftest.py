"""A machine of its own for each test, and a run to write to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cowfs.blocking import RWVolume, Volume
from tests.api.conftest import machine


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for variable in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    yield from machine(monkeypatch)


@pytest.fixture
def run(place: Path) -> Iterator[RWVolume]:
    volume = Volume.new("run")
    volume.mount()
    yield volume
    if not volume.is_over:
        volume.discard(force=True)
