"""cowfs mount SOURCE PATH: mounts a volume to write, or a version to read. The daemon keeps running
when the command returns.

With --foreground the command also keeps running, until the mount ends; Ctrl-C and SIGTERM unmount
(uncommitted work is kept).
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from cowfs.cli import completing, output
from cowfs.errors import (
    Command,
    InvalidInputError,
    InvalidStateError,
    LeaseHeldError,
    MountFailedError,
    UnavailableError,
)
from cowfs.rendering import count, printable

if TYPE_CHECKING:
    from pathlib import Path

    from cowfs.api.mounts.launch import Started
    from cowfs.base.ids import VersionId
    from cowfs.blocking import MountOptions, ROVolume, RWVolume


@click.command("mount")
@click.argument("source", shell_complete=completing.volumes)
@click.argument(
    "path", shell_complete=completing.directories
)  # not click.Path, which stats it: a mount handed in does not answer yet
@click.option("--read-only", is_flag=True, help="Mount the volume's last version, without becoming its writer.")
@click.option("--scratch", is_flag=True, help="Write to a version; gone at the end, unless committed as a new volume.")
@click.option("--foreground", is_flag=True, help="Stay until the mount is gone; Ctrl-C unmounts.")
@click.option("--fuse-fd", type=int, metavar="N", help="Use this open /dev/fuse descriptor, already mounted at PATH.")
@click.option("--max-uploads", type=int, default=50, show_default=True, metavar="N", help="Uploads at once.")
@click.option("--attr-cache", type=float, metavar="S", help="Seconds the kernel may keep attributes. [60; unlimited]")
@click.option("--entry-cache", type=float, metavar="S", help="Seconds it may keep file names. [60; unlimited]")
@click.option("--dir-entry-cache", type=float, metavar="S", help="Seconds it may keep directories. [60; unlimited]")
@click.option("--cache-dir", type=click.Path(), help="Chunks and index blocks; can be deleted at any time.")
@click.option("--meta-dir", type=click.Path(), help="The working copy: uncommitted work.")
@click.option("--cache-size", metavar="SIZE", help="Most the cache directory may hold, like 20GiB.")
@click.option(
    "--store-timeout",
    type=float,
    metavar="S",
    help="Seconds a commit or read waits for a store that does not answer. [900]",
)
@click.option(
    "--resident", is_flag=True, help="Load every name and attribute at mount: about 150 bytes of memory a file."
)
@click.option("--show-versions", is_flag=True, help="List .cowfs in the mount: .cowfs/versions is there anyway.")
@click.option(
    "--fast-lane/--no-fast-lane",
    default=True,
    help="Answer requests natively (default), or by pyfuse3 (an extra: cowfs-volumes[pyfuse3]).",
)
@click.option(
    "--transport",
    type=click.Choice(["auto", "device", "uring"]),
    default="auto",
    show_default=True,
    help="What carries requests: /dev/fuse, or FUSE over io_uring.",
)
@click.option(
    "--supervise/--no-supervise",
    "supervised",
    default=None,
    help="Go on with the mount of a volume if its daemon is killed: programs wait. [COWFS_SUPERVISE]",
)
@click.option(
    "--mode",
    type=click.Choice(["auto", "fuse", "copy"]),
    default="auto",
    show_default=True,
    help="A mount, a copy of plain files, or what this machine can.",
)
@click.option(
    "--copy-limit", default="10GiB", show_default=True, metavar="SIZE", help="Most bytes that a copy is made of."
)
@click.option("--record", type=click.Path(), metavar="FILE", help="Write down what is read, for --replay.")
@click.option(
    "--replay",
    type=click.Path(),
    metavar="FILE",
    help="Fetch what was recorded there into the cache, in the background.",
)
@click.option(
    "--uncommitted",
    type=click.Choice(["resume", "discard", "refuse"]),
    default="resume",
    show_default=True,
    help="Work that an earlier mount left here: go on with it, drop it, or fail.",
)
@click.option("--take-over", is_flag=True, help="Take the volume from a writer that is gone.")
@click.option("--wait", metavar="DURATION", help="Wait so long for another writer to end: seconds, or like 5m.")
@click.option(
    "--accept-unsafe-store", is_flag=True, help="Use a store on which two writers may lose each other's work."
)
@click.option("--allow-other/--no-allow-other", default=None, help="Let other users in. [where permitted]")
@click.option(
    "--map-owner",
    metavar="UID:GID|caller|none",
    help="Show files of the version's owner as this one's, who may then change them. [caller; none as root]",
)
@output.progress_option
@output.common_options
def command(
    source: str,
    path: str,
    read_only: bool,
    scratch: bool,
    progress_style: str,
    store: str | None,
    as_json: bool,
    foreground: bool,
    wait: str | None,
    **tuning: Any,
) -> None:
    """Mount SOURCE at PATH, an empty directory or a new name in an existing one. Prints the path.

    If another process writes to the volume, the command offers on a terminal to mount its last
    version read-only.

    SOURCE: NAME (writable), NAME@TAG, NAME@VERSION or a LOCATOR (read-only). --scratch: of a NAME
    its last version. NAME@VERSION:FOLDER or LOCATOR/FOLDER: that folder of it, read-only.
    """
    from cowfs import mounts

    is_usual = not foreground and tuning["fuse_fd"] is None and tuning["mode"] != "copy"
    with mounts.prepare(is_wanted=is_usual):  # before everything else is imported
        from cowfs.blocking import Locator, MountOptions, ROVolume, RWVolume, Store

        if read_only and scratch:
            raise InvalidInputError("--read-only and --scratch exclude each other", hint="Choose one.")
        options = MountOptions(**tuning, foreground=foreground)  # a wrong one is refused before anything is looked up
        if source.startswith(("/", "./", "../")):
            raise InvalidInputError(
                f"{source!r} is a path, not a volume or a version",
                hint=f"The volume comes first: {Command('mount', path, source)}."
                if "/" not in path
                else "Give NAME PATH.",
            )
        mounted = Store(store).to_mount(source, read_only=read_only, scratch=scratch)
        if isinstance(mounted, RWVolume):
            mounts.check_path(path)  # before signals have handlers: it may lie in a mount that hangs
            try:
                canonical = _mount_to_write(mounted, path, wait, options, progress_style)
            except LeaseHeldError as error:
                if foreground or as_json or not _wants_to_read(error):
                    raise
                mounted = Store(store).to_mount(source, read_only=True)
                canonical = mounted.mount(path, options=replace(options, uncommitted="resume"))
        else:
            if wait is not None:
                raise InvalidInputError("only a writable mount waits for another writer", hint="Leave --wait out.")
            canonical = mounted.mount(path, scratch=scratch, options=options)
        mounts.keep_mounted(canonical)
    started = mounts.get_daemon(mounted)
    pid, lost_files, newer, kind = (
        _describe(started, "scratch" if scratch else "fuse") if started is not None else _describe_found(mounted)
    )
    locator = mounted.locator
    record = {
        "mount_path": str(canonical),
        "volume": mounted.name,
        "version": Locator.parse_with_path(locator)[0].version.hex() if locator is not None else None,
        "locator": locator,
        "is_read_only": isinstance(mounted, ROVolume) and not scratch,
        "kind": kind,
        "pid": pid,
        "lost_files": lost_files,
        "overtaken_by": newer.hex() if newer is not None else None,
        "store_url": mounted.store_url,
    }
    way = "as a scratch" if scratch else "read-only" if record["is_read_only"] else "writable"
    done = "Mounted" if started is not None or kind == "folder" else "Found"
    if foreground and started is not None:
        _pass_signals_on(started)  # first: a reader of the output may end the mount at once
    output.say(as_json, f"{done} {mounted.name} {way} ({'a copy' if kind == 'folder' else f'process {pid}'})")
    if lost := lost_files:
        output.say(
            as_json,
            f"This machine's disk has lost uncommitted bytes of {count(len(lost), 'file')}, {printable(lost[0])} for one. "
            f"They read as I/O errors there. Overwrite or remove these files before a commit; {Command('status', '--json')} lists them.",
        )
    output.emit(as_json, record, str(canonical))
    if foreground and started is not None:
        _stay(started)
        kept = "; uncommitted work, if there is any, comes back at the next mount"
        output.say(as_json, f"Unmounted {canonical}{'' if record['is_read_only'] or scratch else kept}")


def _mount_to_write(volume: RWVolume, path: str, wait: str | None, options: MountOptions, progress_style: str) -> Path:
    kept = f"Uncommitted work is kept: it is there at the next mount. {Command('status')} shows whether there is one."
    with output.if_interrupted(kept), output.progress(progress_style) as progress:
        return volume.mount(path, progress=progress, wait=wait, options=options)


def _wants_to_read(refused: LeaseHeldError) -> bool:
    """Asks the user, if there is one, whether to mount the last version instead of a volume that
    another process writes to."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    output.talk(printable(refused.message))
    return click.confirm("Mount its last version read-only instead?", default=True, err=True)


def _describe(started: Started, kind: str) -> tuple[int, list[str], VersionId | None, str]:
    """(process, files with lost bytes, newer version of another writer, kind) of a new mount by
    FUSE."""
    return started.pid, list(started.ready.lost_files), started.ready.overtaken_by, kind


def _describe_found(mounted: RWVolume | ROVolume) -> tuple[int, list[str], VersionId | None, str]:
    """As `_describe`, for an existing mount, or for a copy."""
    from cowfs.blocking import MountSummary

    summary = mounted.status()
    if not isinstance(summary, MountSummary):
        raise InvalidStateError("the mount that was found is gone again", hint="Mount once more.")
    if summary.problem is not None and summary.kind != "folder":
        raise UnavailableError(summary.problem, hint=f"{Command('status')} shows the mounts of this machine.")
    if (writer := summary.writer) is None:
        return summary.pid, [], None, summary.kind
    return summary.pid, [file.path for file in writer.lost_files], writer.overtaken_by, summary.kind


def _pass_signals_on(started: Started) -> None:
    known = {signal.SIGINT: signal.SIGINT, signal.SIGTERM: signal.SIGTERM, signal.SIGHUP: signal.SIGTERM}
    for number, passed in known.items():
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, lambda *_, passed=passed: os.kill(started.pid, passed))


def _stay(started: Started) -> None:
    sys.stdout.flush()
    status = started.wait()
    if status:
        raise MountFailedError(
            f"the mount daemon ended with exit status {status}",
            hint="Uncommitted work is kept: mount the volume again.",
        )
