"""Uploads a local directory or file as the next version of a volume: the source that a publisher
drafts from where there is no engine, no journal and no staging.

    source, directory by directory ──┐
                                     ├─▶ compare ─▶ files that differ: cut, look up, pack (`version.publish.stored_chunks`)
    index of the volume's head ──────┘        └───▶ names, links, attributes (`version.publish.tree_changes`)

A few threads read and store files. The results enter the change set in the order of the walk, so
that the numbers of new inodes ascend with their contents. A file of the same size and time of
modification is not read, unless that time is so close to the time it was stored that a later write
may have the same one, or the file system does not record every store
(`machine.folders.mapped_stores`). An object of an import (`object_tree`) is skipped only if its
state is the same as well; an object without a state is always read, and so is a file of which a
purge took bytes. Files of an archive
(`archive_tree`) are stored before the walk.

Which files are kept or replaced follows the rules of `copying`. A file that differs gets a new
inode, as if it had been renamed into place: other names of the old one keep their bytes. Hard links
among the uploaded files become links again (`upload_changes`).

A file that is written to while it is read is read again; one that never stops changing ends the
upload, and nothing is published. Drafting again reads all files that differ again: a collection may
have condemned the chunks found before.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import field
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Protocol

from cowfs.base import clock, interruptible
from cowfs.base.errors import InvalidInputError
from cowfs.base.failpoints import hit
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.thread_pool import Helpers
from cowfs.index import InodeRow
from cowfs.machine.folders.stamps import is_special
from cowfs.native.constants import ROOT_INO
from cowfs.transfer.copying import KEPT_BITS, Attributes
from cowfs.transfer.imports.archive_names import ArchiveAttr
from cowfs.transfer.links import directory_at
from cowfs.transfer.local_files import LocalFiles
from cowfs.transfer.upload.upload_changes import Directory, File, UploadChanges
from cowfs.transfer.upload.upload_plan import (
    NothingToUpload,
    Uploaded,
    UploadPlan,
    exclusion_conflict,
    nothing_excluded,
)
from cowfs.transfer.upload.upload_reading import (
    Chunks,
    Count,
    FileReader,
    Read,
    SourceTree,
    Stopped,
    below,
    list_entries,
    translate_replacement,
)
from cowfs.transfer.version_tree import VersionNames
from cowfs.version.commit import ProgressListener
from cowfs.version.publish.publisher import Draft, Source
from cowfs.version.publish.tree_changes import INO, MODE

if TYPE_CHECKING:
    from cowfs.index import Index
    from cowfs.version.publish.publisher import Publisher

WAITING_MAX = 512
BATCH_FILES = 32
SAME_TICK_NS = 2_000_000_000  # clocks of file servers differ a little from ours


class TreeUpload(Source):
    """A source of `version.publish.publisher`. wants_version: whether to make a version even if
    nothing differs; otherwise drafting raises NothingToUpload. hurry: called after a failure or an
    interruption, before waiting for requests to the store."""

    def __init__(
        self,
        publisher: Publisher,
        tree: SourceTree,
        plan: UploadPlan,
        *,
        wants_version: bool,
        hurry: Callable[[], None] = lambda: None,
        progress: ProgressListener | None = None,
    ) -> None:
        self._publisher = publisher
        self._tree = tree
        self._plan = plan
        self._wants_version = wants_version
        self._hurry = hurry
        self._progress = progress
        self.done = Uploaded()

    def draft(self) -> Draft:
        publisher = self._publisher
        prepare = partial(self._plan.prepare, publisher)
        drafting = _Drafting(
            publisher.index,
            publisher.chunks,
            self._tree,
            self._plan,
            prepare,
            self._hurry,
            self._progress,
            publisher.chunks.find_purged(lambda ino: publisher.index.read_stored_content(ino)[0]),
        )
        found = drafting.run()
        self.done = found.done
        if found.changes.is_empty and not self._wants_version:
            raise NothingToUpload
        return Draft(found.changes.changes(), found.contents)


def draft_changes(index: Index, chunks: DraftChunks, tree: SourceTree, plan: UploadPlan) -> UploadChanges:
    """The changes that a version of the tree would make to `index`, without making one:
    `plan.prepare` is not called."""
    return _Drafting(index, chunks, tree, plan).run()


class DraftChunks(Chunks, Protocol):
    """As `StoredChunks`."""

    def wait_for_uploads(self) -> None: ...


@dataclass
class _Batch:
    """Small files of the source, which a helper reads one after the other."""

    files: list[File] = field(default_factory=list)
    reading: Future[list[Read | None]] | None = None


class _Drafting:
    """One draft. A separate thread (`interruptible`) walks directories and makes the change set;
    its helpers read files."""

    def __init__(
        self,
        index: Index,
        chunks: DraftChunks,
        tree: SourceTree,
        plan: UploadPlan,
        prepare: Callable[[Event], None] = lambda stop: None,
        hurry: Callable[[], None] = lambda: None,
        progress: ProgressListener | None = None,
        is_purged: Callable[[int], bool] = lambda ino: False,
    ) -> None:
        self._hurry = hurry
        self._index = index
        self._chunks = chunks
        self._prepare = prepare
        self._tree = tree
        self._plan = plan
        self._stamps = plan.stamps
        self._pending: deque[File | Directory] = deque()
        self._batch = _Batch()
        self._helpers: Helpers
        self._stop = Event()
        self._knows_store = False
        self._count = Count(progress)
        self._reader = FileReader(
            chunks, lambda ino: self._index.read_stored_content(ino)[0], tree, self._stop, self._count, plan.done
        )
        self._target = UploadChanges(self._index, plan, self._count, self._read, self._times_tell, is_purged)

    def run(self) -> UploadChanges:
        return interruptible.run(self._run, self._end)

    def _end(self) -> None:
        self._stop.set()
        self._hurry()

    def _run(self) -> UploadChanges:
        hit("upload-before-files")
        if self._stamps is not None:
            self._stamps.begin()
        if self._plan.earlier is not None:
            self._plan.earlier.begin()
        self._prepare(self._stop)
        first = self._tree.stat(self._plan.at)
        self._count.expect(self._tree, self._plan.at, first, self._is_excluded)
        with Helpers(self._plan.threads, name="cowfs-read") as self._helpers:
            try:
                if stat.S_ISDIR(first.mode):
                    self._walk(self._plan.at, self._target_directory(self._plan.to))
                else:
                    self._walk_file(first)
                self._settle(0)
            except BaseException:
                self._end()
                self._helpers.shutdown(wait=False, cancel_futures=True)
                raise
        self._count.tell(is_last=True)
        return self._target

    # -- directories

    def _target_directory(self, path: bytes) -> Directory:
        """The target directory; it and its parents are created where they are missing."""
        root = self._target.changes.root()
        directory = Directory(ROOT_INO, root)
        for name in filter(None, path.split(b"/")):
            row = self._base_entry(directory, name)
            if row is not None and not stat.S_ISDIR(row[MODE]):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fsdecode(path))
            if row is not None:
                directory = Directory(row[INO], row)
                continue
            ino = self._target.changes.make_directory(directory.ino, mode=0o755, mtime_ns=clock.now_ns())
            directory.entries.append((name, ino))
            self._end_directory(directory)
            directory = Directory(ino, None)
        return directory

    def _walk_file(self, attr: Attributes) -> None:
        to, file = self._plan.to, self._plan.name
        at = directory_at(VersionNames(self._index), to)
        if at is not None or self._plan.is_directory:
            to = below(at if at is not None else to, file)
        above, _, name = to.rpartition(b"/")
        directory = self._target_directory(above)
        self._meet(self._plan.at, name, attr, directory, self._base_entry(directory, name))
        self._end_directory(directory)

    def _base_entry(self, directory: Directory, name: bytes) -> InodeRow | None:
        ino = self._index.entry(directory.ino, name) if directory.base is not None else None
        return self._index.inode(ino) if ino is not None else None

    def _walk(self, at: bytes, first: Directory) -> None:
        """Merges the source directory into the volume's, and so on for all directories below."""
        waiting = [(at, first)]
        while waiting:
            path, directory = waiting.pop()
            self._target.done.directories += 1
            base = dict(self._index.directory(directory.ino)) if directory.base is not None else {}
            found: list[tuple[bytes, Directory]] = []
            for name, attr in list_entries(self._tree, path, at):
                if self._stop.is_set():
                    raise Stopped
                there = below(path, name)
                if self._is_excluded(there, attr):
                    continue
                old = base.pop(name, None)
                if stat.S_ISDIR(attr.mode):
                    found.append((there, self._enter(there, name, attr, directory, old)))
                else:
                    self._meet(there, name, attr, directory, old)
            if self._plan.delete:
                for name, row in base.items():
                    is_kept = self._stamps is not None and is_special(row[MODE])
                    if not is_kept and not self._is_excluded(below(path, name), row):
                        self._remove(below(path, name), name, directory, row)
            self._end_directory(directory)
            waiting += reversed(found)

    def _remove(self, path: bytes, name: bytes, directory: Directory, row: InodeRow) -> None:
        """Removes a name of the base and everything below it, except excluded paths and their
        parent directories."""
        kept = self._find_kept(path, row)
        if row[INO] not in kept:
            self._target.remove(directory, name, row)
            return
        waiting = [(path, row)]
        while waiting:
            path, row = waiting.pop()
            left = Directory(row[INO], row)
            for name, each in self._index.directory(row[INO]):
                there = below(path, name)
                if each[INO] in kept:
                    waiting.append((there, each))
                elif not self._is_excluded(there, each):
                    self._target.remove(left, name, each)
            self._end_directory(left)

    def _find_kept(self, path: bytes, row: InodeRow) -> dict[int, bytes]:
        """Directories of the base, at or below this path, that contain something excluded: maps
        each inode to an excluded path."""
        if self._plan.excluded is nothing_excluded or not stat.S_ISDIR(row[MODE]):
            return {}
        kept: dict[int, bytes] = {}
        above, waiting = {row[INO]: ROOT_INO}, [(path, row[INO])]
        while waiting:
            path, directory = waiting.pop()
            for name, each in self._index.directory(directory):
                there = below(path, name)
                if self._is_excluded(there, each):
                    leading = directory
                    while leading != ROOT_INO and leading not in kept:
                        kept[leading] = there
                        leading = above[leading]
                elif stat.S_ISDIR(each[MODE]):
                    if each[INO] in above:
                        raise self._index.damage_error(f"directory {each[INO]} has two names")
                    above[each[INO]] = directory
                    waiting.append((there, each[INO]))
        return kept

    def _require_replaceable(self, path: bytes, old: InodeRow) -> None:
        """ConflictError if the old entry is excluded or contains something excluded."""
        kept = (
            path if path != self._plan.at and self._is_excluded(path, old) else self._find_kept(path, old).get(old[INO])
        )
        if kept is not None:
            raise exclusion_conflict(path, kept)

    def _enter(
        self, path: bytes, name: bytes, attr: Attributes, directory: Directory, old: InodeRow | None
    ) -> Directory:
        """Returns the volume's directory for a source directory below the first."""
        mode = attr.mode & KEPT_BITS
        if self._stamps is not None:
            self._stamps.take(path, attr)
        if old is not None and stat.S_ISDIR(old[MODE]):
            if self._stamps is None or not self._stamps.is_same(path, attr):
                self._target.changes.set_attributes(
                    old, mode=self._target.mode(path, old, mode), mtime_ns=attr.mtime_ns
                )
            return Directory(old[INO], old, is_own=True)
        if old is not None:
            self._require_delete(path, errno.ENOTDIR)
            self._require_replaceable(path, old)
            self._target.changes.lose(old)
        ino = self._target.changes.make_directory(directory.ino, mode=mode, mtime_ns=attr.mtime_ns)
        directory.entries.append((name, ino))
        return Directory(ino, None)

    def _end_directory(self, directory: Directory) -> None:
        self._pending.append(directory)

    def _require_delete(self, path: bytes, code: int) -> None:
        """A directory may replace another kind of file, or the reverse, only if files missing in
        the source are deleted."""
        if not self._plan.delete:
            raise OSError(code, os.strerror(code), os.fsdecode(path))

    # -- files and links

    def _meet(self, path: bytes, name: bytes, attr: Attributes, directory: Directory, old: InodeRow | None) -> None:
        """Handles anything but a directory."""
        if stat.S_ISREG(attr.mode):
            self._make_way(path, old)
            file = File(path, name, attr, directory, old)
            if self._target.is_first_name(attr):
                file.link = self._plan.link(path, attr)
                known = self._find_known(file)
                if known is not None:
                    file.known = known
                    self._count.add_bytes(attr.size)
                else:
                    self._wait_for_store()
                    file.reading = self._reading(file)
            self._pending.append(file)
            self._settle(WAITING_MAX)
        elif stat.S_ISLNK(attr.mode):
            self._make_way(path, old)
            target = self._read_symlink(path)
            if target is None:
                self._target.put_vanished(directory, name, old)
                return
            if self._stamps is not None:
                self._stamps.take(path, attr)
            self._target.put_symlink(path, target, attr, directory, old)
        else:
            self._target.done.skip(os.fsdecode(path))

    def _find_known(self, file: File) -> Read | None:
        """The file's result, if it need not be read."""
        if isinstance(file.attr, ArchiveAttr):
            return file.attr.read()
        return self._target.as_found(file.attr) if file.link is not None else self._target.find_known(file)

    def _read_symlink(self, path: bytes) -> bytes | None:
        """Returns None if the link has vanished since it was listed."""
        with translate_replacement(path):
            try:
                return self._tree.readlink(path)
            except FileNotFoundError:
                return None

    def _reading(self, file: File) -> Callable[[], Read | None]:
        """Has helpers read the file: alone, or with other small files."""
        if not self._reader.is_small(file.attr):
            return self._helpers.submit(self._read, file).result
        batch, place = self._batch, len(self._batch.files)
        batch.files.append(file)
        if len(batch.files) == BATCH_FILES:
            self._send(batch)
        return lambda: self._send(batch).result()[place]

    def _send(self, batch: _Batch) -> Future[list[Read | None]]:
        if batch.reading is None:
            files = [(file.path, file.attr, file.base_ino) for file in batch.files]
            batch.reading = self._helpers.submit(self._reader.read_small, files)
            self._batch = _Batch()
        return batch.reading

    def _wait_for_store(self) -> None:
        """Waits until the chunks in the store are known, before the first file is read."""
        if not self._knows_store:
            self._chunks.wait_for_uploads()
            self._knows_store = True

    def _make_way(self, path: bytes, old: InodeRow | None) -> None:
        if old is None:
            return
        if self._plan.delete:
            if stat.S_ISDIR(old[MODE]):
                self._require_replaceable(path, old)
            return
        if stat.S_ISDIR(old[MODE]):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fsdecode(path))
        if stat.S_IFMT(old[MODE]) not in (stat.S_IFREG, stat.S_IFLNK):
            raise InvalidInputError(
                f"{os.fsdecode(path)} is a device, a pipe or a socket in the volume, which is not replaced",
                hint="Choose another name, or mount the volume and remove it.",
            )

    def _settle(self, left: int) -> None:
        """Puts results into the change set, in order, until at most `left` are pending."""
        while len(self._pending) > left:
            found = self._pending.popleft()
            if isinstance(found, Directory):
                self._target.put_directory(found)
            elif found.known is not None:
                self._target.put_file(found, found.known)
            elif found.reading is not None:
                self._target.put_file(found, found.reading())
            else:
                self._target.put_link(found)

    def _read(self, file: File) -> Read | None:
        """Reads a file, on a helper thread or where it has to be read after all."""
        return self._reader.read(file.path, file.attr, file.base_ino)

    def _times_tell(self, file: File) -> bool:
        return not isinstance(self._tree, LocalFiles) or self._tree.times_tell(file.path, file.attr.ino)

    def _is_excluded(self, path: bytes, attr: Attributes | InodeRow) -> bool:
        mode = attr[MODE] if isinstance(attr, tuple) else attr.mode
        relative = path[len(self._plan.at) :].lstrip(b"/")
        return self._plan.excluded(relative + b"/" if stat.S_ISDIR(mode) else relative)
