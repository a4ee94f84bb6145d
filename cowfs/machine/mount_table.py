"""The kernel's view of mounts and their users, read from /proc and /sys without ever touching a
mount.

`stat` on a mount whose daemon hangs would hang with it, and a daemon that looks at its own mount
would wait for itself. So this module only reads tables: /proc/self/mountinfo, the links below
/proc/<pid>, /sys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from cowfs.base.errors import ConflictError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.machine import proc

FILE_SYSTEM_TYPE = "fuse.cowfs"
SCRATCH_MARK = "+scratch"
"""Follows the volume in the source of a scratch mount; no volume name has a plus sign."""
LOCAL_FILE_SYSTEMS = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "tmpfs", "xfs", "zfs"})
READ_AHEAD_KB = 4096
MountKind = Literal["fuse", "folder", "scratch"]
"""How a mount is made, and what becomes of its work: by FUSE; as a folder of plain files, without
FUSE; by FUSE, with writes that are dropped at the end unless they are committed."""


@dataclass(frozen=True)
class MountInfo:
    """One line of /proc/self/mountinfo. device is "major:minor"; options are those of the mount and
    of its super block."""

    mount_id: int
    device: str
    path: str
    file_system: str
    source: str
    options: frozenset[str]

    @property
    def is_cowfs(self) -> bool:
        return self.file_system == FILE_SYSTEM_TYPE

    @property
    def kind(self) -> MountKind:
        """Of a mount of cowfs. A scratch's files are lost once its daemon is gone."""
        return "scratch" if self.source.endswith(SCRATCH_MARK) else "fuse"

    @property
    def volume(self) -> str:
        """The volume's name, cut to the length of a mount option."""
        return self.source.partition(":")[2].removesuffix(SCRATCH_MARK)

    @property
    def is_ours(self) -> bool:
        """Whether it is a mount of cowfs that this user has made."""
        return self.is_cowfs and f"user_id={os.geteuid()}" in self.options


def mounts() -> list[MountInfo]:
    """Every mount that this process can see, in the order of mounting. InvalidStateError: /proc is
    of another pid namespace, so the servers and users of mounts would not be visible."""
    proc.require_own()
    text = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    return [_parse(line) for line in text.splitlines()]


def mount_at(path: str) -> MountInfo | None:
    """The topmost mount on exactly this canonical path."""
    found = [mount for mount in mounts() if mount.path == path]
    return found[-1] if found else None


def mount_of(fd: int) -> MountInfo | None:
    """The mount that an open file lies in; None: it was detached, or the kernel does not say."""
    lines = _read_fdinfo(fd)
    number = next((int(line.split()[1]) for line in lines if line.startswith("mnt_id:")), None)
    return next((mount for mount in mounts() if mount.mount_id == number), None)


def seems_local(path: str) -> bool:
    """As `is_local`, for a path whose links are not followed; touches no mount."""
    path = os.path.normpath(path)
    around = [mount for mount in mounts() if path == mount.path or path.startswith(f"{mount.path.rstrip('/')}/")]
    innermost = max(reversed(around), key=lambda mount: len(mount.path), default=None)
    return innermost is not None and innermost.file_system in LOCAL_FILE_SYSTEMS


def is_local(fd: int) -> bool:
    """Whether an open file lies on a file system that only this kernel can have mounted. A network
    file system, FUSE or an overlay can be mounted twice."""
    mount = mount_of(fd)
    return mount is not None and mount.file_system in LOCAL_FILE_SYSTEMS


def device_served(fd: int) -> str | None:
    """The device of the file system that an open /dev/fuse serves; None: it serves none, or the
    kernel does not say (before Linux 6.16)."""
    lines = _read_fdinfo(fd)
    return next((f"0:{line.split()[1]}" for line in lines if line.startswith("fuse_connection:")), None)


def _read_fdinfo(fd: int) -> list[str]:
    """[]: before Linux 5.14, for a process that is not dumpable (`processes.hide_memory`)."""
    try:
        return Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()
    except PermissionError:
        return []


def require_nothing_inside(path: str) -> None:
    """ConflictError: mounts lie below that canonical path; unmounting it would remove them, too."""
    if inner := [each.path for each in mounts() if each.path.startswith(f"{path.rstrip('/')}/")]:
        raise ConflictError(
            f"{path} is in use: {', '.join(inner)} is mounted in it",
            hint=f"Unmount that first. {Command('status')} shows the mounts of cowfs, `findmnt` all.",
            details={"mounts": inner},
        )


def users(mount: MountInfo) -> list[int]:
    """Pids of other processes that have a file of the mount open, mapped, or as their current
    directory.

    Limited to processes that this one may inspect. Processes that see the mount elsewhere, in
    another mount namespace, are found by their maps only.
    """
    return [pid for pid in _pids() if pid != os.getpid() and _uses(pid, mount)]


def command(pid: int) -> str:
    """The name of a process as `ps` shows it; "?" when it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "?"


def set_read_ahead(mount: MountInfo) -> bool:
    """Raises the kernel's read-ahead of this mount; False where that is not permitted.

    Otherwise the kernel cuts reads to 128 KiB, whatever the file system offers.
    """
    return _write(Path(f"/sys/class/bdi/{mount.device}/read_ahead_kb"), READ_AHEAD_KB)


def set_max_background(mount: MountInfo, requests: int, congestion: int) -> bool:
    """Raises the number of buffered reads in flight (12 by default), and the number above which the
    kernel stops reading ahead; False where that is not permitted."""
    connection = _connection(mount)
    return _write(connection / "max_background", requests) and _write(connection / "congestion_threshold", congestion)


def abort(mount: MountInfo) -> bool:
    """Breaks the connection: all waiting and later requests fail. False where that is not
    permitted."""
    return _write(_connection(mount) / "abort", 1)


def _connection(mount: MountInfo) -> Path:
    return Path("/sys/fs/fuse/connections") / mount.device.partition(":")[2]


def _parse(line: str) -> MountInfo:
    # 36 35 98:0 /root /path options [tags] - type source super-options
    left, _, right = line.partition(" - ")
    mount_id, _, device, _, path, options = left.split(" ")[:6]
    file_system, source, super_options = [*right.split(" "), "", ""][:3]
    every = frozenset(options.split(",")) | frozenset(super_options.split(","))
    return MountInfo(int(mount_id), device, _unescape(path), file_system, _unescape(source), every)


def _unescape(text: str) -> str:
    """Undoes the kernel's octal escapes of space, tab, newline and backslash."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isascii() and name.isdigit())


def _uses(pid: int, mount: MountInfo) -> bool:
    process = f"/proc/{pid}"
    links = [f"{process}/cwd", f"{process}/root", f"{process}/exe"]
    try:
        links += [f"{process}/fd/{name}" for name in os.listdir(f"{process}/fd")]
    except OSError:
        return False  # ended, or not inspectable by this user
    return any(_leads_into(link, mount.path) for link in links) or _maps(process, mount.device)


def _leads_into(link: str, path: str) -> bool:
    try:
        target = os.readlink(link)
    except OSError:
        return False
    return target == path or target.startswith(path.rstrip("/") + "/")


def _maps(process: str, device: str) -> bool:
    major, _, minor = device.partition(":")
    wanted = f"{int(major):02x}:{int(minor):02x}"
    try:
        with open(f"{process}/maps", errors="replace") as lines:
            return any(line.split(maxsplit=4)[3] == wanted for line in lines)
    except OSError:
        return False


def _write(path: Path, number: int) -> bool:
    try:
        path.write_text(str(number))
    except OSError:
        return False
    return True
