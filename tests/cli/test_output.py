"""How far a commit is, as a person reads it."""

from __future__ import annotations

import pytest

from cowfs import Progress
from cowfs.cli import output

pytestmark = pytest.mark.quick

GIB = 1 << 30


@pytest.mark.parametrize(
    ("progress", "elapsed_s", "said"),
    [
        (Progress("index"), 5.0, "index"),
        (Progress("replay", 1_000, 2_000_000), 5.0, "replay 1,000 of 2,000,000"),
        (Progress("files", 0, 3, 0, GIB), 5.0, "files 0 of 3, 0 B of 1.0 GiB"),
        (Progress("files", 1, 3, GIB, 4 * GIB), 0.1, "files 1 of 3, 1.0 GiB of 4.0 GiB"),
        (Progress("files", 1, 3, GIB, 4 * GIB), 16.0, "files 1 of 3, 1.0 GiB of 4.0 GiB, 64.0 MiB/s, 48 s left"),
        (Progress("files", 1, 9, GIB, 8 * GIB), 64.0, "files 1 of 9, 1.0 GiB of 8.0 GiB, 16.0 MiB/s, 7 min left"),
        (Progress("files", 3, 3, GIB, GIB), 16.0, "files 3 of 3, 1.0 GiB of 1.0 GiB, 64.0 MiB/s, 0 s left"),
    ],
)
def test_progress(progress: Progress, elapsed_s: float, said: str) -> None:
    assert output.described(progress, elapsed_s) == said
