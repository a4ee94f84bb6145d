"""fsspec's own suite for file systems, on a volume."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

from cowfs.blocking import Volume
from cowfs.integrations.fsspec import CowfsFileSystem
from tests.api.conftest import machine

pytestmark = [pytest.mark.conformance, pytest.mark.slow]


class Fixtures(AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture
    def place(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """In memory, where there is room: hundreds of versions are made, and each syncs."""
        monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
        yield from machine(monkeypatch)

    @pytest.fixture
    def fs(self, place: Path) -> CowfsFileSystem:
        Volume.new("data").resolve()
        return CowfsFileSystem(skip_instance_cache=True)

    # What a scenario makes is one version, not one a file.

    def _bulk_operations_scenario_0(self, some_fs: Any, *names: Any) -> Any:
        with some_fs.transaction:
            return super()._bulk_operations_scenario_0(some_fs, *names)

    def _glob_edge_cases_files(self, some_fs: Any, *names: Any) -> Any:
        with some_fs.transaction:
            return super()._glob_edge_cases_files(some_fs, *names)

    def _dir_and_file_with_same_name_prefix(self, some_fs: Any, *names: Any) -> Any:
        with some_fs.transaction:
            return super()._dir_and_file_with_same_name_prefix(some_fs, *names)

    def _10_files_with_hashed_names(self, some_fs: Any, *names: Any) -> Any:
        with some_fs.transaction:
            return super()._10_files_with_hashed_names(some_fs, *names)

    @pytest.fixture
    def fs_path(self) -> str:
        return "data"

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return lambda *names: "/".join(names)

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return True


class TestCopy(Fixtures, AbstractCopyTests):  # type: ignore[misc]
    pass


class TestGet(Fixtures, AbstractGetTests):  # type: ignore[misc]
    pass


class TestOpen(Fixtures, AbstractOpenTests):  # type: ignore[misc]
    pass


class TestPipe(Fixtures, AbstractPipeTests):  # type: ignore[misc]
    pass


class TestPut(Fixtures, AbstractPutTests):  # type: ignore[misc]
    pass
