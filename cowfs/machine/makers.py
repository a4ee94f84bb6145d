"""Whether who has left something on this machine may be at work where nothing of him is to be seen:
in another container, or on another machine that shares the directory.

Of a process of this pid namespace /proc tells; of another one nothing does. A reboot ends it, too.
But a boot's id says little by itself: some containers are given one of their own, and another
machine has another one. So it counts only for the same machine, on a file system that no other
kernel can have mounted, and if his record is older than this kernel.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from cowfs import clock
from cowfs.machine import mount_table, proc, processes
from cowfs.machine.processes import ProcessIdentity


def may_be_elsewhere(maker: ProcessIdentity, record: Path) -> bool:
    """record: the file that says who he is."""
    return maker.is_foreign and not is_of_the_past(maker, record)


def is_of_the_past(maker: ProcessIdentity, record: Path) -> bool:
    """Whether he certainly ran before this machine was started anew."""
    if not proc.is_own():
        return False
    if maker.boot_id == processes.boot_id() or _machine(maker.host) != _machine(processes.machine_id()):
        return False
    try:
        fd = os.open(record, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.fstat(fd).st_mtime_ns < _booted_ns() and mount_table.is_local(fd)
    finally:
        os.close(fd)


def _booted_ns() -> int:
    return clock.now_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _machine(host: str) -> str:
    """Without the pid namespace."""
    return host.rpartition(" ")[0]
