"""cowfs status: mounts and working copies on this machine, with process, and whether they hold
uncommitted work.

Needs no store: --store only narrows the list.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cowfs.cli import output
from cowfs.rendering import is_default_store, printable

if TYPE_CHECKING:
    from cowfs.blocking import MountSummary
    from cowfs.mounts import Status


@click.command("status")
@click.option("--all", "is_all", is_flag=True, help="Show working copies without uncommitted work too.")
@click.option("--meta-dir", type=click.Path(path_type=Path), help="Look for working copies there too.")
@output.common_options
def command(is_all: bool, meta_dir: Path | None, store: str | None, as_json: bool) -> None:
    """List mounts and working copies on this machine."""
    from cowfs import mounts

    found = mounts.status(store, meta_dir=meta_dir)
    output.emit(as_json, found, _text(found, is_all=is_all))
    for line in _advice(found):
        output.say(as_json, line)


def _text(found: Status, *, is_all: bool) -> str:
    copies = [each for each in found.working_copies if is_all or each.has_uncommitted is not False]
    urls = {each.store_url for each in found.mounts} | {each.store_url for each in copies}
    urls |= {each.store_url for each in found.dead_mounts}
    has_stores = len(urls) > 1 or not all(url is None or is_default_store(url) for url in urls)

    def store(url: str | None) -> tuple[str, ...]:
        return (printable(url or "-"),) if has_stores else ()

    rows = [
        (
            each.volume,
            each.state,
            "-" if each.is_read_only and not each.problem else printable(each.work),
            "-" if each.is_elsewhere else str(each.pid),
            (each.version or "-")[:12],
            _via(each),
            *store(each.store_url),
            output.name(each.mount_path),
        )
        for each in found.mounts
    ]
    rows += [
        (
            each.volume,
            "not mounted",
            printable(each.work),
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
            printable(each.volume),
            "daemon died",
            *("-",) * 4,
            *store(each.store_url),
            output.name(each.mount_path),
        )
        for each in found.dead_mounts
    ]
    if not rows:
        return "Nothing is mounted, and there is no uncommitted work."
    header = ("VOLUME", "STATE", "WORK", "PID", "VERSION", "VIA", *(("STORE",) if has_stores else ()), "WHERE")
    return output.table(header, rows, without=("VIA", "VERSION", "PID", "STORE"))


def _via(mount: MountSummary) -> str:
    return f"{mount.transport or '-'}{', supervised' if mount.is_supervised else ''}"


def _advice(found: Status) -> list[str]:
    return [printable(str(each)) for each in found.advice]
