"""cowfs ls: the store's volumes with size, files, owner, head, and where they are mounted writable.

Five requests a volume, several volumes at a time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import click

from cowfs.cli import output
from cowfs.errors import AccessDeniedError, NotFoundError, ReadOnlyError

if TYPE_CHECKING:
    from cowfs.api.stores import OpenStore

AT_ONCE = 16


@click.command("ls")
@output.common_options
def command(store: str | None, as_json: bool) -> None:
    """List the store's volumes."""
    from cowfs.api import stores
    from cowfs.version import volumes

    opened = stores.open_store(store)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        names = sorted(volumes.volume_names(opened.objects))  # in key order "a-b" stands before "a"
        found = list(pool.map(lambda name: _describe(opened, name), names))
    records = [record for record in found if record is not None]
    header = ("NAME", "SIZE", "FILES", "OWNER", "HEAD", "CHANGED", "MOUNTED")
    if not records:
        output.say(as_json, f"No volumes in {opened.url}")
    record = {"store_url": opened.url, "volumes": records}
    output.emit(as_json, record, output.table(header, [_row(each) for each in records]) if records else "")


def _describe(store: OpenStore, name: str) -> dict[str, Any] | None:
    """None for a volume that is half made, or goes away at this moment."""
    from cowfs.store import refs
    from cowfs.version import history, volumes

    head = volumes.find_head(store.objects, name)
    if head is None:
        return None
    meta = refs.newest(store.objects, refs.meta(name))
    record: dict[str, Any] = {
        "name": name,
        "owner": meta[1].owner if meta is not None else "",
        "head_number": head.number,
        "version": head.version.hex() if head.version is not None else None,
        "locator": str(volumes.locator(store.objects, name, head.version)) if head.version is not None else None,
        "changed_ns": head.created_ns,
        "bytes": 0,
        "files": 0,
        "mounted": _writer(store, name),
        "is_missing": False,
    }
    if head.version is not None:
        try:
            stats = history.open_version(store.objects, head.version).stats
        except NotFoundError:
            return {**record, "is_missing": True}
        record |= {"bytes": stats.bytes, "files": stats.files}
    return record


def _writer(store: OpenStore, name: str) -> str | None:
    """Where the volume is mounted writable; None: nowhere, or it can't be told (the store's clock takes a write to read)."""
    from cowfs.store import leases

    try:
        lease = leases.read(store.objects, name)
    except (ReadOnlyError, AccessDeniedError):
        return None
    return f"{lease.holder.host}:{lease.holder.mount_path}" if lease is not None and lease.state == "held" else None


def _row(record: dict[str, Any]) -> tuple[str, ...]:
    head = record["version"][:12] if record["version"] else "-"
    return (
        record["name"],
        output.size(record["bytes"]),
        str(record["files"]),
        output.printable(record["owner"]),
        f"{head} (missing)" if record["is_missing"] else head,
        output.time(record["changed_ns"]),
        output.printable(record["mounted"] or ""),
    )
