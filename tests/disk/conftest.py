"""Places to mount in, ended and emptied after each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.daemons import Mount, Place


@pytest.fixture
def place() -> Iterator[Place]:
    """A store with one volume, "v"."""
    with Place() as place:
        place.volume("v")
        yield place


@pytest.fixture
def mount(place: Place) -> Mount:
    """The volume "v", mounted writable."""
    return place.mount("v")


@pytest.fixture
def path(mount: Mount) -> Path:
    return mount.path
