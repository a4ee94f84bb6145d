"""cowfs quota: shows, sets and removes the quota of a volume."""

from __future__ import annotations

import click

from cowfs.cli import completing, output
from cowfs.rendering import format_size


@click.command("quota")
@click.argument("name", shell_complete=completing.volumes)
@click.argument("size", required=False)
@output.common_options
def command(name: str, size: str | None, store: str | None, as_json: bool) -> None:
    """Limit the total size of volume NAME's files to SIZE (512MiB, 100GB), or
    remove the limit with `none`. Without SIZE, print the quota.

    Writes beyond it fail with "Disk quota exceeded"; existing files stay. A mount uses the quota
    that was set when it was made.
    """
    from cowfs.blocking import Store

    if size is not None:
        Store(store).set_quota(name, None if size.lower() == "none" else size)
    found = Store(store).quota(name)
    text = f"{format_size(found)}" if found is not None else "none"
    if size is not None:
        output.say(as_json, f"The quota of volume {name} is {text}")
    output.emit(as_json, {"volume": name, "quota_bytes": found}, "" if size is not None else text)
