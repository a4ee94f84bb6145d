"""cowfs diff: the differences between two versions, or between a version and a volume as it is
now."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from cowfs.cli import completing, output
from cowfs.errors import InvalidInputError
from cowfs.rendering import format_size, printable

if TYPE_CHECKING:
    from cowfs.blocking import Change, Diff

NUL = "\0"
LETTERS = {"added": "A", "removed": "D", "changed": "M", "renamed": "R"}


@click.command("diff")
@click.argument("old", metavar="A[:PATH]", shell_complete=completing.volumes)
@click.argument("new", metavar="[B[:PATH]]", required=False, shell_complete=completing.volumes)
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--stat", "shows", flag_value="stat", help="Bytes added and removed for each path, and sums.")
@click.option("--name-status", "shows", flag_value="names", help="Letter and paths, with tabs between them.")
@click.option("-0", "--null", is_flag=True, help="With --name-status: NUL instead of tabs and ends of lines.")
@click.option("--patch", "-p", "shows", flag_value="patch", help="A patch for `git apply` and `patch -p1`.")
@click.option("--work", is_flag=True, help="B is a volume with its uncommitted work on this machine.")
@click.option("--times", is_flag=True, help="Also what only has another time of modification.")
@click.option("--no-renames", is_flag=True, help="What was moved is removed and added.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if anything differs.")
@output.common_options
def command(
    old: str,
    new: str | None,
    paths: tuple[str, ...],
    shows: str | None,
    null: bool,
    work: bool,
    times: bool,
    no_renames: bool,
    exit_code: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Show the changes from A to B (each NAME, NAME@TAG, NAME@VERSION or a LOCATOR), only below the
    PATHs if any are given: A added, D removed, M changed, R renamed. The contents of a renamed
    directory have moved along and are not listed.

    For NAME[:PATH] alone, show the changes of its uncommitted work on this machine, mounted or not,
    which `cowfs commit NAME` would publish. With --work B is such a volume, too.
    """
    from cowfs.blocking import Store

    if as_json and shows is not None:
        raise InvalidInputError("--json has everything but patches", hint="Leave out --stat, --name-status or --patch.")
    if null and shows != "names":
        raise InvalidInputError("-0 is about --name-status", hint="Give --name-status, too; --json needs no -0.")

    def compare(*, renames: bool) -> Diff:
        return Store(store).diff(old, new, paths, work=work, times=times, renames=renames)

    two = compare(renames=not no_renames)
    if shows == "patch" and any(each.kind == "renamed" and each.type == "directory" for each in two.changes):
        two = compare(renames=False)  # a patch renames files only
    count = Counter(change.kind for change in two.changes)
    record = {
        "from": two.old_locator,
        "to": two.new_locator,
        "changes": [dataclasses.asdict(change) for change in two.changes],
        "totals": {
            **{kind: count[kind] for kind in ("added", "removed", "changed", "renamed")},
            "added_bytes": sum(change.added_bytes for change in two.changes),
            "removed_bytes": sum(change.removed_bytes for change in two.changes),
        },
    }
    if shows == "patch":
        _write_patch(two)
    elif null:
        with output.to_stdout():
            output.write("".join(f"{LETTERS[each.kind]}\0{_paths(each, NUL)}\0" for each in two.changes))
    else:
        output.emit(as_json, record, _text(two, shows, record["totals"]))
    return 1 if exit_code and two.changes else 0


def _text(two: Diff, shows: str | None, totals: Any) -> str:
    if shows == "names":
        return "\n".join(f"{LETTERS[each.kind]}\t{_paths(each, chr(9))}" for each in two.changes)
    if shows == "stat":
        lines = [f" {_paths(each, ' => ')} | {_bytes(each)}" for each in two.changes]
        kinds = ", ".join(f"{totals[kind]} {kind}" for kind in ("added", "removed", "changed", "renamed"))
        in_all = f"+{format_size(totals['added_bytes'])} -{format_size(totals['removed_bytes'])}"
        return "\n".join([*lines, f" {kinds}; {in_all}"])
    return "\n".join(_line(each) for each in two.changes)


def _line(change: Change) -> str:
    said = ", ".join(change.what)
    return f"{LETTERS[change.kind]}  {_paths(change, ' => ')}" + (f"  ({said})" if said else "")


def _paths(change: Change, between: str) -> str:
    path = output.name(change.path) + ("/" if change.type == "directory" and change.path != "/" else "")
    if change.kind != "renamed":
        return path
    return f"{output.name(change.old_path or '')}{between}{path}"


def _bytes(change: Change) -> str:
    return f"+{format_size(change.added_bytes)} -{format_size(change.removed_bytes)}"


def _write_patch(two: Diff) -> None:
    with output.to_stdout():
        for part in two.patch():
            text = os.fsdecode(part)
            output.write(_print_table(text) if sys.stdout.isatty() else text)


def _print_table(lines: str) -> str:
    """Escapes control characters: a file must not drive the terminal."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines.split("\n"))
