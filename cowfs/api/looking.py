"""What the command line shows of files without a mount: ls, find, tree, stat, du, cat. By `files`
of the version that is meant: of a bare NAME the last one, also while the volume is mounted here.

A link that is named is followed; others are shown as links. Errors of paths are ours, for people.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from cowfs.api import sources, stores
from cowfs.api.files import Entry
from cowfs.api.path_errors import errors_of_ours
from cowfs.api.ro_volume import ROVolume
from cowfs.api.sources import Place
from cowfs.errors import InvalidInputError
from cowfs.values import dataclass

PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Listing:
    """What is at a path of a version: the entries of a directory, or the one thing that is
    there."""

    locator: str
    path: str
    entries: list[Entry]


@dataclass(frozen=True)
class Found:
    """One thing at a path of a version."""

    locator: str
    entry: Entry


@dataclass(frozen=True)
class DirectoryUsage:
    """Everything below a directory, by all names that it has: a file with two is counted twice."""

    path: str
    files: int
    bytes: int


@dataclass(frozen=True)
class Usage:
    """Of each directory, those below it first."""

    locator: str
    directories: list[DirectoryUsage]


def listing(
    text: str, store: stores.Named, *, recursive: bool = False, name: str | None = None, type: str | None = None
) -> Listing:
    """SOURCE[:PATH]; sorted by name, each directory before what is in it. name: only what matches
    this pattern of the shell; type: only files, directories, symlinks or special ones."""
    with _opened(text, store) as (version, place):
        found = [
            each
            for each in version.files.ls(place.path, recursive)
            if (name is None or fnmatch.fnmatchcase(each.name, name)) and type in (None, each.type)
        ]
        return Listing(version.locator, os.fsdecode(place.path), found)


def stat(text: str, store: stores.Named) -> Found:
    with _opened(text, store) as (version, place):
        return Found(version.locator, version.files.stat(place.path))


def usage(text: str, store: stores.Named) -> Usage:
    """Sizes are those of the files, not what the store keeps of them."""
    with _opened(text, store) as (version, place):
        sums: dict[str, list[int]] = {}
        order = []
        for path, directories, others in version.files.walk(place.path):
            order.append((path, [each.path for each in directories]))
            files = [each.size for each in others if each.type == "file"]
            sums[path] = [len(files), sum(files)]
        for path, below in reversed(order):
            for each in below:
                sums[path] = [own + more for own, more in zip(sums[path], sums[each], strict=True)]
        return Usage(version.locator, [DirectoryUsage(path, *sums[path]) for path, _ in reversed(order)])


def contents(text: str, store: stores.Named) -> Generator[bytes]:
    """The bytes of SOURCE:PATH, piece by piece. Close it when it is not read to its end."""
    if not sources.place(text).path:
        raise InvalidInputError(f"{text!r} names no file", hint="Give SOURCE:PATH, or LOCATOR/PATH.")
    with _opened(text, store) as (version, place):
        if version.files.stat(place.path).type == "directory":
            raise InvalidInputError(
                f"{text} is a directory",
                hint="`cowfs ls` (listdir() of a mount) shows what is in it, `cowfs cp` copies it.",
            )
        with version.files.open(place.path) as file:
            while piece := file.read(PIECE_BYTES):
                yield piece


@contextmanager
def _opened(text: str, store: stores.Named) -> Iterator[tuple[ROVolume, Place]]:
    place = sources.place(text)
    found = sources.find(place.source, store)
    version = ROVolume(found.locator(), storage=found.store.storage).resolve()
    with errors_of_ours(text, of_volume(place)):
        yield version, place


def of_volume(place: Place) -> str:
    """What to do about a path that is not there."""
    return f"`cowfs ls {place.source}`, or listdir() of a mount of it, shows what there is."
