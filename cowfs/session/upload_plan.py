"""What an upload is to do, and what it has done."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING

from cowfs.errors import ConflictError
from cowfs.values import dataclass

if TYPE_CHECKING:
    from cowfs.index import Link
    from cowfs.session.copy_stamps import CopyStamps
    from cowfs.session.copying import Attributes
    from cowfs.session.import_log import ImportLog
    from cowfs.version.publish import Publisher

NAMED_SKIPPED = 5
"""So many of the special files that are left out are named; the others are counted."""
THREADS = 4
"""Of these each reads one file; cutting and compressing large ones has a pool of its own."""


@dataclass
class Uploaded:
    """What was looked at, and what became of it. bytes: of the files' sizes. skipped: special
    files, left out; skipped_paths: the first of them. unchanged: files that the volume has already;
    removed: names that are gone."""

    files: int = 0
    directories: int = 0
    symlinks: int = 0
    bytes: int = 0
    skipped: int = 0
    unchanged: int = 0
    removed: int = 0
    skipped_paths: tuple[str, ...] = ()

    def skip(self, path: str) -> None:
        self.skipped += 1
        if len(self.skipped_paths) < NAMED_SKIPPED:
            self.skipped_paths += (path,)


def nothing_excluded(path: bytes) -> bool:
    return False


@dataclass(frozen=True)
class UploadPlan:
    """at: what is uploaded, "" for all of the tree; to: where it goes, a path of the volume. A file
    goes below it, as `name`, if that is a directory, or is to be one (is_directory).

    delete: what is in the target and not in the source goes, but for what is excluded, and the
    directories that lead to it. excluded: is asked of each path below `at`, of the source as of the
    target, a directory's ending in "/"; such a path, and all below it, is not looked at. owner:
    of what is new. threads: how many files are read at once. done: of an import, what it has read
    before it was killed. stamps: of a copy's folder; they say what is not read, instead of size and
    time, and what a copy does not have (`is_left_alone`) stays. link: files of the source that are
    to be links, from path and attributes. prepare: is called before anything is read, each time a
    version is drafted; it ends soon once `stop` is set, by Stopped.
    """

    at: bytes
    to: bytes
    owner: tuple[int, int]
    name: bytes = b""
    is_directory: bool = False
    delete: bool = False
    excluded: Callable[[bytes], bool] = nothing_excluded
    threads: int = THREADS
    done: ImportLog | None = None
    stamps: CopyStamps | None = None
    link: Callable[[bytes, Attributes], Link | None] = lambda path, attr: None
    prepare: Callable[[Publisher, Event], None] = lambda publisher, stop: None


def in_the_way(path: bytes, kept: bytes) -> ConflictError:
    """Of `path`, which is another kind of file in the source than in the volume. kept: what is
    excluded, itself or below it."""
    return ConflictError(
        f"{os.fsdecode(path)} of the source cannot take its place in the volume: {os.fsdecode(kept)} is there, which is "
        "excluded, and is not removed",
        hint="Rename or remove one of them, or exclude both or none. Nothing was removed.",
    )


def is_left_out(excluded: Callable[[bytes], bool], path: bytes) -> bool:
    """Whether the path is excluded, or a directory above it: where a listing has no directories."""
    parts = path.split(b"/")
    return any(excluded(b"/".join(parts[:count]) + b"/") for count in range(1, len(parts))) or excluded(path)


class NothingToUpload(Exception):
    """The volume has all of it, and the commit says no more than the last one did."""
