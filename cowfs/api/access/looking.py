"""Files without a mount, by SOURCE:PATH: `Store.ls`, `stat`, `usage` and `read`. They use `files`
of a version. A bare NAME means the last version, even while the volume is mounted here.

A link named by the user is followed; other links are shown as links. Errors for paths are cowfs
errors with hints.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cowfs.api import sources, stores
from cowfs.api.access import path_patterns
from cowfs.api.access.version_files import files_of
from cowfs.api.files import Entry, ROFiles
from cowfs.api.sources import Place
from cowfs.api.transfers import shell_patterns
from cowfs.api.transfers.path_errors import errors_of_ours
from cowfs.base.errors import InvalidInputError
from cowfs.base.hints import Command
from cowfs.base.short_repr import has_card, short_repr

PIECE_BYTES = 1 << 20


@short_repr
@dataclass(frozen=True)
class Listing:
    """The listing of a path of a version: the entries of a directory, or the single entry of
    another kind; for a pattern (is_pattern) the entries that match it."""

    locator: str
    path: str
    entries: list[Entry]
    is_pattern: bool = False


@has_card
@dataclass(frozen=True)
class FoundEntry:
    """The entry at a path of a version."""

    locator: str
    entry: Entry


@has_card
@dataclass(frozen=True)
class DirectoryUsage:
    """The number and the bytes of the files below a directory, by names: a file with two names
    counts twice."""

    path: str
    files: int
    bytes: int


@short_repr
@dataclass(frozen=True)
class Usage:
    """The usage of each directory, after that of the directories below it; the last one is the
    sum."""

    locator: str
    directories: list[DirectoryUsage]


def listing(
    text: str, store: stores.Named, *, recursive: bool = False, name: str | None = None, type: str | None = None
) -> Listing:
    """`Store.ls`."""
    with _open(text, store) as (locator, files, place):
        is_pattern = path_patterns.is_pattern(files, place.path)
        listed = _list_matches(files, place, recursive) if is_pattern else files.ls(place.path, recursive)
        found = [
            each
            for each in listed
            if (name is None or shell_patterns.matches(each.name, name)) and type in (None, each.type)
        ]
        return Listing(locator, os.fsdecode(place.path), found, is_pattern)


def _list_matches(files: ROFiles, place: Place, recursive: bool) -> Iterator[Entry]:
    """Each entry once, although `**` matches a directory and what is in it."""
    listed = set()
    for each in path_patterns.find_matches(files, place):
        below = files.ls(each, recursive=True) if recursive and each.type == "directory" else ()
        for entry in (each, *below):
            if entry.path not in listed:
                listed.add(entry.path)
                yield entry


def stat(text: str, store: stores.Named) -> FoundEntry:
    """`Store.stat`."""
    with _open(text, store) as (locator, files, place):
        return FoundEntry(locator, files.stat(place.path))


def usage(text: str, store: stores.Named) -> Usage:
    """`Store.usage`."""
    with _open(text, store) as (locator, files, place):
        sums: dict[str, list[int]] = {}
        order = []
        for path, directories, others in files.walk(place.path):
            order.append((path, [each.path for each in directories]))
            sizes = [each.size for each in others if each.type == "file"]
            sums[path] = [len(sizes), sum(sizes)]
        for path, below in reversed(order):
            for each in below:
                sums[path] = [own + more for own, more in zip(sums[path], sums[each], strict=True)]
        return Usage(locator, [DirectoryUsage(path, *sums[path]) for path, _ in reversed(order)])


def contents(text: str, store: stores.Named) -> Generator[bytes]:
    """`Store.read`."""
    with _open(text, store) as (_, files, place):
        if not place.path:
            raise InvalidInputError(f"{text!r} names no file", hint="Give SOURCE:PATH, or LOCATOR/PATH.")
        if files.stat(place.path).type == "directory":
            raise InvalidInputError(
                f"{text} is a directory",
                hint=f"{Command('ls')} (listdir() of a mount) shows what is in it, {Command('cp')} copies it.",
            )
        with files.open(place.path) as file:
            while piece := file.read(PIECE_BYTES):
                yield piece


@contextmanager
def _open(text: str, store: stores.Named) -> Iterator[tuple[str, ROFiles, Place]]:
    place = sources.place(text)
    version = sources.find_version(place.source, store)
    hint = sources.listing_hint(place)
    if shell_patterns.has_wildcards(place.path):  # `listing` finds out itself what a pattern matches
        hint = f"A pattern is not expanded here; {Command('ls', text)} (Store().ls()) shows what it matches."
    with errors_of_ours(text, hint, within=place.source):
        yield version.locator, files_of(version), place
