"""The machine a run is made on: what it is, its caches, and what a process needs of its memory."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cowfs
from cowfs import clock

_CACHES = Path("/proc/sys/vm/drop_caches")


def can_drop_caches() -> bool:
    return os.access(_CACHES, os.W_OK)


def drop_caches() -> None:
    """Empties the kernel's caches of every file system; what is dirty is written first."""
    os.sync()
    _CACHES.write_text("3")


def drop_pages() -> None:
    """Only contents: names and attributes stay."""
    os.sync()
    _CACHES.write_text("1")


def memory_bytes(pids: Iterable[int]) -> int:
    """The processes' own share of memory (Pss: shared pages count once among those who share them)."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) << 10
    return total


def facts(directory: Path) -> dict[str, Any]:
    """What has to be known to compare one run with another."""
    started = datetime.fromtimestamp(clock.now_ns() / 1e9, UTC)
    return {
        "date": started.strftime("%Y-%m-%d %H:%M UTC"),
        "host": socket.gethostname(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "processor": _field("/proc/cpuinfo", "model name"),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "file_system": _file_system(directory),
        "python": platform.python_version(),
        "cowfs": cowfs.__version__,
        "fuse_uring": _read("/sys/module/fuse/parameters/enable_uring"),
        "drops_caches": can_drop_caches(),
        "load_at_start": os.getloadavg()[0],
    }


def _file_system(directory: Path) -> str:
    try:
        done = subprocess.run(
            ["stat", "-f", "-c", "%T", directory], check=False, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip()


def _field(path: str, name: str) -> str:
    found = (line.partition(":") for line in _read(path).splitlines() if line.startswith(name))
    return next((value.strip() for _, _, value in found), "unknown")


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
