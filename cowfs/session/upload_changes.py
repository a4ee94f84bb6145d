"""What becomes of what an upload finds, in the volume: which of its inodes stand for files of the
source still, what takes which name, and what goes.

An inode of the volume stands for a file of the source that is not read, since it looks the same, or
that was read and has the same content; one with several names only for one file that is altered in
nothing. In a copy, one of another name stands for a file that was renamed, which has the same
content (`CopyStamps.path_before`), unless the inode of the new name has it as well. Everything else
is a new inode, a renamed directory too. Files with several names in the source, or links, are
looked up by the source's inode numbers.

Not thread-safe: `tree_upload` puts what it has found in the order in which it was found.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import TYPE_CHECKING

from cowfs import clock
from cowfs.index import InodeRow
from cowfs.native.chunks import FileRows
from cowfs.native.constants import ROOT_INO
from cowfs.session.copying import KEPT_BITS, Attributes
from cowfs.session.object_tree import STATE, state_of
from cowfs.session.upload_plan import Uploaded, UploadPlan
from cowfs.session.upload_reading import Count, Read
from cowfs.values import dataclass
from cowfs.version.tree_changes import CTIME, INO, MODE, MTIME, NLINK, SIZE, TARGET, TreeChanges

if TYPE_CHECKING:
    from cowfs.index import ExtentRow, Index, Link

SAME_TICK_NS = 2_000_000_000  # clocks of file servers differ a little from ours


@dataclass
class Directory:
    """One of the volume that is gone through. base: its row, None for a new one. mtime: whether
    its time follows its entries, or is set from the source."""

    ino: int
    base: InodeRow | None
    entries: list[tuple[bytes, int]] = field(default_factory=list)
    is_own: bool = False


@dataclass
class File:
    """A file that was found, on its way into the change set."""

    path: bytes
    name: bytes
    attr: Attributes
    directory: Directory
    base: InodeRow | None  # of the same name
    moved: InodeRow | None = None  # of another name: what the volume has of this file, by all appearances
    link: Link | None = None  # nothing has to be read
    known: Read | None = None  # nothing has to be read
    reading: Callable[[], Read | None] | None = None  # neither: another name of a file that was found before

    @property
    def base_ino(self) -> int | None:
        """Of the file that the volume has of it, or in its place."""
        row = self.moved or self.base
        return row[INO] if row is not None and stat.S_ISREG(row[MODE]) else None


class UploadChanges:
    """changes: of the volume's tree. contents: of new inodes. done: what was found and put. read: a
    file that has to be read after all. times_tell: whether those of a file show every change."""

    def __init__(
        self,
        index: Index,
        plan: UploadPlan,
        count: Count,
        read: Callable[[File], Read | None],
        times_tell: Callable[[File], bool],
    ) -> None:
        self.changes = TreeChanges(index, owner=plan.owner, now_ns=clock.now_ns())
        self.contents = FileRows()
        self.done = Uploaded()
        self._index = index
        self._deletes = plan.delete
        self._stamps = plan.stamps
        self._count = count
        self._read = read
        self._times_tell = times_tell
        self._named: dict[int, InodeRow | int] = {}  # source inode with several names → the one here
        self._claimed: set[int] = set()  # base inodes that stand for a source inode, and might for another

    def is_first_name(self, attr: Attributes) -> bool:
        """Whether nothing was found yet of a source inode."""
        if attr.nlink < 2:
            return True
        is_first = attr.ino not in self._named
        self._named.setdefault(attr.ino, 0)
        return is_first

    def remove(self, directory: Directory, name: bytes, row: InodeRow) -> None:
        """A name of the base, and all below it."""
        directory.entries.append((name, 0))
        self._drop(directory, row)
        self.done.removed += 1

    def _drop(self, directory: Directory, row: InodeRow) -> None:
        """What the name led to loses it."""
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
        """The base inode that stands for it."""

        def is_same(row: InodeRow) -> bool:
            wanted = (stat.S_IFLNK, target, attr.mtime_ns)
            return (stat.S_IFMT(row[MODE]), row[TARGET], row[MTIME]) == wanted and row[INO] not in self._claimed

        if old is not None and is_same(old):
            return old
        moved = self._moved(path, attr)
        return moved if moved is not None and is_same(moved) else None

    def _moved(self, path: bytes, attr: Attributes) -> InodeRow | None:
        """What the base has under another name of the file, or link, that has this one now, by all
        appearances."""
        before = self._stamps.path_before(path, attr) if self._stamps is not None else None
        if before is None:
            return None
        ino: int | None = ROOT_INO
        for name in before.split(b"/"):
            ino = self._index.entry(ino, name) if ino is not None else None
        return self._index.inode(ino) if ino is not None else None

    def known(self, file: File) -> Read | None:
        """What the base has of this file, by all appearances: then it is not read."""
        old, attr = file.base, file.attr
        has_stamp = self._stamps is not None and self._stamps.is_same(file.path, attr)  # also of a new one: it learns
        if not has_stamp:
            file.moved = self._moved(file.path, attr)
        if old is None or not stat.S_ISREG(old[MODE]):
            return None
        if self._stamps is not None:
            is_same = has_stamp
            known = Read(stat.S_IMODE(old[MODE]), old[MTIME], old[SIZE], None)
        else:
            is_same = (old[SIZE], old[MTIME]) == (attr.size, attr.mtime_ns) and self._is_same_state(old, attr)
            is_same = is_same and self._times_tell(file)
            known = self.as_found(attr)
        return known if is_same and self._may_stay(file, old, known.mode, known.mtime_ns) else None

    def as_found(self, attr: Attributes) -> Read:
        """A file that is not read."""
        return Read(attr.mode & KEPT_BITS, attr.mtime_ns, attr.size, None, state=state_of(attr) or "")

    def _is_same_state(self, old: InodeRow, attr: Attributes) -> bool:
        """Of two files of the same size and time. A linked one is another than a copy of its
        bytes."""
        if self._is_linked(old):
            return False
        state = state_of(attr)
        if state is None:
            return old[MTIME] + SAME_TICK_NS < old[CTIME]
        return bool(state) and (STATE, state.encode()) in self._index.stored_content(old[INO])[1]

    def _may_stay(self, file: File, old: InodeRow, mode: int, mtime_ns: int) -> bool:
        """Whether the base's inode may stand for the file: for one file of the source only; one
        with several names only unaltered."""
        if old[INO] in self._claimed:
            return False
        return old[NLINK] < 2 or (stat.S_IMODE(old[MODE]), old[MTIME]) == (self._mode(file, old, mode), mtime_ns)

    def put_directory(self, directory: Directory) -> None:
        if directory.entries and directory.base is not None:
            self.changes.touch(directory.base, mtime=not directory.is_own)
        self.changes.put_entries(directory.ino, directory.entries)

    def put_link(self, file: File) -> None:
        """Another name of a file that was put before, or has vanished under that name."""
        known = self._named[file.attr.ino]
        if known == 0:
            self.put_file(file, self._read(file))
            return
        self._counted(file.attr.size)
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
        self._counted(read.size)
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
        if read.rows is None:  # its inode has come to stand for another file meanwhile
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
        """It was there when its directory was listed, and is not in the source any more."""
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
        """Such a file is another one than a copy of the same bytes."""
        link = self._index.link(old[INO])
        return link is not None and link.is_current

    def _set_state(self, old: InodeRow, state: str) -> None:
        xattrs = self._index.stored_content(old[INO])[1] if state else []
        if state and (STATE, state.encode()) not in xattrs:
            others = [each for each in xattrs if each[0] != STATE]
            self.changes.set_xattrs(old, [*others, (STATE, state.encode())])

    def _take_read(self, file: File, read: Read) -> None:
        if self._stamps is not None:
            self._stamps.take_file(file.path, file.attr, read.stamp)

    def mode(self, path: bytes | None, old: InodeRow, mode: int) -> int:
        """The one it gets: a copy has no set-id bits, and takes none away; nor any that its file
        system does not keep. path: where the base has it; None: under another name than now."""
        if self._stamps is None:
            return mode
        is_same = old[MODE] & KEPT_BITS == mode or (path is not None and self._stamps.has_mode(path, mode))
        return stat.S_IMODE(old[MODE]) if is_same else mode

    def _mode(self, file: File, old: InodeRow, mode: int) -> int:
        return self.mode(file.path if old is file.base else None, old, mode)

    def _staying(self, file: File, read: Read) -> InodeRow | None:
        """The base inode that stands for it."""
        if file.base is not None and self._stays(file, file.base, read):
            return file.base
        # Only of the file that was looked for, not of one that has taken its name meanwhile.
        is_found = read.stamp is not None and (read.stamp.ino, read.mtime_ns) == (file.attr.ino, file.attr.mtime_ns)
        return file.moved if file.moved is not None and is_found and self._stays(file, file.moved, read) else None

    def _stays(self, file: File, old: InodeRow, read: Read) -> bool:
        if not stat.S_ISREG(old[MODE]) or not self._may_stay(file, old, read.mode, read.mtime_ns):
            return False
        if read.rows is None:
            return True
        if self._is_linked(old):
            return False
        return old[SIZE] == read.size and _shown(self._index.stored_content(old[INO])[0]) == _shown(read.rows)

    def _name(
        self, directory: Directory, name: bytes, ino: int, old: InodeRow | None, base: InodeRow | None = None
    ) -> None:
        directory.entries.append((name, ino))
        self.changes.gain(ino, base)
        if old is not None:
            self._drop(directory, old)

    def _counted(self, size: int) -> None:
        self.done.files += 1
        self.done.bytes += size
        self._count.file_done()


def _shown(rows: Iterable[ExtentRow]) -> list[tuple[int, int, bytes, int]]:
    """Offset, length, chunk and skip of each: the same content, wherever its chunks lie."""
    return [(row[0], row[1], bytes(row[2]), row[7]) for row in rows]
