"""cowfs tag: sets, moves, removes and lists the tags of a volume."""

from __future__ import annotations

import click

from cowfs.cli import completing, output
from cowfs.errors import InvalidInputError
from cowfs.rendering import format_time


@click.command("tag")
@click.argument("source", shell_complete=completing.volumes)
@click.argument("tag", required=False)
@click.option("--move", is_flag=True, help="Also if the tag is on another version.")
@click.option(
    "--expect",
    metavar="VERSION",
    help="Only if the tag is on this version (8 digits or more of its id, or SOURCE) now; implies --move.",
)
@click.option("--delete", "-d", is_flag=True, help="Remove the tag.")
@output.common_options
def command(
    source: str, tag: str | None, move: bool, expect: str | None, delete: bool, store: str | None, as_json: bool
) -> None:
    """Give the version SOURCE (NAME: its last one, NAME@VERSION or a LOCATOR) the name TAG;
    NAME@TAG then refers to it. Without TAG, list the tags of volume NAME. Prints the tagged
    version.

    A tag keeps its version from being pruned.
    """
    from cowfs.blocking import Store, Volume

    if tag is None:
        if delete or move or expect is not None:
            raise InvalidInputError("there is no tag", hint="Give SOURCE TAG.")
        found = Store(store).tags(source)
        rows = [(each.name, each.version[:12], format_time(each.created_ns)) for each in found]
        if not rows:
            output.say(as_json, f"Volume {source} has no tags")
        record = {"volume": source, "tags": found}
        output.emit(as_json, record, output.table(("TAG", "VERSION", "TAGGED"), rows) if rows else "")
        return
    if delete:
        if move:
            raise InvalidInputError("--move and --delete at once", hint="Leave one of them out.")
        done = Store(store).untag(source, tag, expect=expect)
        output.say(as_json, f"Removed tag {tag} of {source}; it was on version {done.version[:12]}")
        volume = source
    else:
        version = Volume.version(source, store=store)
        done = version.tag(tag, move=move, expect=expect)
        output.say(as_json, f"Tag {tag} of {version.name} is on version {done.version[:12]}")
        volume = version.name
    output.emit(as_json, {"volume": volume, "tags": [done]}, "" if delete else done.locator)
