"""How long the long tests are. The whole suite runs a share of them: fewer cases, every kind.
`make test-long` runs them in full (COWFS_TEST_EFFORT=1)."""

from __future__ import annotations

import os

EFFORT = float(os.environ.get("COWFS_TEST_EFFORT", "0.4"))


def share(of: int) -> int:
    """The number of cases out of those of a full run; at least one."""
    return max(1, round(of * EFFORT))
