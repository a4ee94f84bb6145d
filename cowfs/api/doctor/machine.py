"""Doctor's checks of this machine: Python, the engine, FUSE, local directories, kernel settings,
dead mounts."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from cowfs.api import hints
from cowfs.api.doctor.check import LOW_DISK_BYTES, OK, WARN, Check, failed
from cowfs.base import byte_sizes, config, private_directories
from cowfs.base.errors import CowfsError, MountFailedError, unusable
from cowfs.base.hints import Command
from cowfs.control.options import MountOptions
from cowfs.folders import mounted_folders
from cowfs.machine import kernel, proc, processes, registry, working_copy
from cowfs.machine.folders.folder import Copy, of_version
from cowfs.machine.mount_table import READ_AHEAD_KB


def proc_file_system() -> Check:
    name = "/proc"
    try:
        proc.require_own()
        processes.this_process()
    except CowfsError as error:
        return failed(name, error)
    return Check(name, OK, "shows the processes that run here")


def python() -> Check:
    """pip refuses the versions that pyproject.toml excludes; uv 0.13 installs on them."""
    name, version = "Python", platform.python_version()
    if 0x030C0000 <= sys.hexversion < 0x030C0300:
        trouble = f"{version} starts no threads while a program ends: what it leaves open is not committed or released"
        return Check(name, WARN, trouble, "Use Python 3.11, or 3.12.3 or newer.")
    return Check(name, OK, f"{version} can be used")


def engine() -> Check:
    name = "native engine"
    try:
        from cowfs import native
    except ImportError as error:
        missing = MountFailedError(
            f"cannot be loaded: {error}", hint="Install cowfs again (in a checkout: make build)."
        )
        return failed(name, missing)
    return Check(name, OK, f"loads ({len(native.__all__)} names)")


def pyfuse3() -> Check:
    """The server of mounts without the fast lane, and the libfuse3 that it needs. Checked only
    where mounts use it by default."""
    name = "pyfuse3 (for mounts without the fast lane)"
    if MountOptions().has_fast_lane:
        return Check(name, OK, "is not needed: mounts use the fast lane")
    try:
        import_module("pyfuse3")
        import_module("trio")
    except ImportError as error:
        missing = MountFailedError(
            f"cannot be loaded: {error}", hint="pip install 'cowfs-volumes[pyfuse3]', or unset COWFS_FAST_LANE."
        )
        return failed(name, missing)
    return Check(name, OK, "loads")


def device() -> Check:
    name = "/dev/fuse and the right to mount"
    from cowfs.machine import mounting

    try:
        mounting.check_device()
    except CowfsError as error:
        return Check(name, WARN, f"{error.message}: mounts are copies of plain files here", error.hint)
    return Check(name, OK, "as root" if os.geteuid() == 0 else "through a setuid fusermount3")


def fusermount() -> Check:
    """Root mounts without it. Other users cannot, but then `device` has failed already."""
    import shutil
    import stat

    name = "fusermount3"
    program = shutil.which("fusermount3")
    if program is None:
        return Check(name, WARN, "is not installed: only root can mount", "apt-get install fuse3")
    if not os.stat(program).st_mode & stat.S_ISUID:
        return Check(name, WARN, f"{program} is not setuid: only root can mount", f"As root: chmod u+s {program}")
    return Check(name, OK, f"{program} is setuid")


def cache_directory() -> Check:
    return _directory(
        "cache directory",
        lambda: private_directories.require_cache(config.cache_dir()),
        "COWFS_CACHE_DIR or --cache-dir",
    )


def state_directory() -> Check:
    return _directory("state directory (working copies)", lambda: working_copy.working_root().parent, "COWFS_STATE_DIR")


def runtime_directory() -> Check:
    name = "runtime directory (control sockets)"
    try:
        return Check(name, OK, str(config.runtime_dir()))
    except CowfsError as error:
        return failed(name, error)
    except OSError as error:
        elsewhere = "set XDG_RUNTIME_DIR to a directory of yours."
        return failed(name, unusable(error, "cannot be made", elsewhere=elsewhere))


def read_ahead() -> Check:
    """Large sequential reads need read-ahead. The daemon raises that of each mount itself where it
    may."""
    from cowfs.machine import mount_table

    name = "read-ahead"
    slow = [mount.path for mount in mount_table.mounts() if mount.is_ours and not _reads_ahead(mount.device)]
    hint = f"As root, after mounting: echo {READ_AHEAD_KB} > /sys/class/bdi/MAJOR:MINOR/read_ahead_kb"
    if slow:
        return Check(name, WARN, f"is small on {', '.join(slow)}: cold sequential reads are slow", hint)
    if not kernel.may_set_read_ahead():
        return Check(name, WARN, "cannot be raised by this user: cold sequential reads are slower", hint)
    return Check(name, OK, f"is raised to {READ_AHEAD_KB} KiB when mounting")


def io_uring() -> Check:
    name = "FUSE over io_uring"
    hint = f"{kernel.SWITCH_URING_ON}; for good: echo 'options fuse enable_uring=1' > /etc/modprobe.d/fuse-uring.conf"
    if not kernel.is_uring_offered():
        return Check(name, OK, "is not offered by this kernel; no mount needs it")
    if not kernel.is_uring_enabled():
        return Check(name, OK, f"is switched off; only mounts with transport uring need it. {hint}")
    if not kernel.is_uring_permitted():
        return Check(
            name, WARN, "is switched on, but io_uring is disabled", "As root: sysctl kernel.io_uring_disabled=0"
        )
    return Check(name, OK, "is switched on, for mounts that ask for it (transport uring)")


def halt_polling() -> Check:
    """Waking a processor that a virtual machine's host has taken back takes longer than a
    request."""
    name = "halt polling"
    limit_ns = kernel.halt_poll_ns()
    if limit_ns is None:
        return Check(name, OK, "is not this kernel's to set")
    if limit_ns == 0:
        return Check(
            name,
            WARN,
            "is switched off in this virtual machine: small requests may take two to three times as long",
            f"As root: echo 200000 > {kernel.GUEST_HALT_POLL_NS}",
        )
    return Check(name, OK, f"keeps processors awake up to {limit_ns // 1000} µs between requests")


def passthrough() -> Check:
    """Whether the kernel may read cached files of read-only mounts by itself. Otherwise they are
    read through the daemon."""
    name = "passthrough on read-only mounts"
    if not processes.has_capability(processes.CAP_SYS_ADMIN):
        return Check(
            name,
            WARN,
            "needs the capability SYS_ADMIN: cached files are read at half the local disk's speed",
            "Mount as root, or start the container with --cap-add SYS_ADMIN.",
        )
    if not kernel.knows_passthrough():
        return Check(name, WARN, f"needs Linux 6.9, this is {os.uname().release}; only speed depends on it")
    return Check(name, OK, "is used where the kernel was built with it")


def abandoned_mounts() -> Check:
    from cowfs.machine import dead_mounts

    name = "dead mounts"
    if dead := dead_mounts.find():
        fates = {"scratch": "what was written to a scratch is gone"}
        ends = [f"cowfs unmount {shlex.quote(each.path)} ({fates.get(each.kind, 'work is kept')})" for each in dead]
        hint = f"{', '.join(ends)}, or mount there again."
        return Check(name, WARN, f"the daemon of {', '.join(mount.path for mount in dead)} has died", hint)
    return Check(name, OK, "none")


def copies() -> Check:
    """Copies whose folder has moved or is not visible here."""
    name = "copies (mounts without FUSE)"
    gone, ends = [], []
    here = {entry.mount_path: entry.id for entry in registry.list_mounts() if not entry.process.is_foreign}
    for volume, copy, mount in _copies():
        with suppress(CowfsError):
            if not copy.is_out_of_sight:
                continue
            path, force = copy.record.mount_path, ["--force"] if copy.is_elsewhere else []
            where = f", made in {copy.record.process.where}" if copy.is_elsewhere else ""
            gone.append(f"{path} ({volume}{'' if copy.record.read_only else ', perhaps with uncommitted work'}{where})")
            end = [path] if copy.record.read_only else [volume, "--discard"]
            means_another = copy.record.read_only and here.get(path, mount) != mount
            if not means_another:
                ends.append(hints.about(None, Command("unmount", *end, *force)))
    if not gone:
        return Check(name, OK, "each is where it was made")
    hint = "Move the folder back; or mount the volume again, which begins with a new copy."
    if ends:
        hint += f" {', '.join(dict.fromkeys(ends))} forgets it."
    if any("--force" in end for end in ends):
        hint += " That of a container that still runs is to be seen there: leave it."
    return Check(name, WARN, f"not to be seen here: {', '.join(gone)}", hint)


def _copies() -> Iterator[tuple[str, Copy, str | None]]:
    """Copies of volumes, mounted or not, and of versions, the latter with their mount's id."""
    for each in working_copy.list_working_copies():
        with suppress(CowfsError):
            if (copy := each.copy) is not None:
                yield each.volume, copy, None
    for entry in mounted_folders.list_mounts():
        if entry.read_only and (copy := of_version(entry.id)).exists:
            yield entry.volume, copy, entry.id


def all_of() -> tuple[Callable[[], Check], ...]:
    """Checks that need /proc are left out where it is not this process's own."""
    found = proc_file_system()
    by_proc = (device, read_ahead, io_uring, passthrough, abandoned_mounts, copies)
    every = (
        python,
        engine,
        pyfuse3,
        device,
        fusermount,
        cache_directory,
        state_directory,
        runtime_directory,
        read_ahead,
        io_uring,
        halt_polling,
        passthrough,
        abandoned_mounts,
        copies,
    )
    return (lambda: found, *(check for check in every if found.state == OK or check not in by_proc))


def _directory(name: str, find: Callable[[], Path], how: str) -> Check:
    try:
        path = find()
    except CowfsError as error:
        return failed(name, error)
    try:
        private_directories.make_unchecked(path)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"cowfs")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return failed(name, unusable(error, f"{path} is not writable", elsewhere=f"choose another with {how}."))
    found = os.statvfs(path)
    free_bytes = found.f_bavail * found.f_frsize
    if free_bytes < LOW_DISK_BYTES:
        return Check(
            name, WARN, f"{path} has only {byte_sizes.format_size(free_bytes)} free", f"Free space, or use {how}."
        )
    return Check(name, OK, f"{path} is writable, {byte_sizes.format_size(free_bytes)} free")


def _reads_ahead(device: str) -> bool:
    found_kb = kernel.read_ahead_kb(device)
    return found_kb is None or found_kb >= READ_AHEAD_KB  # unknown here: no reason to complain
