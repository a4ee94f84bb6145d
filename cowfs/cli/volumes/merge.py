"""cowfs merge: publishes the changes of branches as the next version of a volume; without a
mount."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output
from cowfs.cli.start import tidy_up_when_terminated
from cowfs.errors import InvalidInputError
from cowfs.rendering import count

if TYPE_CHECKING:
    from cowfs.api.versions.merge_report import MergeReport

LETTERS = {"added": "A", "removed": "D", "changed": "M"}


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
@output.version_options
@output.dry_run_option
@output.common_options
def command(
    branches: tuple[str, ...],
    into: str,
    strategy: tuple[str, ...],
    described: output.Described,
    dry_run: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Publish the changes that each SOURCE (NAME, NAME@TAG, NAME@VERSION or a LOCATOR) has made
    since it was forked as the next version of volume NAME; prints its locator. No content is
    transferred, and a SOURCE that is already merged changes nothing.

    If changes conflict and no strategy resolves them, nothing is published, and the command exits
    with 4. --dry-run shows all changes and conflicts.
    """
    from cowfs.blocking import Store, Volume

    tidy_up_when_terminated()
    versions = [Volume.version(source, store=store) for source in branches]
    done = Store(store).merge(into, versions, strategy=_strategy(strategy), dry_run=dry_run, **described)
    all_of_it = f"Volume {into} has all of it already"
    if dry_run:
        if not done.changes and not done.conflicts:
            output.say(as_json, f"No path of {into} would change" if done.merged_locators else all_of_it)
        output.emit(as_json, done, _plan(done))
        return output.plan_code(bool(done.merged_locators or done.conflicts))
    at = len(done.describe_conflicts())
    resolved = f", conflicts at {count(at, 'path')} resolved" if at else ""
    said = f"Merged {count(len(done.merged_locators), 'version')} into {into}: {count(len(done.changes), 'path')} changed{resolved}"
    output.say(as_json, said if done.is_new else all_of_it)
    output.emit(as_json, done, done.locator)
    return 0


def _plan(done: MergeReport) -> str:
    lines = [f"{LETTERS[each.kind]}  {output.name(each.path)}" for each in done.changes]
    lines += [f"C  {output.name(path)}  ({said})" for path, said in done.describe_conflicts().items()]
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
