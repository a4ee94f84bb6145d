"""Whether who has left something on this machine may be at work where nothing of him is to be seen:
in another container, or on another machine that shares the directory.

Of a process of this pid namespace /proc tells; of another one nothing does. A reboot ends it, too.
But a boot's id says little by itself: some containers are given one of their own, and another
machine has another one. So it counts only for the same machine, on a file system that no other
kernel can have mounted.
"""

from __future__ import annotations

import os
from pathlib import Path

from cowfs.machine import mount_table, proc, processes
from cowfs.machine.processes import ProcessIdentity


def may_be_elsewhere(maker: ProcessIdentity, directory: Path) -> bool:
    """directory: where his record lies."""
    return maker.is_foreign and not is_of_the_past(maker, directory)


def is_of_the_past(maker: ProcessIdentity, directory: Path) -> bool:
    """Whether he certainly ran before this machine was started anew."""
    if not proc.is_own():
        return False
    if maker.boot_id == processes.boot_id() or _machine(maker.host) != _machine(processes.machine_id()):
        return False
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return mount_table.is_local(fd)
    finally:
        os.close(fd)


def _machine(host: str) -> str:
    """Without the pid namespace."""
    return host.rpartition(" ")[0]
