"""How much memory a commit takes besides what the engine holds:
`python -m tests.version.commit_memory FILES DIRECTORY`.

In a process of its own, so that nothing else grows meanwhile. Makes FILES small files, commits,
overwrites all of them, commits, and prints the peak of resident memory above what it was before
each commit, in bytes, as JSON: {"create": …, "change": …}.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

from cowfs.store import initialize, open_store
from tests.version.working_volume import ME, WorkingVolume

PER_DIRECTORY = 1000


def main() -> None:
    files, directory = int(sys.argv[1]), Path(sys.argv[2])
    store = open_store((directory / "store").as_uri(), create=True)
    initialize(store)
    with WorkingVolume(store, "v", directory / "home") as volume:
        create(volume, files)
        created = peak_bytes_of_a_commit(volume)
        overwrite(volume, files)
        print(json.dumps({"create": created, "change": peak_bytes_of_a_commit(volume)}))


def create(volume: WorkingVolume, files: int) -> None:
    engine = volume.engine
    for first in range(0, files, PER_DIRECTORY):
        volume.mkdir(b"d%d" % first)
        parent = volume.find(b"d%d" % first)
        for number in range(first, min(first + PER_DIRECTORY, files)):
            attr, fh = volume.call(engine.create, parent, b"sample-%08d.json" % number, 0o100644, os.O_WRONLY, ME)
            engine.write(fh, 0, b"%d" % number + bytes(range(100)))
            engine.release(fh)
            engine.forget(attr.ino, 1)


def overwrite(volume: WorkingVolume, files: int) -> None:
    engine = volume.engine
    for first in range(0, files, PER_DIRECTORY):
        parent = volume.find(b"d%d" % first)
        for number in range(first, min(first + PER_DIRECTORY, files)):
            attr = volume.call(engine.lookup, parent, b"sample-%08d.json" % number)
            fh = volume.call(engine.open_file, attr.ino, os.O_WRONLY)
            volume.call(engine.write, fh, 0, b"%d" % -number)
            engine.release(fh)
            engine.forget(attr.ino, 1)


def peak_bytes_of_a_commit(volume: WorkingVolume) -> int:
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status("VmRSS")
    volume.commit()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
