"""Turns the results of an upload into changes of the volume: which inodes still stand for files of
the source, which names they get, and which are removed.

An inode of the volume stands for a source file that is not read because it looks the same, or that
was read and has the same content. An inode with several names stands only for one file that is
unchanged in everything. In a copy, an inode of another name stands for a renamed file with the same
content (`CopyStamps.path_before`), unless the inode of the new name has that content as well.
Everything else gets a new inode, renamed directories included. Source files and links with several
names are looked up by the source's inode numbers.

Not thread-safe: `tree_upload` passes its results in the order of the walk.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import TYPE_CHECKING

from cowfs.base import clock
from cowfs.base.fast_dataclass import dataclass
from cowfs.index import InodeRow
from cowfs.native.chunks import FileRows
from cowfs.transfer.copying import KEPT_BITS, Attributes
from cowfs.transfer.imports.object_tree import STATE, state_of
from cowfs.transfer.upload.upload_plan import Uploaded, UploadPlan
from cowfs.transfer.upload.upload_reading import Count, Read
from cowfs.version.publish.tree_changes import CTIME, INO, MODE, MTIME, NLINK, SIZE, TARGET, TreeChanges

if TYPE_CHECKING:
    from cowfs.index import ExtentRow, Index, Link

SAME_TICK_NS = 2_000_000_000  # clocks of file servers differ a little from ours


@dataclass
class Directory:
    """A directory of the volume during the walk. base: its row, None for a new one. is_own: its
    time is set from the source instead of following its entries."""

    ino: int
    base: InodeRow | None
    entries: list[tuple[bytes, int]] = field(default_factory=list)
    is_own: bool = False


@dataclass
class File:
    """A source file on its way into the change set."""

    path: bytes
    name: bytes
    attr: Attributes
    directory: Directory
    base: InodeRow | None  # of the same name
    moved: InodeRow | None = None  # of another name: the volume's row of this file, apparently
    link: Link | None = None  # the file need not be read
    known: Read | None = None  # the file need not be read
    reading: Callable[[], Read | None] | None = None  # None and not known: another name of an earlier file

    @property
    def base_ino(self) -> int | None:
        """The inode of the volume's version of this file, or of the file with its name."""
        row = self.moved or self.base
        return row[INO] if row is not None and stat.S_ISREG(row[MODE]) else None


class UploadChanges:
    """changes: of the volume's tree. contents: of new inodes. done: counts. read: reads a file that
    has to be read after all. times_tell: whether a file's times show every change. is_purged:
    whether an inode of the volume has lost bytes, so that equal ones have to be stored again."""

    def __init__(
        self,
        index: Index,
        plan: UploadPlan,
        count: Count,
        read: Callable[[File], Read | None],
        times_tell: Callable[[File], bool],
        is_purged: Callable[[int], bool],
    ) -> None:
        self.changes = TreeChanges(index, owner=plan.owner, now_ns=clock.now_ns())
        self.contents = FileRows()
        self.done = Uploaded()
        self._index = index
        self._deletes = plan.delete
        self._stamps = plan.stamps
        self._checksum = plan.checksum
        self._earlier = plan.earlier
        self._count = count
        self._read = read
        self._times_tell = times_tell
        self._is_purged = is_purged
        self._named: dict[int, InodeRow | int] = {}  # source inode with several names → the one here
        self._claimed: set[int] = set()  # base inodes that stand for a source inode, and might for another

    def is_first_name(self, attr: Attributes) -> bool:
        """Whether this is the first name found of a source inode."""
        if attr.nlink < 2:
            return True
        is_first = attr.ino not in self._named
        self._named.setdefault(attr.ino, 0)
        return is_first

    def remove(self, directory: Directory, name: bytes, row: InodeRow) -> None:
        """Removes a name of the base, and everything below it."""
        directory.entries.append((name, 0))
        self._drop(directory, row)
        self.done.removed += 1

    def _drop(self, directory: Directory, row: InodeRow) -> None:
        """Drops the old inode's name."""
        if stat.S_ISDIR(row[MODE]):
            assert directory.base is not None
            self.done.removed += self.changes.remove_tree(directory.base, row)
        else:
            self.changes.lose(row)

    def put_symlink(
        self, path: bytes, target: bytes, attr: Attributes, directory: Directory, old: InodeRow | None
    ) -> None:
        self.done.symlinks += 1
        known = self._named.get(attr.ino) if attr.nlink > 1 else None
        if known is None and (base := self._same_symlink(path, target, attr, old)) is not None:
            self._claimed.add(base[INO])
            known = base
        elif known is None:
            known = self.changes.make_symlink(directory.ino, target, mtime_ns=attr.mtime_ns)
        if attr.nlink > 1:
            self._named[attr.ino] = known
        self._name_known(directory, path.rpartition(b"/")[2], known, old)

    def _same_symlink(self, path: bytes, target: bytes, attr: Attributes, old: InodeRow | None) -> InodeRow | None:
        """The base inode that stands for the link, if there is one."""

        def is_same(row: InodeRow) -> bool:
            wanted = (stat.S_IFLNK, target, attr.mtime_ns)
            return (stat.S_IFMT(row[MODE]), row[TARGET], row[MTIME]) == wanted and row[INO] not in self._claimed

        if old is not None and is_same(old):
            return old
        moved = self._find_moved(path, attr)
        return moved if moved is not None and is_same(moved) else None

    def _find_moved(self, path: bytes, attr: Attributes) -> InodeRow | None:
        """The base inode of another name that is apparently this file or link, renamed."""
        before = self._stamps.path_before(path, attr) if self._stamps is not None else None
        if before is None:
            return None
        ino = self._index.find(before)
        return self._index.inode(ino) if ino is not None else None

    def find_known(self, file: File) -> Read | None:
        """The base's version of this file if it apparently has not changed; then it is not read."""
        old, attr = file.base, file.attr
        has_stamp = self._stamps is not None and self._stamps.is_same(file.path, attr)  # also of a new one: it learns
        if not has_stamp:
            file.moved = self._find_moved(file.path, attr)
        if old is None or not stat.S_ISREG(old[MODE]) or self._checksum:
            return None
        if self._stamps is not None:
            is_same = has_stamp and self._times_tell(file)
            known = Read(stat.S_IMODE(old[MODE]), old[MTIME], old[SIZE], None)
        else:
            is_same = (old[SIZE], old[MTIME]) == (attr.size, attr.mtime_ns) and self._is_same_state(old, attr)
            is_same = is_same and self._times_tell(file)
            is_same = is_same and not (self._earlier is not None and self._earlier.has_changed(file.path, attr))
            is_same = is_same and not self._is_purged(old[INO])
            known = self.as_found(attr)
        return known if is_same and self._may_stay(file, old, known.mode, known.mtime_ns) else None

    def as_found(self, attr: Attributes) -> Read:
        """The result for a file that is not read."""
        return Read(attr.mode & KEPT_BITS, attr.mtime_ns, attr.size, None, state=state_of(attr) or "")

    def _is_same_state(self, old: InodeRow, attr: Attributes) -> bool:
        """Whether two files of the same size and time have the same state. A linked file differs
        from a copy of its bytes."""
        if self._is_linked(old):
            return False
        state = state_of(attr)
        if state is None:
            return old[MTIME] + SAME_TICK_NS < old[CTIME]
        return bool(state) and (STATE, state.encode()) in self._index.read_stored_content(old[INO])[1]

    def _may_stay(self, file: File, old: InodeRow, mode: int, mtime_ns: int) -> bool:
        """Whether the base's inode may stand for the file: for one source file only, and one with
        several names only if unchanged."""
        if old[INO] in self._claimed:
            return False
        return old[NLINK] < 2 or (stat.S_IMODE(old[MODE]), old[MTIME]) == (self._mode(file, old, mode), mtime_ns)

    def put_directory(self, directory: Directory) -> None:
        if directory.entries and directory.base is not None:
            self.changes.touch(directory.base, mtime=not directory.is_own)
        self.changes.put_entries(directory.ino, directory.entries)

    def put_link(self, file: File) -> None:
        """Puts another name of a file that was put before, or has vanished under that name."""
        known = self._named[file.attr.ino]
        if known == 0:
            self.put_file(file, self._read(file))
            return
        self._count_file(file.attr.size)
        if self._stamps is not None:
            self._stamps.take_link(file.path, file.attr)
        self._name_known(file.directory, file.name, known, file.base)

    def _name_known(self, directory: Directory, name: bytes, known: InodeRow | int, old: InodeRow | None) -> None:
        """known: a new inode, or one of the base, which may have the name already."""
        if isinstance(known, int):
            self._name(directory, name, known, old)
        elif old is None or old[INO] != known[INO]:
            self._name(directory, name, known[INO], old, known)

    def put_file(self, file: File, read: Read | None) -> None:
        if read is None:
            self.put_vanished(file.directory, file.name, file.base)
            return
        self._count_file(read.size)
        old = file.base
        self._take_read(file, read)
        if file.link is not None:
            self._put_linked(file, file.link, read)
            return
        if (known := self._staying(file, read)) is not None:
            self._name_known(file.directory, file.name, known, old)
            self.changes.set_attributes(known, mode=self._mode(file, known, read.mode), mtime_ns=read.mtime_ns)
            self._set_state(known, read.state)
            self.done.unchanged += 1
            if known[NLINK] > 1 or read.rows is not None:
                self._claimed.add(known[INO])
            if file.attr.nlink > 1 and not read.is_other:
                self._named[file.attr.ino] = known
            return
        if read.rows is None:  # its inode stands for another file by now
            read = self._read(file)
            if read is None:
                self.put_vanished(file.directory, file.name, file.base)
                return
            self._take_read(file, read)
        rows = read.rows or []
        ino = self.changes.make_file(
            file.directory.ino,
            mode=read.mode
            if old is None or not stat.S_ISREG(old[MODE])
            else self._mode(file, old, read.mode) & KEPT_BITS,
            mtime_ns=read.mtime_ns,
            size=read.size,
            mapped_bytes=sum(row[1] for row in rows),
        )
        self.contents.put(ino, 0, rows)
        if read.state:
            self.changes.set_xattrs(ino, [(STATE, read.state.encode())])
        self._name(file.directory, file.name, ino, old)
        if file.attr.nlink > 1 and not read.is_other:
            self._named[file.attr.ino] = ino

    def put_vanished(self, directory: Directory, name: bytes, old: InodeRow | None) -> None:
        """Handles an entry that has vanished from the source since its directory was listed."""
        if self._deletes and old is not None:
            self.remove(directory, name, old)

    def _put_linked(self, file: File, link: Link, read: Read) -> None:
        old = file.base
        if (
            old is not None
            and self._index.link(old[INO]) == link
            and self._may_stay(file, old, read.mode, read.mtime_ns)
        ):
            self.changes.set_attributes(old, mode=read.mode, mtime_ns=read.mtime_ns)
            self.done.unchanged += 1
            known: InodeRow | int = old
            if old[NLINK] > 1:
                self._claimed.add(old[INO])
        else:
            known = self.changes.make_file(
                file.directory.ino, mode=read.mode, mtime_ns=read.mtime_ns, size=read.size, mapped_bytes=read.size
            )
            self.changes.link(known, link)
            self._name(file.directory, file.name, known, old)
        if file.attr.nlink > 1:
            self._named[file.attr.ino] = known

    def _is_linked(self, old: InodeRow) -> bool:
        """Whether the file is linked, and so differs from a copy of the same bytes."""
        link = self._index.link(old[INO])
        return link is not None and link.is_current

    def _set_state(self, old: InodeRow, state: str) -> None:
        xattrs = self._index.read_stored_content(old[INO])[1] if state else []
        if state and (STATE, state.encode()) not in xattrs:
            others = [each for each in xattrs if each[0] != STATE]
            self.changes.set_xattrs(old, [*others, (STATE, state.encode())])

    def _take_read(self, file: File, read: Read) -> None:
        if self._stamps is not None:
            self._stamps.take_file(file.path, file.attr, read.stamp)
        if self._earlier is not None:
            self._earlier.take(file.path, file.attr, read.stamp)

    def mode(self, path: bytes | None, old: InodeRow, mode: int) -> int:
        """The mode that the file gets. A copy has no set-id bits and removes none, nor any that its
        file system does not keep. path: the base's path of the file; None if it was renamed."""
        if self._stamps is None:
            return mode
        is_same = old[MODE] & KEPT_BITS == mode or (path is not None and self._stamps.has_mode(path, mode))
        return stat.S_IMODE(old[MODE]) if is_same else mode

    def _mode(self, file: File, old: InodeRow, mode: int) -> int:
        return self.mode(file.path if old is file.base else None, old, mode)

    def _staying(self, file: File, read: Read) -> InodeRow | None:
        """The base inode that stands for the file."""
        if file.base is not None and self._stays(file, file.base, read):
            return file.base
        # Only if the file found is the one that was looked for, not another that has taken its
        # name.
        is_found = read.stamp is not None and (read.stamp.ino, read.mtime_ns) == (file.attr.ino, file.attr.mtime_ns)
        return file.moved if file.moved is not None and is_found and self._stays(file, file.moved, read) else None

    def _stays(self, file: File, old: InodeRow, read: Read) -> bool:
        if not stat.S_ISREG(old[MODE]) or not self._may_stay(file, old, read.mode, read.mtime_ns):
            return False
        if read.rows is None:
            return True
        if self._is_linked(old):
            return False
        before = _content_key(self._index.read_stored_content(old[INO])[0])
        return old[SIZE] == read.size and before == _content_key(read.rows) and not self._is_purged(old[INO])

    def _name(
        self, directory: Directory, name: bytes, ino: int, old: InodeRow | None, base: InodeRow | None = None
    ) -> None:
        directory.entries.append((name, ino))
        self.changes.gain(ino, base)
        if old is not None:
            self._drop(directory, old)

    def _count_file(self, size: int) -> None:
        self.done.files += 1
        self.done.bytes += size
        self._count.file_done()


def _content_key(rows: Iterable[ExtentRow]) -> list[tuple[int, int, bytes, int]]:
    """Offset, length, chunk and skip of each: equal for the same content, in whatever packs."""
    return [(row[0], row[1], bytes(row[2]), row[7]) for row in rows]
