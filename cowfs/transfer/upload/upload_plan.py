"""The plan of an upload, and its result."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING

from cowfs.base.errors import ConflictError
from cowfs.base.fast_dataclass import dataclass

if TYPE_CHECKING:
    from cowfs.index import Link
    from cowfs.transfer.copying import Attributes
    from cowfs.transfer.imports.import_log import ImportLog
    from cowfs.transfer.upload.folder_stamps import CopyStamps
    from cowfs.transfer.upload.upload_stamps import UploadStamps
    from cowfs.version.publish.publisher import Publisher

NAMED_SKIPPED = 5
"""Messages name so many of the special files left out, and count the others."""
THREADS = 4
"""Each of these reads one file; cutting and compressing large ones has a pool of its own."""


@dataclass
class Uploaded:
    """Counts of an upload. bytes: of the files' sizes. skipped: special files, left out;
    skipped_paths: the first of them. unchanged: files that the volume has already; removed: names
    removed."""

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
    """at: the path to upload, "" for all of the tree; to: the target path in the volume. A file
    goes below it, as `name`, if that is a directory, or is to become one (is_directory).

    delete: remove target files that the source does not have, except excluded paths and their
    parent directories. excluded: called with each path below `at`, of the source and of the target,
    a directory's ending in "/"; an excluded path, and everything below it, is skipped. owner: of
    new files. threads: how many files are read at once. done: the log of an import, with the
    objects read before a kill. stamps: of a copy's folder; they replace size and time in deciding
    what is read, and special files (`is_special`), which a copy does not have, stay. checksum: read
    every file. earlier: stamps of the last upload from this machine; a file whose stamp differs is
    read although size and time are unchanged. link: returns the link for a source file that is to
    be one, from path and attributes. prepare: called before anything is read, each time a version
    is drafted; it raises Stopped soon after `stop` is set.
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
    checksum: bool = False
    earlier: UploadStamps | None = None
    link: Callable[[bytes, Attributes], Link | None] = lambda path, attr: None
    prepare: Callable[[Publisher, Event], None] = lambda publisher, stop: None


def exclusion_conflict(path: bytes, kept: bytes) -> ConflictError:
    """The error for a path that has different kinds in source and volume. kept: the excluded path,
    at or below it."""
    return ConflictError(
        f"{os.fsdecode(path)} of the source cannot replace the entry in the volume: {os.fsdecode(kept)} is excluded, and "
        "is not removed",
        hint="Rename or remove one of them, or exclude both or none. Nothing was removed.",
    )


def is_left_out(excluded: Callable[[bytes], bool], path: bytes) -> bool:
    """Whether the path or one of its parent directories is excluded, for listings without
    directories."""
    parts = path.split(b"/")
    return any(excluded(b"/".join(parts[:count]) + b"/") for count in range(1, len(parts))) or excluded(path)


class NothingToUpload(Exception):
    """The volume has everything already, and the commit adds nothing to the last one."""
