"""Measures the speed of a directory, compared with the local disk.

    from cowfs import bench
    results = bench.run("/mnt/volume")       in a task: blocks, for minutes
    print(bench.text(results))

`cowfs bench DIR` does the same. DIR is a mounted volume, or any other directory.

    runner                 runs the workloads in both directories, in turn
    trial, workloads/      the workloads                jobs, worker, crew   the processes that run them
    table, results         the measurements             report               the results as text
    material               files made once for a run    hardware             facts about the machine

A run fails if a result is wrong, never because it is slow. `benchmarks/` in the repository uses
these workloads to compare cowfs with other file systems.
"""

from __future__ import annotations

from cowfs.bench.report import text as text
from cowfs.bench.results import Results as Results
from cowfs.bench.runner import run as run

__all__ = ["Results", "run", "text"]
