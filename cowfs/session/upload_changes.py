"""What becomes of what an upload finds, in the volume: which of its inodes stand for files of the
source still, what takes which name, and what goes.

An inode of the volume stands for a file of the source that is not read, since it looks the same, or
that was read and has the same content; one with several names only for one file that is altered in
nothing. Everything else is a new inode. Files with several names in the source, or links, are
looked up by the source's inode numbers.

Not thread-safe: `tree_upload` puts what it has found in the order in which it was found.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cowfs import clock
from cowfs.index import InodeRow
from cowfs.native.chunks import FileRows
from cowfs.session.copying import KEPT_BITS, Attributes
from cowfs.session.object_tree import STATE, state_of
from cowfs.session.upload_plan import Uploaded, UploadPlan
from cowfs.session.upload_reading import Count, Read
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
    link: Link | None = None  # nothing has to be read
    known: Read | None = None  # nothing has to be read
    reading: Callable[[], Read | None] | None = None  # neither: another name of a file that was found before

    @property
    def base_ino(self) -> int | None:
        """Of the file that the volume has there."""
        return self.base[INO] if self.base is not None and stat.S_ISREG(self.base[MODE]) else None


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
        self._claimed: set[int] = set()  # base inodes with several names that stand for a source inode

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
        self, name: bytes, target: bytes, attr: Attributes, directory: Directory, old: InodeRow | None
    ) -> None:
        self.done.symlinks += 1
        known = self._named.get(attr.ino) if attr.nlink > 1 else None
        if known is None and old is not None and self._is_same_symlink(old, target, attr):
            if old[NLINK] > 1:
                self._claimed.add(old[INO])
            known = old
        elif known is None:
            known = self.changes.make_symlink(directory.ino, target, mtime_ns=attr.mtime_ns)
        if attr.nlink > 1:
            self._named[attr.ino] = known
        self._name_known(directory, name, known, old)

    def _is_same_symlink(self, old: InodeRow, target: bytes, attr: Attributes) -> bool:
        return (
            stat.S_ISLNK(old[MODE])
            and (old[TARGET], old[MTIME]) == (target, attr.mtime_ns)
            and (old[NLINK] < 2 or old[INO] not in self._claimed)
        )

    def known(self, file: File) -> Read | None:
        """What the base has of this file, by all appearances: then it is not read."""
        old, attr = file.base, file.attr
        has_stamp = self._stamps is not None and self._stamps.is_same(file.path, attr)  # also of a new one: it learns
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
        """Whether the base's inode may stand for the file: one with several names only unaltered,
        and only for one file of the source."""
        if old[NLINK] < 2:
            return True
        return (stat.S_IMODE(old[MODE]), old[MTIME]) == (mode, mtime_ns) and old[INO] not in self._claimed

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
        if old is not None and self._stays(file, old, read):
            self.changes.set_attributes(old, mode=self.mode(old, read.mode), mtime_ns=read.mtime_ns)
            self._set_state(old, read.state)
            self.done.unchanged += 1
            if old[NLINK] > 1:
                self._claimed.add(old[INO])
            if file.attr.nlink > 1 and not read.is_other:
                self._named[file.attr.ino] = old
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
            mode=read.mode,
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

    def mode(self, old: InodeRow, mode: int) -> int:
        """The one it gets: a copy has no set-id bits, and takes none away."""
        is_same = self._stamps is not None and old[MODE] & KEPT_BITS == mode
        return stat.S_IMODE(old[MODE]) if is_same else mode

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
