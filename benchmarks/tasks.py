"""What `cowfs.task` costs beside the same calls by hand.

    python -m benchmarks.tasks [--calls 30] [--directory DIR]

Each call forks a version, mounts the fork, writes one file and finalizes it. The two ways take
turns; prints the median of each, and the median of the differences.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median

import cowfs
from benchmarks import scratch
from cowfs.blocking import ROVolume, Volume


@cowfs.task(volumes=["base::fork"])
def work() -> object:
    volume = cowfs.current("base")
    (volume / "file").write_text("x")
    return volume


def work_by_hand() -> ROVolume:
    volume = Volume.version("base").fork("base-by-hand")
    volume.mount()
    (volume / "file").write_text("x")
    return volume.finalize()


def main() -> None:
    chosen = scratch.options("The cost of cowfs.task.", calls=30)
    with scratch.directory(chosen.directory) as directory:
        os.environ["COWFS_STORE"] = str(directory / "store")
        with Volume.new("base") as base:
            (base / "a").write_text("x")
        work()
        work_by_hand()
        pairs = [(_took_ms(work), _took_ms(work_by_hand)) for _ in range(chosen.calls)]
        print(
            f"cowfs.task {median(one for one, _ in pairs):.1f} ms, by hand {median(other for _, other in pairs):.1f} ms"
        )
        print(f"difference {median(one - other for one, other in pairs):.1f} ms (median of {chosen.calls})")


def _took_ms(call: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    call()
    return (time.perf_counter() - began_s) * 1e3


if __name__ == "__main__":
    main()
