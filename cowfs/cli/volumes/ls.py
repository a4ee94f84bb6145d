"""cowfs ls: the store's volumes with size, files, owner, head, and where they are mounted writable,
by FUSE or as a copy; or the files at SOURCE[:PATH], without a mount."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from cowfs import rendering
from cowfs.cli import completing, output
from cowfs.errors import Command, CorruptError, InvalidInputError, UnsupportedFormatError
from cowfs.rendering import format_size, format_time, printable

if TYPE_CHECKING:
    from cowfs.blocking import Entry, VolumeSummary


WATCH_S = 2.0
LEFT_OUT = ("OWNER", "FILES", "HEAD", "MODE", "CHANGED")
"""Columns that a narrow terminal does without, first the least needed."""


@click.command("ls")
@click.argument("place", required=False, metavar="[SOURCE[:PATH]]", shell_complete=completing.volumes)
@click.option("--deleted", is_flag=True, help="Volumes that were deleted; `cowfs undelete` brings one back.")
@click.option("-v", "--verbose", is_flag=True, help="Whole locators and paths, sizes in bytes, times to the second.")
@click.option("-w", "--watch", is_flag=True, help="Print the list again whenever it has changed, until Ctrl-C.")
@output.common_options
def command(place: str | None, deleted: bool, verbose: bool, watch: bool, store: str | None, as_json: bool) -> int:
    """List the store's volumes, or the files of SOURCE (NAME, NAME@TAG, NAME@VERSION or a LOCATOR)
    at PATH, which may be a pattern ('NAME:images/*.png', in quotes). For a NAME the last version is
    shown, without uncommitted work. Exits with 10 if something of a volume is damaged, with 11 if a
    newer cowfs wrote it; the others are still listed."""
    if place is not None and deleted:
        raise InvalidInputError("--deleted lists volumes, not the files of one", hint="Leave one of the two out.")

    def look() -> _Shown:
        return _files(place, store) if place is not None else _volumes(store, deleted=deleted)

    for found in rendering.watch(look, every_s=WATCH_S):
        if found.said:
            output.say(as_json, found.said)
        output.emit(as_json, found.record, found.table(verbose))
        for problem in found.problems:
            output.say(as_json, problem)
        if not watch:
            return found.code
    return 0


class _Shown(NamedTuple):
    record: Any
    entries: Sequence[VolumeSummary] | Sequence[Entry]
    said: str = ""
    problems: Sequence[str] = ()
    code: int = 0
    has_paths: bool = False

    def table(self, verbose: bool) -> str:
        rows = [_row(each, verbose, self.has_paths) for each in self.entries]
        if not rows:
            return ""
        return output.table(
            list(rows[0]),
            [list(row.values()) for row in rows],
            without=() if verbose else LEFT_OUT,
            is_cut="MOUNTED" in rows[0] and not verbose,
        )


def _volumes(store: str | None, *, deleted: bool) -> _Shown:
    from cowfs.blocking import Store

    opened = Store(store)
    found = opened.volumes(deleted=deleted)
    said = "" if found else f"No {'deleted ' if deleted else ''}volumes in {opened.url}"
    bad = [each for each in found if each.problem is not None]
    problems = [
        f"{each.name} {'was written by a newer cowfs' if each.is_newer else 'is damaged'}: "
        f"{printable(each.problem or '')}"
        for each in bad
    ]
    is_damaged = any(not each.is_newer for each in bad)
    if is_damaged:
        problems.append(rendering.name_store(f"{Command('verify')} says what to do about it", opened.url))
    code = CorruptError.exit_code if is_damaged else UnsupportedFormatError.exit_code if bad else 0
    record = {"store_url": opened.url, "volumes": found}
    return _Shown(record, found, said, problems, code)


def _files(place: str, store: str | None) -> _Shown:
    from cowfs.blocking import Store

    found = Store(store).ls(place)
    return _Shown(found, found.entries, has_paths=found.is_pattern)


def _row(each: VolumeSummary | Entry, verbose: bool, has_paths: bool) -> dict[str, str]:
    """Its cells by their columns' headers."""
    from cowfs.blocking import VolumeSummary

    return _volume_row(each, verbose) if isinstance(each, VolumeSummary) else _file_row(each, verbose, has_paths)


def _volume_row(volume: VolumeSummary, verbose: bool) -> dict[str, str]:

    head = volume.version[:12] if volume.version else "-"
    mark = "" if volume.problem is None else " (of a newer cowfs)" if volume.is_newer else " (damaged)"
    row = {
        "NAME": volume.name + mark,
        "SIZE": str(volume.bytes) if verbose else format_size(volume.bytes),
        "FILES": str(volume.files),
        "OWNER": printable(volume.owner),
        "HEAD": head + (" (missing)" if volume.is_missing else " (purged)" if volume.is_purged else ""),
        "CHANGED": format_time(volume.changed_ns, to_the_second=verbose) if volume.head_number else "-",
        "MOUNTED": printable(volume.writer or ""),
    }
    return {**row, "LOCATOR": volume.locator or ""} if verbose else row


def _file_row(file: Entry, verbose: bool, has_paths: bool) -> dict[str, str]:

    mark = "/" if file.type == "directory" else f" -> {file.target}" if file.target is not None else ""
    size = str(file.size) if verbose else format_size(file.size)
    return {
        "MODE": stat.filemode(file.mode),
        "SIZE": size if file.type == "file" else "-",
        "CHANGED": format_time(file.mtime_ns, to_the_second=verbose),
        **(
            {"PATH": output.name(file.path + mark)} if verbose or has_paths else {"NAME": output.name(file.name + mark)}
        ),
    }
