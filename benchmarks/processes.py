"""What a process has used, by the kernel's account."""

from __future__ import annotations

import os
from pathlib import Path

from cowfs.machine import registry
from cowfs.machine.registry import MountEntry


def cpu_s(pid: int) -> float:
    """By all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def status_bytes(pid: int, name: str) -> int:
    """VmRSS: resident memory now; VmHWM: at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def mounted(path: Path) -> MountEntry:
    """The mount at a path, and with it its daemon."""
    entry = registry.find_by_path(path)
    assert entry is not None
    return entry
