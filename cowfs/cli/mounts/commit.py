"""cowfs commit PATH|NAME: publishes everything written before the call. Works from any process, not
only the mount's."""

from __future__ import annotations

import click

from cowfs.cli import completing, output


@click.command("commit")
@click.argument("target", metavar="PATH|NAME", shell_complete=completing.mounts_and_volumes)
@output.version_options
@click.option("--name", metavar="NAME", help="Of a scratch mount: the new volume. [made up]")
@output.progress_option
@output.common_options
def command(
    target: str,
    described: output.Described,
    name: str | None,
    progress_style: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Commit the volume mounted at PATH (or around it), or volume NAME. Prints the version's
    locator.

    If nothing changed, this is the last version's locator, unless you give a message, author or
    labels that it does not have. A scratch mount becomes a new volume, a fork of the version it is
    based on, and is that volume's writer from then on. Another --name makes another volume, from
    there on.
    """
    from cowfs import mounts
    from cowfs.cli import versions

    found = mounts.find(target, store, inside=True)
    with output.if_interrupted(found.describe_interrupted_commit(name)), output.progress(progress_style) as progress:
        version = found.commit(name=name, progress=progress, **described)
    record = {**versions.record(version, is_published_now=True), "is_new": version.is_new}
    is_elsewhere = not version.is_new and not isinstance(found, mounts.Mounted)
    none = f"This machine has no uncommitted work of {version.name}: version {version.id[:12]} stays the last one"
    output.say(as_json, none if is_elsewhere else versions.summary(version))
    output.emit(as_json, record, record["locator"])
