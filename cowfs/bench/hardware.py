"""Facts about the machine of a run, and its caches."""

from __future__ import annotations

import os
import platform
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cowfs
from cowfs.base import clock
from cowfs.machine import mount_table

_CACHES = Path("/proc/sys/vm/drop_caches")


def can_drop_caches() -> bool:
    return os.access(_CACHES, os.W_OK)


def drop_caches() -> None:
    """Empties the kernel's caches of every file system, after writing dirty pages."""
    os.sync()
    _CACHES.write_text("3")


def facts() -> dict[str, Any]:
    """The facts needed to compare one run with another."""
    started = datetime.fromtimestamp(clock.now_ns() / 1e9, UTC)
    return {
        "date": started.strftime("%Y-%m-%d %H:%M UTC"),
        "host": socket.gethostname(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "processor": _field("/proc/cpuinfo", "model name"),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "python": platform.python_version(),
        "cowfs": cowfs.__version__,
        "fuse_uring": _read("/sys/module/fuse/parameters/enable_uring"),
        "drops_caches": can_drop_caches(),
        "load_at_start": os.getloadavg()[0],
    }


def file_system(directory: Path) -> str:
    """Its type, from the mount table: the directory is not touched."""
    above = [mount for mount in mount_table.mounts() if directory.is_relative_to(mount.path)]
    return max(reversed(above), key=lambda mount: len(mount.path)).file_system if above else "unknown"


def _field(path: str, name: str) -> str:
    found = (line.partition(":") for line in _read(path).splitlines() if line.startswith(name))
    return next((value.strip() for _, _, value in found), "unknown")


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
