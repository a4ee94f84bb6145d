"""Tells whether the process that wrote a record may still run where it is not visible: in another
container, or on another machine that shares the directory.

/proc tells about processes of this pid namespace; nothing tells about those of another one. A
reboot ends them, too. But a boot id alone proves little: some containers have one of their own, and
another machine has another one. So a different boot id counts only if the record is of the same
machine, lies on a file system that no other kernel can have mounted, and is older than this boot.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from cowfs.base import clock
from cowfs.machine import mount_table, proc, processes
from cowfs.machine.processes import ProcessIdentity


def may_be_elsewhere(maker: ProcessIdentity, record: Path) -> bool:
    """record: the file that names the maker."""
    return maker.is_foreign and not is_of_the_past(maker, record)


def is_of_the_past(maker: ProcessIdentity, record: Path) -> bool:
    """Whether the maker certainly ran before the last boot of this machine."""
    if not proc.is_own():
        return False
    if maker.boot_id == processes.boot_id() or _machine(maker.host) != _machine(processes.machine_id()):
        return False
    try:
        fd = os.open(record, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.fstat(fd).st_mtime_ns < _boot_time_ns() and mount_table.is_local(fd)
    finally:
        os.close(fd)


def _boot_time_ns() -> int:
    return clock.now_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _machine(host: str) -> str:
    """The host without the pid namespace."""
    return host.rpartition(" ")[0]
