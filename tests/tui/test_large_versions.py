"""The explorer on a version of a million files: what it fetches until the first tree stands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from cowfs.blocking import Store
from cowfs.store.backends.directory.directory_store import DirectoryStore
from cowfs.tui.app import Explorer
from cowfs.tui.version import VersionScreen
from tests.api.conftest import place
from tests.tui.test_explore import entries, explore, until
from tests.version.empty_files import publish_empty_files

__all__ = ["place"]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("place")]

DIRECTORIES, FILES = 1000, 1_000_000
LIMIT_BYTES = 2_000_000


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each answer of the store."""
    sizes: list[int] = []

    def noting(call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(self: DirectoryStore, key: str, *arguments: Any) -> Any:
            data = call(self, key, *arguments)
            sizes.append(len(data))
            return data

        return noted

    streams = DirectoryStore.stream_range

    def noted_stream(self: DirectoryStore, key: str, offset: int, length: int, *rest: Any) -> Any:
        sizes.append(length)
        return streams(self, key, offset, length, *rest)

    monkeypatch.setattr(DirectoryStore, "stream_range", noted_stream)
    for name in ("get", "get_range"):
        monkeypatch.setattr(DirectoryStore, name, noting(getattr(DirectoryStore, name)))
    return sizes


def test_the_first_tree_of_a_million_files_costs_two_megabytes(place: Path, fetched: list[int]) -> None:
    publish_empty_files((place / "store").as_uri(), "many", DIRECTORIES, FILES, place / "maker")

    async def drive(app: Explorer, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: isinstance(app.screen, VersionScreen))
        await until(pilot, lambda: len(entries(app).root.children) == DIRECTORIES)

    fetched.clear()
    explore(drive, Explorer(Store(), Store().version("many").resolve()))
    print(f"fetched {sum(fetched)} bytes in {len(fetched)} answers")
    assert 0 < sum(fetched) < LIMIT_BYTES
