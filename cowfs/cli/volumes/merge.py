"""cowfs merge: publishes the changes of branches as the next version of a volume; without a
mount."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output
from cowfs.cli.start import tidy_up_when_terminated
from cowfs.errors import InvalidInputError
from cowfs.rendering import count

if TYPE_CHECKING:
    from cowfs.api.versions.merge_report import MergeReport

LETTERS = {"added": "A", "removed": "D", "changed": "M"}
FAILED = 4


@click.command("merge")
@click.argument("branches", metavar="SOURCE...", nargs=-1, required=True, shell_complete=completing.volumes)
@click.option(
    "--into",
    required=True,
    metavar="NAME",
    shell_complete=completing.volumes,
    help="The volume that gets the version.",
)
@click.option(
    "--strategy",
    multiple=True,
    metavar="[PATTERN=]HOW",
    help="What to do about conflicts at paths like PATTERN (as in .gitignore), or at all: ours, theirs, newest, "
    "keep-both, union (of files that were only appended to), fail. Repeatable; the last that fits counts.",
)
@click.option("-m", "--message", default="", help="What this version is.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and the conflicts; publish nothing.")
@output.common_options
def command(
    branches: tuple[str, ...],
    into: str,
    strategy: tuple[str, ...],
    message: str,
    dry_run: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Publish the changes that each SOURCE (NAME, NAME@TAG, NAME@VERSION or a LOCATOR) has made
    since it was forked as the next version of volume NAME; prints its locator. No content is
    transferred, and a SOURCE that is already merged changes nothing.

    If changes conflict and no strategy resolves them, nothing is published. `--dry-run` exits with
    4 then, as the merge itself does.
    """
    from cowfs.blocking import Store, Volume

    tidy_up_when_terminated()
    versions = [Volume.version(source, store=store) for source in branches]
    done = Store(store).merge(into, versions, strategy=_strategy(strategy), message=message, dry_run=dry_run)
    all_of_it = f"Volume {into} has all of it already"
    if dry_run:
        if not done.paths and not done.conflicts:
            output.say(as_json, f"No path of {into} would change" if done.merged else all_of_it)
        output.emit(as_json, dataclasses.asdict(done), _plan(done))
        return FAILED if any(each.how == "fail" for each in done.conflicts) else 0
    resolved = f", {count(len(done.conflicts), 'conflict')} resolved" if done.conflicts else ""
    said = f"Merged {len(done.merged)}: {count(len(done.paths), 'path')}{resolved}"
    output.say(as_json, said if done.is_new else all_of_it)
    output.emit(as_json, dataclasses.asdict(done), done.locator)
    return 0


def _plan(done: MergeReport) -> str:
    lines = [f"{LETTERS[each.kind]}  {output.name(each.path)}" for each in done.paths]
    lines += [
        f"C  {output.name(each.path)}  ({each.kind.replace('_', ' ')}: {each.ours}, {each.theirs}; {each.how})"
        for each in done.conflicts
    ]
    return "\n".join(lines)


def _strategy(given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        pattern, equals, how = text.rpartition("=")
        if equals and not pattern:
            raise InvalidInputError(f"{text!r} has no pattern", hint="Give PATTERN=HOW, or HOW for all paths.")
        found.pop(pattern or "*", None)
        found[pattern or "*"] = how
    return found
