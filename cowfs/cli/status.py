"""cowfs status: mounts and working copies on this machine, with process, and whether they hold
uncommitted work.

Needs no store: --store only narrows the list.
"""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cowfs.cli import output

if TYPE_CHECKING:
    from cowfs.api.overview import DeadMount, MountSummary, Status, WorkingCopySummary, WriterStatus


@click.command("status")
@click.option("--all", "is_all", is_flag=True, help="Show working copies without uncommitted work too.")
@click.option("--meta-dir", type=click.Path(path_type=Path), help="Look for working copies there too.")
@output.common_options
def command(is_all: bool, meta_dir: Path | None, store: str | None, as_json: bool) -> None:
    """List mounts and working copies on this machine."""
    from cowfs.api import overview

    found = overview.status(store, meta_dir=meta_dir)
    output.emit(as_json, dataclasses.asdict(found), _text(found, is_all=is_all))
    for line in _advice(found):
        output.say(as_json, line)


def _text(found: Status, *, is_all: bool) -> str:
    from cowfs.api import hints

    copies = [each for each in found.working_copies if is_all or each.uncommitted is not False]
    urls = {each.store_url for each in found.mounts} | {each.store_url for each in copies}
    urls |= {each.store_url for each in found.dead}
    has_stores = len(urls) > 1 or not all(url is None or hints.is_default(url) for url in urls)

    def store(url: str | None) -> tuple[str, ...]:
        return (output.printable(url or "-"),) if has_stores else ()

    rows = [
        (
            each.volume,
            _state(each),
            "-" if each.read_only and not each.error else _work(each),
            "-" if each.is_elsewhere else str(each.pid),
            (each.version or "-")[:12],
            each.transport or "-",
            *store(each.store_url),
            output.name(each.mount_path),
        )
        for each in found.mounts
    ]
    rows += [
        (
            each.volume,
            "not mounted",
            _work(each),
            str(each.pid or "-"),
            (each.version or "-")[:12],
            "-",
            *store(each.store_url),
            output.name(each.folder or each.working_copy),
        )
        for each in copies
    ]
    rows += [
        (
            output.printable(each.volume),
            "daemon died",
            *("-",) * 4,
            *store(each.store_url),
            output.name(each.mount_path),
        )
        for each in found.dead
    ]
    if not rows:
        return "Nothing is mounted, and there is no uncommitted work."
    header = ("VOLUME", "STATE", "WORK", "PID", "VERSION", "VIA", *(("STORE",) if has_stores else ()), "WHERE")
    return output.table(header, rows)


def _state(each: MountSummary) -> str:
    if each.is_detached:
        return "detached"
    return "read-only" if each.read_only else "scratch" if each.is_scratch else "writable"


def _work(each: MountSummary | WorkingCopySummary) -> str:
    if each.error:
        return f"? ({output.printable(each.error)})"
    if each.uncommitted is None:
        return "-"
    said = "uncommitted" if each.uncommitted else "committed"
    writer = _writer(each)
    if writer is not None and writer.lease_lost is not None:
        return f"{said}, lease lost"
    return f"{said}, overtaken" if writer is not None and writer.overtaken_by is not None else said


def _writer(each: MountSummary | WorkingCopySummary) -> WriterStatus | None:
    details = getattr(each, "details", None)
    return details.writer if details is not None else None


def _advice(found: Status) -> list[str]:
    """What to do about mounts that cannot go on as they are."""
    from cowfs.api import hints

    lines = []
    for each in found.mounts:
        writer = _writer(each)
        if each.details is not None and each.details.credentials_problem is not None:
            kept = "" if each.read_only else "What is written is kept here meanwhile. "
            again = "Unmount it, and mount it again" if each.read_only else "Mount the volume again"
            lines.append(
                f"{each.volume}: the store is not reached: {output.printable(each.details.credentials_problem)}. {kept}{again} "
                "from a program that has valid credentials"
            )
        save, drop = f"`cowfs fork {each.volume} NAME`", f"`cowfs unmount {each.volume} --discard`"
        if each.is_scratch:
            path = output.printable(shlex.quote(each.mount_path))
            save, drop = f"`cowfs commit {path} --name NAME`", f"`cowfs unmount {path}`"
        first = "Save"
        if each.is_detached and not each.is_scratch:
            end = f"`cowfs unmount {each.volume} --force` has ended it (programs get errors then)"
            first = f"Once nobody uses the mount any more, or {end}: save"
        saved_or_dropped = hints.about(each.store_url, f"{first} it under another name ({save}), or drop it ({drop})")
        if writer is not None and writer.lease_lost is not None:
            lines.append(f"{each.volume}: {output.printable(writer.lease_lost)}. {saved_or_dropped}")
        elif writer is not None and writer.overtaken_by is not None:
            lines.append(
                f"{each.volume}: somebody else has made version {writer.overtaken_by.hex()[:12]} meanwhile; the work here "
                f"cannot be committed to it any more. {saved_or_dropped}"
            )
    gone: list[tuple[str, str | None]]
    elsewhere: list[tuple[str, str | None, str]]
    gone = [(each.volume, each.store_url) for each in found.mounts if each.is_gone and not each.read_only]
    gone += [(each.volume, each.store_url) for each in found.working_copies if each.is_gone]
    lines += [
        hints.about(
            store_url,
            f"{output.printable(volume)}: the folder of the copy is gone, and with it what was in no version. If it was "
            f"moved, move it back; else mount the volume again (`cowfs mount {output.printable(volume)} PATH`), or only "
            f"clean up (`cowfs unmount {output.printable(volume)} --discard`)",
        )
        for volume, store_url in gone
    ]
    here = {each.mount_path for each in found.mounts if not each.is_elsewhere}  # what a path means, then
    elsewhere = [
        (each.volume, each.store_url, _forgets(each))
        for each in found.mounts
        if each.is_elsewhere and (not each.read_only or each.mount_path not in here)
    ]
    elsewhere += [(each.volume, each.store_url, _drops(each)) for each in found.working_copies if each.is_elsewhere]
    lines += [
        hints.about(
            store_url,
            f"{output.printable(volume)}: a copy was made in another container, and its folder is not to be seen here. If that "
            f"container is gone, `{command} --force` forgets the copy, with what is in no version",
        )
        for volume, store_url, command in dict.fromkeys(elsewhere)
    ]
    lines += [
        hints.about(
            each.store_url,
            f"{output.printable(each.volume)}: the daemon of {output.printable(each.mount_path)} has died"
            f"{'' if each.read_only else '; what was written is kept'}. Mount it again ({_mounts_again(each)}), or only clean "
            f"up (`cowfs unmount {output.printable(each.mount_path)}`)",
        )
        for each in found.dead
    ]
    return lines


def _forgets(each: MountSummary) -> str:
    return f"cowfs unmount {output.printable(shlex.quote(each.mount_path))}" if each.read_only else _drops(each)


def _drops(each: MountSummary | WorkingCopySummary) -> str:
    return f"cowfs unmount {output.printable(each.volume)} --discard"


def _mounts_again(dead: DeadMount) -> str:
    if dead.store_url is None:
        return "its store is not known here"
    return f"`cowfs mount {output.printable(dead.volume)} PATH`"
