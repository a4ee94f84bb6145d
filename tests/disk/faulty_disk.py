"""A local disk that loses write-backs, fails syncs and refuses writes: `faulty_disk.c`, compiled
and preloaded under mount daemons.

    disk = FaultyDisk(tmp_path)
    place.environment |= disk.environment
    mount = place.start(place.spec())
    disk.set(lose=5)                    # chances in a thousand, from now on
    disk.lost                           # pages so far

What is lost is lost at once: the daemon reads zeros there. The failure is told once, to whoever
asks first.
"""

from __future__ import annotations

import mmap
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("faulty_disk.c")
CONTROL = struct.Struct("=7I")  # struct control


class FaultyDisk:
    def __init__(self, directory: Path) -> None:
        library, control = directory / "faulty_disk.so", directory / "faulty_disk.control"
        command = [
            "gcc",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "-fPIC",
            "-o",
            str(library),
            str(SOURCE),
            "-ldl",
            "-lpthread",
        ]
        subprocess.run(command, check=True)
        control.write_bytes(bytes(mmap.PAGESIZE))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self.environment = {"LD_PRELOAD": str(library), "FAULTY_DISK": str(control)}

    def set(self, *, lose: int = 0, fail_sync: int = 0, no_space: int = 0, delay_ms: int = 0) -> None:
        """Chances in a thousand: of a range to be lost, of a sync to fail, of a write to meet
        ENOSPC. And how much longer each write to the cache takes."""
        struct.pack_into("=4I", self._control, 0, lose, fail_sync, no_space, delay_ms)

    @property
    def lost(self) -> int:
        return self._counters()[0]

    @property
    def failed_syncs(self) -> int:
        return self._counters()[1]

    @property
    def refused(self) -> int:
        return self._counters()[2]

    def _counters(self) -> tuple[int, int, int]:
        found: tuple[int, int, int] = CONTROL.unpack_from(self._control)[4:]
        return found
