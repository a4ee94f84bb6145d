"""What a checkpoint costs whose contents are mostly those of the one before.

    python -m benchmarks.checkpoints [--megabytes 100] [--changed 1.0] [--rounds 15] [--directory DIR]

A checkpoint is one file of random bytes. Each round changes some of them, writes the file, and
commits it with `cowfs.checkpoints`. Three ways of writing take turns:

    rewritten   the whole file is written again, as torch.save does; the change is one range
    scattered   the same, and the change is in 100 ranges
    in place    only the changed range is written

and with them what a training without cowfs does: it keeps a whole file for each checkpoint, written
beside the store and synced.

Prints medians: the time to write, the time that `save` takes (until the state is frozen), the time
until the version is published, and the bytes that it adds to the store.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import cowfs
from benchmarks import scratch
from cowfs.blocking import Checkpoints, Volume

RANGES = {"rewritten": 1, "scattered": 100, "in place": 1}

LOCAL = "a file"


@dataclass(frozen=True)
class Round:
    write_s: float
    save_s: float
    commit_s: float
    stored_bytes: int


def main() -> None:
    chosen = scratch.options("The cost of a checkpoint.", megabytes=100, changed=1.0, rounds=15, seed=1)
    moments = random.Random(chosen.seed)
    size = chosen.megabytes * 1_000_000
    with scratch.directory(chosen.directory) as directory:
        os.environ["COWFS_STORE"] = str(directory / "store")
        runs: dict[str, Path] = {}
        savers: dict[str, Checkpoints] = {}
        content = {way: bytearray(moments.randbytes(size)) for way in RANGES}
        for way in RANGES:
            volume = Volume.new(way.replace(" ", "-"))
            runs[way], savers[way] = volume.mount() / "model.bin", cowfs.checkpoints(volume)
            runs[way].write_bytes(content[way])
            savers[way].save(0)
            savers[way].wait()
        found: dict[str, list[Round]] = {way: [] for way in (*RANGES, LOCAL)}
        for step in range(1, chosen.rounds + 1):
            found[LOCAL].append(_local_round(directory / "local.bin", content["rewritten"]))
            for way in RANGES:
                changes = list(_change(content[way], RANGES[way], size * chosen.changed / 100, moments))
                found[way].append(_round(savers[way], runs[way], content[way], changes, step, way == "in place"))
        for way, rounds in found.items():
            write, save, commit = (
                median(getattr(each, name) for each in rounds) * 1e3 for name in ("write_s", "save_s", "commit_s")
            )
            stored = median(each.stored_bytes for each in rounds) / 1e6
            print(
                f"{way:10} write {write:6.0f} ms  save {save:5.0f} ms  published after {commit:5.0f} ms  {stored:5.2f} MB"
            )
        for saver in savers.values():
            saver.close()
            saver.volume.finalize()


def _change(content: bytearray, count: int, size: float, moments: random.Random) -> Iterator[tuple[int, int]]:
    each = int(size / count)
    for _ in range(count):
        at = moments.randrange(len(content) - each)
        content[at : at + each] = moments.randbytes(each)
        yield at, each


def _round(
    saver: Checkpoints, path: Path, content: bytearray, changes: list[tuple[int, int]], step: int, is_in_place: bool
) -> Round:
    begins_s = time.perf_counter()
    if is_in_place:
        with path.open("r+b") as file:
            for at, length in changes:
                file.seek(at)
                file.write(content[at : at + length])
    else:
        path.write_bytes(content)
    written_s = time.perf_counter()
    saver.save(step)
    saved_s = time.perf_counter()
    version = saver.wait()
    assert version is not None
    assert version.labels["step"] == str(step)
    return Round(
        written_s - begins_s, saved_s - written_s, time.perf_counter() - written_s, version.stats.stored_bytes_added
    )


def _local_round(path: Path, content: bytearray) -> Round:
    begins_s = time.perf_counter()
    with path.open("wb") as file:
        file.write(content)
        written_s = time.perf_counter()
        os.fsync(file.fileno())
    synced_s = time.perf_counter() - written_s
    path.unlink()  # room for the next
    return Round(written_s - begins_s, synced_s, synced_s, len(content))


if __name__ == "__main__":
    main()
