"""How long a mount takes that has uncommitted work to recover: many new files, then `kill -9`, then
the mount.

    python -m benchmarks.recovery [--files 1000000] [--bytes 10] [--times 3] [--checkpoint] [--directory DIR]

Makes so many files in directories of 1,000 through the kernel, kills the daemon, and mounts again
as often as asked, killing the daemon each time: the journal stays as it is. "mount" is from the
call to its return, a new process and its imports in it; "idle" is the same for an empty volume;
"processor" is what the daemon used until then, by all its threads. --checkpoint unmounts once
before the first measurement: the journal is a checkpoint then, and no log of single records.
Everything lies below DIR, which is removed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from benchmarks import scratch
from benchmarks.commit_memory import write
from benchmarks.processes import cpu_s, mounted
from cowfs import blocking
from cowfs.machine.processes import wait_gone

GONE_S = 60.0


def main() -> None:
    chosen = scratch.options(
        "Time to recover uncommitted new files.", files=1_000_000, bytes=10, times=3, checkpoint=False
    )
    with scratch.directory(chosen.directory) as directory:
        idle = [Working(directory, "idle").mount() for _ in range(chosen.times)]
        print("idle:", *(f"mount {wall_s:.2f} s, processor {used_s:.2f} s" for wall_s, used_s in idle), sep="\n  ")
        full = Working(directory, "full")
        full.fill(chosen.files, chosen.bytes, unmounts=chosen.checkpoint)
        for _ in range(chosen.times):
            wall_s, used_s = full.mount()
            print(f"{chosen.files} files: mount {wall_s:.2f} s, processor {used_s:.2f} s", flush=True)


class Working:
    """A volume of its own, and its mounts, one after the other."""

    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / f"mount-{name}"
        self._cache = directory / f"cache-{name}"
        self._meta = directory / f"meta-{name}"
        self._volume = blocking.Volume.open(name, store=(directory / "store").as_uri(), create=True)

    def fill(self, files: int, size: int, *, unmounts: bool) -> None:
        path = Path(self._volume.mount(self._path, cache_dir=self._cache, meta_dir=self._meta))
        write(path, files, b"n" * size)
        if unmounts:
            self._volume.unmount()
        else:
            self._kill()

    def mount(self) -> tuple[float, float]:
        """(s until it is mounted, s of processor time that its daemon used); killed afterwards."""
        since_s = time.monotonic()
        self._volume.mount(self._path, cache_dir=self._cache, meta_dir=self._meta)
        wall_s = time.monotonic() - since_s
        return wall_s, self._kill()

    def _kill(self) -> float:
        pid = mounted(self._path).pid
        used_s = cpu_s(pid)
        os.kill(pid, signal.SIGKILL)
        assert wait_gone(pid, GONE_S)
        subprocess.run(["umount", self._path], check=True)
        return used_s


if __name__ == "__main__":
    main()
