"""Speed, measured as ratios in one run: cowfs beside the local disk, JuiceFS, and FUSE's own limits.

    from cowfs import bench
    results = bench.run("/scratch", store="s3://bucket/prefix")       in a task: blocks, for minutes
    bench.write(results, Path("report"), command="my task")           JSON, tables, plots

`cowfs bench DIR` does the same, `make bench` in the repository with everything to compare with.

    runner                 systems in turn through groups of workloads     systems/     what is compared, one module each
    trial, workloads/      what is done in one session                     jobs, worker, crew     by whom: processes of their own
    rows, results          what is measured, and its targets               report, plots     how it is shown
    library, material, stores    what is prepared once

Nothing here passes or fails by its speed; a wrong result fails.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.runner import run as run
    from cowfs.bench.report import write as write
    from cowfs.bench.results import Results as Results

__all__ = ["Results", "run", "write"]

_HOMES = {"Results": "cowfs.bench.results", "run": "benchmarks.runner", "write": "cowfs.bench.report"}


def __getattr__(name: str) -> object:
    """Workers import this package too, and need none of it."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'cowfs.bench' has no attribute {name!r}")
