"""A directory, or a file, of this machine as the next version of a volume: the source that a
publisher drafts from where there is no engine, no journal and no staging.

    source, directory by directory ──┐
                                     ├─▶ compare ─▶ files that differ: cut, look up, pack (`version.stored_chunks`)
    index of the volume's head ──────┘        └───▶ names, links, attributes (`version.tree_changes`)

Files are read and stored by a few threads; what came of them is put into the change set in the
order in which they were found, so that the numbers of new inodes ascend with their contents. A file
of the same size and time of modification is not read, unless that time is so close to when it was
stored that a later write may bear it too. An object of an import (`object_tree`) is not read if its
state is the same as well; one of which nothing tells its states apart is always read.

What is kept, and what takes the place of what, is as `copying` has it. A file that differs gets an
inode of its own, as if it had been renamed into place: other names of the old one keep their bytes.
Hard links among what is uploaded are links again.

A file that is written to while it is read is read again; one that never stands still ends the
upload. Nothing is published then. Drafting again reads all files that differ again: what was found
before may be what a collection has condemned.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING

from cowfs import apart, clock
from cowfs.errors import InvalidInputError
from cowfs.failpoints import hit
from cowfs.index import InodeRow
from cowfs.native.chunks import FileRows
from cowfs.native.constants import ROOT_INO
from cowfs.session.copy_stamps import is_left_alone
from cowfs.session.copying import KEPT_BITS, Attributes
from cowfs.session.object_tree import STATE, state_of
from cowfs.session.upload_plan import NothingToUpload, Uploaded, UploadPlan
from cowfs.session.upload_reading import Count, FileReader, Read, SourceTree, Stopped, below
from cowfs.version.commit import ProgressListener
from cowfs.version.publish import Draft
from cowfs.version.tree_changes import CTIME, INO, MODE, MTIME, NLINK, SIZE, TARGET, TreeChanges

if TYPE_CHECKING:
    from cowfs.index import ExtentRow, Index, Link
    from cowfs.version.publish import Publisher

WAITING_MAX = 512
BATCH_FILES = 32
SAME_TICK_NS = 2_000_000_000  # clocks of file servers differ a little from ours


class TreeUpload:
    """A `Source` of `version.publish`. wants_version: whether a version is made though nothing
    differs; else drafting raises NothingToUpload. hurry: is called when it fails, or is interrupted,
    before what waits for the store is waited for."""

    layer = 0

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
        drafting = _Drafting(self._publisher, self._tree, self._plan, self._hurry, self._progress)
        changes = drafting.run()
        self.done = drafting.done
        if changes.is_empty and not self._wants_version:
            raise NothingToUpload
        return Draft(changes.changes(), drafting.contents)

    def kept(self, ino: int) -> Collection[tuple[int, bytes, int]]:
        return ()  # all contents are new inodes'

    def published(self, index: Index) -> None:
        """Nobody reads the version here."""

    def abandoned(self) -> None:
        """The source has everything still."""


@dataclass
class _Directory:
    """One of the volume that is gone through. base: its row, None for a new one. mtime: whether
    its time follows its entries, or is set from the source."""

    ino: int
    base: InodeRow | None
    entries: list[tuple[bytes, int]] = field(default_factory=list)
    is_own: bool = False


@dataclass
class _File:
    """A file that was found, on its way into the change set."""

    path: bytes
    name: bytes
    attr: Attributes
    directory: _Directory
    base: InodeRow | None  # of the same name
    link: Link | None = None  # nothing has to be read
    known: Read | None = None  # nothing has to be read
    reading: Callable[[], Read | None] | None = None  # neither: another name of a file that was found before

    @property
    def base_ino(self) -> int | None:
        """Of the file that the volume has there."""
        return self.base[INO] if self.base is not None and stat.S_ISREG(self.base[MODE]) else None


@dataclass
class _Batch:
    """Small files of the source, which a helper reads one after the other."""

    files: list[_File] = field(default_factory=list)
    reading: Future[list[Read | None]] | None = None


class _Drafting:
    """One draft. A thread of its own (`apart`) goes through directories and makes the change set; its
    helpers read files."""

    def __init__(
        self,
        publisher: Publisher,
        tree: SourceTree,
        plan: UploadPlan,
        hurry: Callable[[], None],
        progress: ProgressListener | None,
    ) -> None:
        self._hurry = hurry
        self.contents = FileRows()
        self.done = Uploaded()
        self._publisher = publisher
        self._index = publisher.index
        self._tree = tree
        self._plan = plan
        self._stamps = plan.stamps
        self._changes = TreeChanges(self._index, owner=plan.owner, now_ns=clock.now_ns())
        self._pending: deque[_File | _Directory] = deque()
        self._batch = _Batch()
        self._helpers: ThreadPoolExecutor
        self._stop = Event()
        self._knows_store = False
        self._linked: dict[int, InodeRow | int] = {}  # source inode with several names → the one here
        self._claimed: set[int] = set()  # base inodes with several names that stand for a source inode
        self._count = Count(progress)
        self._reader = FileReader(
            publisher.chunks, lambda ino: self._index.stored_content(ino)[0], tree, self._stop, self._count, plan.done
        )

    def run(self) -> TreeChanges:
        return apart.run(self._run, self._end)

    def _end(self) -> None:
        self._stop.set()
        self._hurry()

    def _run(self) -> TreeChanges:
        hit("upload-before-files")
        if self._stamps is not None:
            self._stamps.begin()
        self._plan.prepare(self._publisher, self._stop)
        first = self._tree.stat(self._plan.at)
        self._count.expect(self._tree, self._plan.at, first, self._is_excluded)
        with ThreadPoolExecutor(self._plan.threads, thread_name_prefix="cowfs-read") as self._helpers:
            try:
                if stat.S_ISDIR(first.mode):
                    self._walk(self._plan.at, self._target_directory(self._plan.to))
                else:
                    self._walk_file(first)
                self._settle(0)
            except BaseException:
                self._end()
                self._helpers.shutdown(cancel_futures=True)
                raise
        self._count.tell(is_last=True)
        return self._changes

    # -- directories

    def _target_directory(self, path: bytes) -> _Directory:
        """The directory there; it is made, and those above it, where they are missing."""
        root = self._changes.root()
        directory = _Directory(ROOT_INO, root)
        for name in filter(None, path.split(b"/")):
            row = self._base_entry(directory, name)
            if row is not None and not stat.S_ISDIR(row[MODE]):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fsdecode(path))
            if row is not None:
                directory = _Directory(row[INO], row)
                continue
            ino = self._changes.make_directory(directory.ino, mode=0o755, mtime_ns=clock.now_ns())
            directory.entries.append((name, ino))
            self._end_directory(directory)
            directory = _Directory(ino, None)
        return directory

    def _walk_file(self, attr: Attributes) -> None:
        to, file = self._plan.to, self._plan.name
        if self._plan.is_directory or not to or self._is_directory(to):
            to = below(to, file)
        above, _, name = to.rpartition(b"/")
        directory = self._target_directory(above)
        self._meet(self._plan.at, name, attr, directory, self._base_entry(directory, name))
        self._end_directory(directory)

    def _is_directory(self, path: bytes) -> bool:
        row: InodeRow | None = self._changes.root()
        for name in path.split(b"/"):
            row = self._base_entry(_Directory(row[INO], row), name) if row is not None else None
        return row is not None and stat.S_ISDIR(row[MODE])

    def _base_entry(self, directory: _Directory, name: bytes) -> InodeRow | None:
        ino = self._index.entry(directory.ino, name) if directory.base is not None else None
        return self._index.inode(ino) if ino is not None else None

    def _walk(self, at: bytes, first: _Directory) -> None:
        """Merges the source directory into the volume's, and so on with all below."""
        waiting = [(at, first)]
        while waiting:
            path, directory = waiting.pop()
            self.done.directories += 1
            base = dict(self._index.directory(directory.ino)) if directory.base is not None else {}
            found: list[tuple[bytes, _Directory]] = []
            for name, attr in self._tree.list(path):
                if self._stop.is_set():
                    raise Stopped
                there, old = below(path, name), base.pop(name, None)
                if self._is_excluded(there, attr):
                    continue
                if stat.S_ISDIR(attr.mode):
                    found.append((there, self._enter(there, name, attr, directory, old)))
                else:
                    self._meet(there, name, attr, directory, old)
            if self._plan.delete:
                for name, row in base.items():
                    is_kept = self._stamps is not None and is_left_alone(row[MODE])
                    if not is_kept and not self._is_excluded(below(path, name), row):
                        self._remove(directory, name, row)
            self._end_directory(directory)
            waiting += reversed(found)

    def _enter(
        self, path: bytes, name: bytes, attr: Attributes, directory: _Directory, old: InodeRow | None
    ) -> _Directory:
        """The directory of the volume that a source directory below the first stands for."""
        mode = attr.mode & KEPT_BITS
        if self._stamps is not None:
            self._stamps.take(path, attr)
        if old is not None and stat.S_ISDIR(old[MODE]):
            if self._stamps is None or not self._stamps.is_same(path, attr):
                self._changes.set_attributes(old, mode=self._mode(old, mode), mtime_ns=attr.mtime_ns)
            return _Directory(old[INO], old, is_own=True)
        if old is not None:
            self._require_delete(path, errno.ENOTDIR)
            self._changes.lose(old)
        ino = self._changes.make_directory(directory.ino, mode=mode, mtime_ns=attr.mtime_ns)
        directory.entries.append((name, ino))
        return _Directory(ino, None)

    def _end_directory(self, directory: _Directory) -> None:
        self._pending.append(directory)

    def _remove(self, directory: _Directory, name: bytes, row: InodeRow) -> None:
        """A name of the base, and all below it."""
        directory.entries.append((name, 0))
        self._drop(directory, row)
        self.done.removed += 1

    def _drop(self, directory: _Directory, row: InodeRow) -> None:
        """What the name led to loses it."""
        if stat.S_ISDIR(row[MODE]):
            assert directory.base is not None
            self.done.removed += self._changes.remove_tree(directory.base, row)
        else:
            self._changes.lose(row)

    def _require_delete(self, path: bytes, code: int) -> None:
        """A directory takes the place of something else, or the other way round, only where what is
        not in the source goes."""
        if not self._plan.delete:
            raise OSError(code, os.strerror(code), os.fsdecode(path))

    # -- files and links

    def _meet(self, path: bytes, name: bytes, attr: Attributes, directory: _Directory, old: InodeRow | None) -> None:
        """Anything but a directory."""
        if stat.S_ISREG(attr.mode):
            self._make_way(path, old)
            file = _File(path, name, attr, directory, old)
            if attr.nlink < 2 or attr.ino not in self._linked:
                self._linked.update({attr.ino: 0} if attr.nlink > 1 else {})
                file.link = self._plan.link(path, attr)
                known = self._as_found(attr) if file.link is not None else self._known(file)
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
            if self._stamps is not None:
                self._stamps.take(path, attr)
            self._put_symlink(name, self._tree.readlink(path), attr, directory, old)
        else:
            self.done.skipped += 1

    def _reading(self, file: _File) -> Callable[[], Read | None]:
        """By helpers: alone, or with other small files."""
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
        """Before the first file is read: until it is known what the store has."""
        if not self._knows_store:
            self._publisher.chunks.wait_for_uploads()
            self._knows_store = True

    def _make_way(self, path: bytes, old: InodeRow | None) -> None:
        if old is None or self._plan.delete:
            return
        if stat.S_ISDIR(old[MODE]):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fsdecode(path))
        if stat.S_IFMT(old[MODE]) not in (stat.S_IFREG, stat.S_IFLNK):
            raise InvalidInputError(
                f"{os.fsdecode(path)} is a device, a pipe or a socket in the volume, which is not replaced",
                hint="Choose another name, or mount the volume and remove it.",
            )

    def _put_symlink(
        self, name: bytes, target: bytes, attr: Attributes, directory: _Directory, old: InodeRow | None
    ) -> None:
        self.done.symlinks += 1
        known = self._linked.get(attr.ino) if attr.nlink > 1 else None
        if known is None and old is not None and self._is_same_symlink(old, target, attr):
            if old[NLINK] > 1:
                self._claimed.add(old[INO])
            known = old
        elif known is None:
            known = self._changes.make_symlink(directory.ino, target, mtime_ns=attr.mtime_ns)
        if attr.nlink > 1:
            self._linked[attr.ino] = known
        self._name_known(directory, name, known, old)

    def _is_same_symlink(self, old: InodeRow, target: bytes, attr: Attributes) -> bool:
        return (
            stat.S_ISLNK(old[MODE])
            and (old[TARGET], old[MTIME]) == (target, attr.mtime_ns)
            and (old[NLINK] < 2 or old[INO] not in self._claimed)
        )

    def _known(self, file: _File) -> Read | None:
        """What the base has of this file, by all appearances: then it is not read."""
        old, attr = file.base, file.attr
        if old is None or not stat.S_ISREG(old[MODE]):
            return None
        if self._stamps is not None:
            is_same = self._stamps.is_same(file.path, attr)
            known = Read(stat.S_IMODE(old[MODE]), old[MTIME], old[SIZE], None)
        else:
            is_same = (old[SIZE], old[MTIME]) == (attr.size, attr.mtime_ns) and self._is_same_state(old, attr)
            known = self._as_found(attr)
        return known if is_same and self._may_stay(file, old, known.mode, known.mtime_ns) else None

    def _as_found(self, attr: Attributes) -> Read:
        """A file that is not read."""
        return Read(attr.mode & KEPT_BITS, attr.mtime_ns, attr.size, None, state=state_of(attr) or "")

    def _is_same_state(self, old: InodeRow, attr: Attributes) -> bool:
        """Of two files of the same size and time. A linked one is another than a copy of its bytes."""
        if self._is_linked(old):
            return False
        state = state_of(attr)
        if state is None:
            return old[MTIME] + SAME_TICK_NS < old[CTIME]
        return bool(state) and (STATE, state.encode()) in self._index.stored_content(old[INO])[1]

    def _may_stay(self, file: _File, old: InodeRow, mode: int, mtime_ns: int) -> bool:
        """Whether the base's inode may stand for the file: one with several names only unaltered,
        and only for one file of the source."""
        if old[NLINK] < 2:
            return True
        return (stat.S_IMODE(old[MODE]), old[MTIME]) == (mode, mtime_ns) and old[INO] not in self._claimed

    def _settle(self, left: int) -> None:
        """Puts what was found into the change set, in order, until no more than `left` waits."""
        while len(self._pending) > left:
            found = self._pending.popleft()
            if isinstance(found, _Directory):
                self._put_directory(found)
            elif found.known is not None:
                self._put_file(found, found.known)
            elif found.reading is not None:
                self._put_file(found, found.reading())
            else:
                self._put_link(found)

    def _put_directory(self, directory: _Directory) -> None:
        if directory.entries and directory.base is not None:
            self._changes.touch(directory.base, mtime=not directory.is_own)
        self._changes.put_entries(directory.ino, directory.entries)

    def _put_link(self, file: _File) -> None:
        """Another name of a file that was put before, or has vanished under that name."""
        known = self._linked[file.attr.ino]
        if known == 0:
            self._put_file(file, self._read(file))
            return
        self._counted(file.attr.size)
        if self._stamps is not None:
            self._stamps.take_link(file.path, file.attr)
        self._name_known(file.directory, file.name, known, file.base)

    def _name_known(self, directory: _Directory, name: bytes, known: InodeRow | int, old: InodeRow | None) -> None:
        """known: a new inode, or one of the base, which may have the name already."""
        if isinstance(known, int):
            self._name(directory, name, known, old)
        elif old is None or old[INO] != known[INO]:
            self._name(directory, name, known[INO], old, known)

    def _put_file(self, file: _File, read: Read | None) -> None:
        if read is None:
            self._put_vanished(file)
            return
        self._counted(read.size)
        old = file.base
        self._take_read(file, read)
        if file.link is not None:
            self._put_linked(file, file.link, read)
            return
        if old is not None and self._stays(file, old, read):
            self._changes.set_attributes(old, mode=self._mode(old, read.mode), mtime_ns=read.mtime_ns)
            self._set_state(old, read.state)
            self.done.unchanged += 1
            if old[NLINK] > 1:
                self._claimed.add(old[INO])
            if file.attr.nlink > 1 and not read.is_other:
                self._linked[file.attr.ino] = old
            return
        if read.rows is None:  # its inode has come to stand for another file meanwhile
            read = self._read(file)
            if read is None:
                self._put_vanished(file)
                return
            self._take_read(file, read)
        rows = read.rows or []
        ino = self._changes.make_file(
            file.directory.ino,
            mode=read.mode,
            mtime_ns=read.mtime_ns,
            size=read.size,
            mapped_bytes=sum(row[1] for row in rows),
        )
        self.contents.put(ino, 0, rows)
        if read.state:
            self._changes.set_xattrs(ino, [(STATE, read.state.encode())])
        self._name(file.directory, file.name, ino, old)
        if file.attr.nlink > 1 and not read.is_other:
            self._linked[file.attr.ino] = ino

    def _put_vanished(self, file: _File) -> None:
        """It was there when its directory was listed, and is not in the source any more."""
        if self._plan.delete and file.base is not None:
            self._remove(file.directory, file.name, file.base)

    def _put_linked(self, file: _File, link: Link, read: Read) -> None:
        old = file.base
        if (
            old is not None
            and self._index.link(old[INO]) == link
            and self._may_stay(file, old, read.mode, read.mtime_ns)
        ):
            self._changes.set_attributes(old, mode=read.mode, mtime_ns=read.mtime_ns)
            self.done.unchanged += 1
            known: InodeRow | int = old
            if old[NLINK] > 1:
                self._claimed.add(old[INO])
        else:
            known = self._changes.make_file(
                file.directory.ino, mode=read.mode, mtime_ns=read.mtime_ns, size=read.size, mapped_bytes=read.size
            )
            self._changes.link(known, link)
            self._name(file.directory, file.name, known, old)
        if file.attr.nlink > 1:
            self._linked[file.attr.ino] = known

    def _is_linked(self, old: InodeRow) -> bool:
        """Such a file is another one than a copy of the same bytes."""
        link = self._index.link(old[INO])
        return link is not None and link.is_current

    def _set_state(self, old: InodeRow, state: str) -> None:
        xattrs = self._index.stored_content(old[INO])[1] if state else []
        if state and (STATE, state.encode()) not in xattrs:
            others = [each for each in xattrs if each[0] != STATE]
            self._changes.set_xattrs(old, [*others, (STATE, state.encode())])

    def _take_read(self, file: _File, read: Read) -> None:
        if self._stamps is not None:
            self._stamps.take_file(file.path, file.attr, read.stamp)

    def _mode(self, old: InodeRow, mode: int) -> int:
        """The one it gets: a copy has no set-id bits, and takes none away."""
        is_same = self._stamps is not None and old[MODE] & KEPT_BITS == mode
        return stat.S_IMODE(old[MODE]) if is_same else mode

    def _stays(self, file: _File, old: InodeRow, read: Read) -> bool:
        if not stat.S_ISREG(old[MODE]) or not self._may_stay(file, old, read.mode, read.mtime_ns):
            return False
        if read.rows is None:
            return True
        if self._is_linked(old):
            return False
        return old[SIZE] == read.size and _shown(self._index.stored_content(old[INO])[0]) == _shown(read.rows)

    def _name(
        self, directory: _Directory, name: bytes, ino: int, old: InodeRow | None, base: InodeRow | None = None
    ) -> None:
        directory.entries.append((name, ino))
        self._changes.gain(ino, base)
        if old is not None:
            self._drop(directory, old)

    def _counted(self, size: int) -> None:
        self.done.files += 1
        self.done.bytes += size
        self._count.file_done()

    def _read(self, file: _File) -> Read | None:
        """By a helper, or where the file has to be read after all."""
        return self._reader.read(file.path, file.attr, file.base_ino)

    def _is_excluded(self, path: bytes, attr: Attributes | InodeRow) -> bool:
        mode = attr[MODE] if isinstance(attr, tuple) else attr.mode
        relative = path[len(self._plan.at) :].lstrip(b"/")
        return self._plan.excluded(relative + b"/" if stat.S_ISDIR(mode) else relative)


def _shown(rows: Iterable[ExtentRow]) -> list[tuple[int, int, bytes, int]]:
    """Offset, length, chunk and skip of each: the same content, wherever its chunks lie."""
    return [(row[0], row[1], bytes(row[2]), row[7]) for row in rows]
