"""cowfs fork SOURCE NAME: a volume that starts from a version and shares every byte. A taken name
is refused.

A volume with uncommitted work on this machine is committed first, so that the fork has what its
files show; that is said. So is that a volume without a version was given a first, empty one. Work
that another writer has overtaken moves to the fork instead, and its mount ends: that is said, too.
"""

from __future__ import annotations

import click

from cowfs.cli import completing, output


@click.command("fork")
@click.argument("source", shell_complete=completing.volumes)
@click.argument("name")
@output.common_options
def command(source: str, name: str, store: str | None, as_json: bool) -> None:
    """Make volume NAME from SOURCE (NAME, NAME@TAG, NAME@VERSION or a LOCATOR). Prints the new
    name.

    SOURCE as a bare NAME: uncommitted work that this machine has of it is committed first. If
    another writer has the volume or has made a newer version, it cannot be: it moves to NAME, in no
    version yet, and SOURCE's mount ends.
    """
    from cowfs.api import names, sources
    from cowfs.blocking import ROVolume, RWVolume

    wanted = names.checked(name)
    found = sources.find(source, store, with_manifest=True)
    mounted_at, is_work = None, True
    if found.head is not None:
        volume = RWVolume.made(found.store, found.head, None)
        mounted_at = volume.path if volume.is_mounted else None
        is_work = found.head.version is not None or volume.has_changes()
        fork = volume.fork(wanted, strict=True)
    else:
        fork = ROVolume(found.locator(), found.manifest).resolve().fork(wanted, strict=True)
    base = fork.forked_from
    committed = base.locator if base is not None and base.is_new else None
    if committed is not None and is_work:
        output.say(as_json, f"Committed uncommitted work of {found.volume} first: {committed}")
    elif committed is not None:
        output.say(as_json, f"Made a first, empty version of {found.volume}, which had none: {committed}")
    output.say(as_json, f"Made volume {fork.name} from {source}")
    is_rescue = committed is None and fork.has_changes()
    if is_rescue:
        output.say(
            as_json,
            f"The uncommitted work of {found.volume}, which another writer has, is now that of {fork.name}; it is in no "
            f"version yet: `cowfs commit {fork.name}`",
        )
    if is_rescue and mounted_at is not None:
        where = output.printable(str(mounted_at))
        output.say(as_json, f"The mount at {where} has ended; to go on there: `cowfs mount {fork.name} {where}`")
    record = {
        "name": fork.name,
        "locator": fork.locator,
        "store_url": fork.store_url,
        "committed": committed,
        "uncommitted": is_rescue,
    }
    output.emit(as_json, record, fork.name)
