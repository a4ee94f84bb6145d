"""Probes the kernel's features for a mount in /proc and /sys: FUSE over io_uring, passthrough,
read-ahead, cheap waking.

Every answer is about this machine and this process; nothing here mounts or changes anything.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from cowfs.machine.processes import CAP_SYS_ADMIN, has_capability

URING_PARAMETER = Path("/sys/module/fuse/parameters/enable_uring")
SWITCH_URING_ON = f"As root: echo Y > {URING_PARAMETER}"
URING_NEEDS = "It needs Linux 6.14 or later; leave transport at auto, or say device."
URING_DISABLED = Path("/proc/sys/kernel/io_uring_disabled")
PASSTHROUGH_RELEASE = (6, 9)
GUEST_HALT_POLL_NS = Path("/sys/module/haltpoll/parameters/guest_halt_poll_ns")
BDI = Path("/sys/class/bdi")


def is_uring_offered() -> bool:
    """Whether this kernel supports FUSE over io_uring, enabled or not."""
    return URING_PARAMETER.exists()


def is_uring_enabled() -> bool:
    try:
        return URING_PARAMETER.read_text().strip() in ("Y", "1")
    except OSError:
        return False


def is_uring_permitted() -> bool:
    """Whether this process may use io_uring. The kernel's setting: 0, all processes; 1, processes
    with CAP_SYS_ADMIN or in a group; 2, none."""
    level = _number(URING_DISABLED)
    return level is None or level == 0 or (level == 1 and has_capability(CAP_SYS_ADMIN))


def knows_passthrough() -> bool:
    """Whether the kernel is new enough to read files of a mount without the daemon."""
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2]) >= PASSTHROUGH_RELEASE


def halt_poll_ns() -> int | None:
    """How long an idle processor of this virtual machine polls before it is returned to the host;
    None: this kernel cannot set it."""
    return _number(GUEST_HALT_POLL_NS)


def read_ahead_kb(device: str) -> int | None:
    """The read-ahead of the mount with this device number; None where it is not visible."""
    return _number(BDI / device / "read_ahead_kb")


def may_set_read_ahead() -> bool:
    return os.geteuid() == 0 and not os.statvfs("/sys").f_flag & os.ST_RDONLY


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
