"""Fixtures of the index tests; `bench` has the parts they are made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.index.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.store.close()
