"""cowfs diff: the differences between two versions, or between a version and a volume as it is
now."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from cowfs.cli import completing, output, tables
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
        "old_locator": two.old_locator,
        "new_locator": two.new_locator,
        "changes": two.changes,
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
        lines = _stat_lines(two.changes)
        kinds = ", ".join(f"{totals[kind]} {kind}" for kind in ("added", "removed", "changed", "renamed"))
        in_all = f"+{format_size(totals['added_bytes'])} -{format_size(totals['removed_bytes'])}"
        return "\n".join([*lines, f" {kinds}; {in_all}"])
    return "\n".join(_line(each) for each in two.changes)


def _line(change: Change) -> str:
    said = ", ".join(change.what)
    return f"{LETTERS[change.kind]}  {_paths(change, ' => ')}" + (f"  ({said})" if said else "")


def _paths(change: Change, between: str, columns: int | None = None) -> str:
    """columns: as many of a terminal are there; longer paths lose their beginning."""
    new = output.name(change.path) + ("/" if change.type == "directory" and change.path != "/" else "")
    if change.kind != "renamed":
        return new if columns is None else tables.cut(new, columns, at_start=True)
    old = output.name(change.old_path or "") + ("/" if change.old_type == "directory" else "")
    if columns is not None:
        half = (columns - len(between)) // 2
        old, new = (tables.cut(each, half, at_start=True) for each in (old, new))
    return old + between + new


def _stat_lines(changes: list[Change]) -> list[str]:
    """The bytes stand in columns; on a terminal no line wraps."""
    sizes = [
        [
            sign + format_size(size) if size else ""
            for sign, size in (("+", each.added_bytes), ("-", each.removed_bytes))
        ]
        for each in changes
    ]
    added, removed = (max((len(each[column]) for each in sizes), default=0) for column in range(2))
    terminal = tables.terminal_width()
    room = None if terminal is None else max(terminal - added - removed - len("  |  "), 1)
    paths = [_paths(each, " => ", room) for each in changes]
    widest = max(map(tables.width, paths), default=0)
    return [
        f" {path}{' ' * (widest - tables.width(path))} | {plus:>{added}} {minus:>{removed}}".rstrip()
        for path, (plus, minus) in zip(paths, sizes, strict=True)
    ]


def _write_patch(two: Diff) -> None:
    with output.to_stdout():
        for part in two.patch():
            text = os.fsdecode(part)
            output.write(_print_table(text) if sys.stdout.isatty() else text)


def _print_table(lines: str) -> str:
    """Escapes control characters: a file must not drive the terminal."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines.split("\n"))
