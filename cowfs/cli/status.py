"""cowfs status: mounts and working copies on this machine, with process, and whether they hold uncommitted work.

Asks each daemon; one that does not answer in time is shown as such, a mount whose daemon has died as dead. Needs no store:
--store only narrows the list.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cowfs.cli import output
from cowfs.errors import CowfsError

if TYPE_CHECKING:
    from cowfs.machine.registry import MountEntry
    from cowfs.machine.working_copy import WorkingCopy

AT_ONCE = 32


@click.command("status")
@click.option("--meta-dir", type=click.Path(path_type=Path), help="Look for working copies there too.")
@output.common_options
def command(meta_dir: Path | None, store: str | None, as_json: bool) -> None:
    """List mounts and working copies on this machine."""
    from cowfs.api import stores
    from cowfs.machine import dead_mounts, registry, working_copy

    live = registry.list_mounts()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        mounted = list(pool.map(_mount, live))
    copies = {copy.path: copy for place in {None, meta_dir} for copy in working_copy.list_working_copies(place)}
    served = {entry.working_copy for entry in live}
    kept = [_working_copy(copy) for path, copy in sorted(copies.items()) if str(path) not in served]
    if store is not None:
        url = stores.canonical_url(store)
        mounted = [each for each in mounted if each["store_url"] == url]
        kept = [each for each in kept if each["store_url"] == url]
    record = {"mounts": mounted, "working_copies": kept, "dead_mounts": dead_mounts.find()}
    output.emit(as_json, record, _text(record))


def _mount(entry: MountEntry) -> dict[str, Any]:
    from cowfs.api import daemon

    record: dict[str, Any] = {
        "mount_path": entry.mount_path,
        "volume": entry.volume,
        "store_url": entry.store_url,
        "version": entry.version_id,
        "read_only": entry.read_only,
        "pid": entry.pid,
        "since_ns": entry.since_ns,
        "working_copy": entry.working_copy,
        "uncommitted": False if entry.read_only else None,
        "transport": None,
        "error": None,
    }
    try:
        said = daemon.status(entry)
    except CowfsError as error:
        return {**record, "error": error.message}
    record |= {"version": said.get("version"), "transport": said.get("transport"), "details": said}
    return record if entry.read_only else {**record, "uncommitted": said.get("is_dirty")}


def _working_copy(copy: WorkingCopy) -> dict[str, Any]:
    record: dict[str, Any] = {"working_copy": str(copy.path), "volume": copy.volume, "store_url": None}
    try:
        state = copy.state
        holder = copy.holder()
    except CowfsError as error:
        return {**record, "version": None, "uncommitted": None, "pid": None, "error": error.message}
    return {
        **record,
        "volume": state.volume,
        "store_url": state.store_url,
        "version": state.base_version.hex() if state.base_version is not None else None,
        "uncommitted": copy.may_have_uncommitted,
        "pid": holder.process.pid if holder is not None else None,
        "error": None,
    }


def _text(record: dict[str, Any]) -> str:
    rows = [
        (
            each["volume"],
            "read-only" if each["read_only"] else "writable",
            _work(each),
            str(each["pid"]),
            (each["version"] or "-")[:12],
            each["transport"] or "-",
            output.printable(each["mount_path"]),
        )
        for each in record["mounts"]
    ]
    rows += [
        (
            each["volume"],
            "not mounted",
            _work(each),
            str(each["pid"] or "-"),
            (each["version"] or "-")[:12],
            "-",
            each["working_copy"],
        )
        for each in record["working_copies"]
    ]
    rows += [("?", "daemon died", "kept", "-", "-", "-", output.printable(path)) for path in record["dead_mounts"]]
    if not rows:
        return "Nothing is mounted, and there are no working copies."
    return output.table(("VOLUME", "STATE", "WORK", "PID", "VERSION", "VIA", "WHERE"), rows)


def _work(each: dict[str, Any]) -> str:
    if each["error"]:
        return f"? ({output.printable(each['error'])})"
    if each.get("read_only"):
        return "-"
    return "uncommitted" if each["uncommitted"] else "committed"
