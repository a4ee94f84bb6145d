"""Mount points: checks before mounting, mount options, and unmounting.

`prepare` refuses, each with its own error and hint: a missing parent, something that is not a
directory, a directory with entries, a path that is mounted already, a machine or container without
a usable /dev/fuse, one without the right to mount, a user without a setuid fusermount3. A mount
whose daemon has died answers every request with ENOTCONN; `prepare` detaches such a mount.
Unmounting works as root by umount2(2) and otherwise through fusermount3, the only program started
here. Its success is judged by its effect and its output, since its exit status is lost where
SIGCHLD is ignored or another handler waits for every child.
"""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import re
import shutil
import socket
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from cowfs.base import clock, programs
from cowfs.base.errors import (
    AccessDeniedError,
    ConflictError,
    InvalidInputError,
    MountFailedError,
    NotFoundError,
    unusable,
)
from cowfs.base.hints import Command
from cowfs.machine import dead_mounts, mount_table, processes, registry
from cowfs.machine.mount_table import MountInfo

DEVICE = Path("/dev/fuse")
FUSE_CONF = Path("/etc/fuse.conf")
FUSE_DEVICE_NUMBER = os.makedev(10, 229)  # fixed: Documentation/admin-guide/devices.txt
MNT_FORCE = 1
MNT_DETACH = 2
MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_POSIXACL = 1 << 16
"""Makes the kernel leave the umask to the server, since a default ACL replaces it. The lane
requests this itself, pyfuse3 does not. fusermount3 has no option for it."""
UMOUNT_NOFOLLOW = 8
FUSERMOUNT_TIMEOUT_S = 60
CONTAINER = "Start the container with --device /dev/fuse --cap-add SYS_ADMIN; in Kubernetes, with privileged: true."
UNCONFINED = (
    "If it is, a security profile of the container forbids mounting: start it with --security-opt apparmor=unconfined, "
    "seccomp=unconfined or label=disable."
)
STACKED_STALE_MOUNTS = 8
BUSY_PATIENCE_S = 1.0
"""A process that has just closed its files, or ended, may still count as a user for a moment. Seen
under load; the time is a guess."""
BUSY_STEP_S = 0.05
_BUSY = object()

_libc = ctypes.CDLL(None, use_errno=True)


def prepare(path: str) -> bool:
    """Makes sure that `path` (canonical) can be mounted on; returns True when it had to be made."""
    check_device()
    return prepare_directory(path)


def prepare_directory(path: str, *, may_be_mount: bool = False) -> bool:
    """Makes sure that `path` (canonical) is an empty directory and not a mount; returns True when
    it had to be made. may_be_mount: a mount of another file system is acceptable."""
    mount = mount_table.mount_at(path)
    if mount is not None and (mount.is_cowfs or not may_be_mount):
        _detach_stale(path)
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return _make(path)
    except NotADirectoryError:
        raise _not_a_directory(path) from None
    except PermissionError:
        raise AccessDeniedError(f"{path} cannot be reached", hint="Choose a path you may enter.") from None
    if not stat.S_ISDIR(found.st_mode):
        raise _not_a_directory(path)
    try:
        with os.scandir(path) as entries:
            entry = next(entries, None)
    except PermissionError:
        raise AccessDeniedError(f"{path} cannot be read", hint="Choose a directory of yours.") from None
    if entry is not None:
        raise ConflictError(
            f"{path} is not empty", hint="Mount on an empty directory, or on a path that does not exist."
        )
    return False


def check_device() -> None:
    """MountFailedError when this machine, container or user cannot mount FUSE file systems at
    all."""
    _check_opening()
    if os.geteuid() == 0:
        if not processes.has_capability(processes.CAP_SYS_ADMIN):
            raise MountFailedError("root here may not mount: the capability SYS_ADMIN is missing", hint=CONTAINER)
        return
    program = shutil.which("fusermount3")
    if program is None:
        raise MountFailedError("there is no fusermount3", hint="Install it (apt-get install fuse3), or mount as root.")
    if not os.stat(program).st_mode & stat.S_ISUID:
        raise MountFailedError(f"{program} is not setuid", hint=f"As root: chmod u+s {program}")
    if processes.has_no_new_privileges():
        raise MountFailedError(
            f"{program} cannot become root here: no_new_privs is set",
            hint="Start the container without no-new-privileges (Kubernetes: allowPrivilegeEscalation: true), or mount as root.",
        )
    if not processes.has_capability(processes.CAP_SYS_ADMIN, "CapBnd"):
        raise MountFailedError(f"{program} may not mount here: the capability SYS_ADMIN is missing", hint=CONTAINER)
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        raise MountFailedError(
            f"{program} mounts for users that have a name, and uid {os.getuid()} has none here",
            hint="Add a line for it to /etc/passwd, run as a user that is there (docker run --user), or mount as root.",
        ) from None


def _check_opening() -> None:
    """Opens the device, since only that reveals a container's device rules; opening also loads the
    module where permitted."""
    try:
        fd = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        raise MountFailedError(
            f"there is no {DEVICE}", hint=f"Load the kernel module (modprobe fuse). In a container: {CONTAINER}"
        ) from None
    except OSError as error:
        if error.errno == errno.EPERM:
            hint = f"A bind mount of the device gives no right to open it. {CONTAINER}"
            raise MountFailedError(f"the rules of this container do not let {DEVICE} be opened", hint=hint) from error
        if error.errno == errno.EACCES:  # fusermount3 could, but this user is excluded on purpose
            raise MountFailedError(f"{DEVICE} may not be opened", hint=f"As root: chmod 666 {DEVICE}") from error
        raise MountFailedError(
            f"{DEVICE} cannot be opened: {error.strerror}", hint="Load the kernel module (modprobe fuse)."
        ) from error
    try:
        found = os.fstat(fd)
    finally:
        os.close(fd)
    if not _is_fuse(found):  # a container hides a device behind an empty file, or /dev/null
        raise MountFailedError(f"{DEVICE} is not the FUSE device", hint=CONTAINER)


def _is_fuse(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == FUSE_DEVICE_NUMBER


def check_descriptor(fd: int) -> None:
    """MountFailedError unless `fd` is an open /dev/fuse."""
    try:
        found = os.fstat(fd)
    except OSError as error:
        raise MountFailedError(
            f"descriptor {fd} is not open", hint="Let the starter pass on its descriptor of /dev/fuse."
        ) from error
    if not _is_fuse(found):
        raise MountFailedError(
            f"descriptor {fd} is not one of {DEVICE}", hint="Open it, mount with it, and hand in that descriptor."
        )


def require_seen(fd: int, path: str) -> None:
    """MountFailedError: this process does not see the descriptor's mount at that canonical path, so
    its programs would use the underlying directory."""
    found = mount_table.mount_at(path)
    served = mount_table.device_served(fd)
    if found is None or not found.file_system.startswith("fuse") or served not in (None, found.device):
        raise MountFailedError(
            f"the mount of descriptor {fd} is not at {path} in this mount namespace",
            hint="Name the path where it is mounted. If it was mounted outside of a container, the container must see later "
            "mounts: a bind with `rslave` (docker, podman), `mountPropagation: HostToContainer` (Kubernetes).",
        )


def options(name: str, *, read_only: bool, allow_other: bool | None, scratch: bool = False) -> set[str]:
    """Options for `mount`; the mount table shows the mount as `name`. Always includes
    default_permissions: the layers below check no access.

    allow_other: None admits other users where that is permitted; True requires it."""
    name = re.sub(r"[^A-Za-z0-9._@-]", "_", name)  # fusermount3 splits at commas
    if scratch:
        name += mount_table.SCRATCH_MARK
    chosen = {"default_permissions", f"fsname=cowfs:{name}", "subtype=cowfs"}
    if read_only:
        chosen.add("ro")
    if allow_other or (allow_other is None and others_permitted()):
        if not others_permitted():
            raise AccessDeniedError(
                "other users may not be let into this mount",
                hint=f"Write user_allow_other into {FUSE_CONF} as root, or mount without allow_other.",
            )
        chosen.add("allow_other")
    return chosen


def mount(path: str, options: set[str]) -> int:
    """Mounts on `path` with the result of `options`; returns the descriptor on which requests
    arrive.

    As root by mount(2); for others fusermount3 does it, and sends the descriptor over a socket.
    """
    return _mount_as_root(path, options) if os.geteuid() == 0 else _mount_by_helper(path, options)


def _mount_as_root(path: str, options: set[str]) -> int:
    fd = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    named = dict(option.split("=", 1) for option in options if "=" in option)
    data = [f"fd={fd}", f"rootmode={stat.S_IFDIR:o}", f"user_id={os.getuid()}", f"group_id={os.getgid()}"]
    data += sorted(options & {"default_permissions", "allow_other"})
    flags = MS_NOSUID | MS_NODEV | MS_POSIXACL | (MS_RDONLY if "ro" in options else 0)
    arguments = [text.encode() for text in (named["fsname"], f"fuse.{named['subtype']}", ",".join(data))]
    if _libc.mount(arguments[0], os.fsencode(path), arguments[1], ctypes.c_ulong(flags), arguments[2]) == 0:
        return fd
    reason = os.strerror(ctypes.get_errno())
    os.close(fd)
    raise refusal(path, reason)


def _mount_by_helper(path: str, options: set[str]) -> int:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            _, said = _fusermount3(
                "-o",
                ",".join(sorted(options)),
                "--",
                path,
                pass_fds=[theirs.fileno()],
                variables={"_FUSE_COMMFD": str(theirs.fileno())},
            )
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)  # empty if it failed
    if not descriptors:
        raise refusal(path, "; ".join(said.split("\n")).strip("; ") or "fusermount3 sent no descriptor")
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def refusal(path: str, reason: str) -> MountFailedError:
    """The error for a mount that the kernel or fusermount3 refused. is_forbidden in its details: a
    permission was missing."""
    is_forbidden = "Operation not permitted" in reason or "Permission denied" in reason
    if is_forbidden:
        hint = f"Mount on a directory you own. {UNCONFINED}"
    elif "too many" in reason:
        hint = "Unmount another file system, or raise mount_max in /etc/fuse.conf."
    else:
        hint = f"{Command('doctor')} checks what mounting needs."
    return MountFailedError(f"{path} cannot be mounted: {reason}", hint=hint, details={"is_forbidden": is_forbidden})


def others_permitted() -> bool:
    if os.geteuid() == 0:
        return True
    try:
        lines = FUSE_CONF.read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(line.strip() == "user_allow_other" for line in lines)


def verify(path: str, *, read_only: bool) -> MountInfo:
    """Returns the mount just made at `path`, after checking in the mount table that it is ours and
    that the kernel checks its permissions."""
    mount = mount_table.mount_at(path)
    if mount is None or not mount.is_cowfs:
        raise MountFailedError(f"{path} is not mounted", hint="Something else unmounted it just now; try again.")
    wanted = {"default_permissions"} | ({"ro"} if read_only else set())
    if missing := wanted - mount.options:
        raise MountFailedError(
            f"the kernel mounted {mount.path} without {', '.join(sorted(missing))}",
            hint="Without it nothing would check permissions; mount on another machine, and report this.",
        )
    return mount


def unmount(mount: MountInfo, *, lazy: bool = False) -> None:
    """Unmounts this mount. ConflictError while processes use it, unless lazy. Does nothing if it is
    gone already.

    While its daemon lives or it is in the table, no other mount can get its device number. So the
    mount at the path with that number is this one; another mount over it is left alone.
    """
    there = mount_table.mount_at(mount.path)
    if there is None or there.device != mount.device:
        return
    take_off = _umount if os.geteuid() == 0 else _fusermount
    until_s = clock.monotonic_s() + BUSY_PATIENCE_S
    while take_off(mount, lazy=lazy) is _BUSY:
        if clock.monotonic_s() >= until_s:
            raise _busy(mount)
        clock.sleep_s(BUSY_STEP_S)


def abort(mount: MountInfo) -> bool:
    """Breaks the connection: all waiting and later requests fail, also those of a process that was
    killed while it waited for its own mount. False where that is not permitted."""
    if mount_table.abort(mount):
        return True
    there = mount_table.mount_at(mount.path)  # /sys/fs/fuse/connections is often not mounted
    if os.geteuid() != 0 or not may_unmount(mount) or there is None or there.device != mount.device:
        return False
    is_off = _libc.umount2(os.fsencode(mount.path), MNT_FORCE | UMOUNT_NOFOLLOW) == 0
    return is_off or ctypes.get_errno() != errno.EPERM


def may_unmount(mount: MountInfo) -> bool:
    """Whether this process may unmount it: not in an unprivileged container if the mount was made
    outside and its descriptor passed in."""
    if os.geteuid() == 0:
        return processes.has_capability(processes.CAP_SYS_ADMIN)
    return f"user_id={os.getuid()}" in mount.options and shutil.which("fusermount3") is not None


def detach_dead(path: str) -> bool:
    """Unmounts `path` if the daemon of its mount has died; False if there is no such mount."""
    mount = dead_mounts.find_at(path)
    if mount is None:
        return False
    abort(mount)
    unmount(mount, lazy=True)
    return True


def _umount(mount: MountInfo, *, lazy: bool) -> object:
    flags = UMOUNT_NOFOLLOW | (MNT_DETACH if lazy else 0)
    if _libc.umount2(os.fsencode(mount.path), flags) == 0:
        return None
    number = ctypes.get_errno()
    if number == errno.EBUSY:
        return _BUSY
    if number not in (errno.EINVAL, errno.ENOENT):
        raise _stuck(mount, os.strerror(number))
    return None


def _fusermount(mount: MountInfo, *, lazy: bool) -> object:
    status, said = _fusermount3("-u", *(["-z"] if lazy else []), "--", mount.path)
    there = mount_table.mount_at(mount.path)
    if there is None or there.device != mount.device or not (status or said):
        return None
    if "busy" in said:
        return _BUSY
    raise _stuck(mount, said.strip())


def _fusermount3(
    *arguments: str, pass_fds: Sequence[int] = (), variables: Mapping[str, str] = MappingProxyType({})
) -> tuple[int, str]:
    """Its exit status, and its error output."""
    done = programs.run(
        ["fusermount3", *arguments],
        pass_fds=pass_fds,
        env={**programs.environment(), "LC_ALL": "C", **variables},
        timeout_s=FUSERMOUNT_TIMEOUT_S,
    )
    return done.returncode, done.stderr.decode(errors="replace")


def _detach_stale(path: str) -> None:
    """Unmounts mounts of ours whose daemon has died; ConflictError for any other mount."""
    for _ in range(STACKED_STALE_MOUNTS):
        mount = mount_table.mount_at(path)
        if mount is None:
            return
        if not detach_dead(path):
            live = registry.find_by_path(path)
            serving = f" by process {live.pid}" if live is not None else ""
            raise ConflictError(
                f"{path} is a mount already: {mount.source}{serving}", hint="Unmount it, or choose another path."
            )
    raise MountFailedError(f"{path} carries too many dead mounts", hint="As root: umount -l " + path)


def require_parent(path: str) -> None:
    """NotFoundError: the parent directory of the path does not exist."""
    parent = os.path.dirname(path)
    if not os.path.lexists(parent):
        raise NotFoundError(f"{parent} does not exist", hint=f"Make it first: mkdir -p {parent}")


def _make(path: str) -> bool:
    try:
        os.mkdir(path)
    except FileExistsError:
        raise _not_a_directory(path) from None  # a dangling link
    except OSError as error:
        require_parent(path)
        raise unusable(error, f"{path} cannot be made", elsewhere="choose another path.") from error
    return True


def _not_a_directory(path: str) -> InvalidInputError:
    return InvalidInputError(
        f"{path} is not a directory", hint="Mount on an empty directory, or a path that does not exist."
    )


def _busy(mount: MountInfo) -> ConflictError:
    try:
        mount_table.require_nothing_inside(mount.path)
    except ConflictError as error:
        return error
    pids = mount_table.users(mount)
    shown = ", ".join(f"{pid} ({mount_table.command(pid)})" for pid in pids[:10]) or "not visible to this user"
    return ConflictError(
        f"{mount.path} is in use; processes: {shown}",
        hint="Close its files and leave its directories, or unmount with force (force=True, --force): programs that use it get errors.",
        details={"pids": pids},
    )


def _stuck(mount: MountInfo, reason: str) -> MountFailedError:
    command = "umount -l" if os.geteuid() == 0 else "fusermount3 -u -z"
    return MountFailedError(f"{mount.path} cannot be unmounted: {reason}", hint=f"Try: {command} {mount.path}")
