"""cowfs quota: shows, sets and removes the quota of a volume."""

from __future__ import annotations

import click

from cowfs.cli import completing, output


@click.command("quota")
@click.argument("name", shell_complete=completing.volumes)
@click.argument("size", required=False)
@output.common_options
def command(name: str, size: str | None, store: str | None, as_json: bool) -> None:
    """Let the files of volume NAME have SIZE (512M, 100GB, in powers of 1024) together, or, with
    `none`, as much as there is room for. Without SIZE, print the quota.

    Writing beyond it fails with "Disk quota exceeded"; what is there stays. A mount goes by the
    quota that it found when it was made."""
    from cowfs import sizes
    from cowfs.blocking import Volume

    if size is not None:
        Volume.set_quota(name, None if size.lower() == "none" else size, store=store)
    found = Volume.quota(name, store=store)
    text = f"{sizes.shown(found)}" if found is not None else "none"
    if size is not None:
        output.say(as_json, f"The quota of volume {name} is {text}")
    output.emit(as_json, {"volume": name, "quota_bytes": found}, "" if size is not None else text)
