"""The members of an archive as a tree of files: the tree that unpacking into an empty directory
gives.

    "/a", "./a", "a//b"     a, a, a/b: as tar and unzip name them
    a/b without a           a is a directory with 0755 and the time of its newest member
    the same path twice     the later member; a directory keeps its entries
    a hard link             another name of the file that an earlier member has made

Members that cannot be unpacked, or not within the directory, are refused: "..", names that no file
can have, members below a link or a file, a file in place of a directory that has entries, a hard
link whose target does not come before it. Excluded members, and those outside of the imported part,
are skipped before these checks. In memory: some 500 bytes a member.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING

from cowfs.base.errors import InvalidInputError
from cowfs.base.fast_dataclass import dataclass
from cowfs.store.origin.archive import Member
from cowfs.transfer.copying import KEPT_BITS
from cowfs.transfer.upload.upload_plan import is_left_out, nothing_excluded
from cowfs.transfer.upload.upload_reading import Read

if TYPE_CHECKING:
    from cowfs.index import ExtentRow

NAME_BYTES = 255
DIRECTORY_MODE = stat.S_IFDIR | 0o755
_LEAVE_OUT = "Leave it out (--exclude, exclude=), or unpack the archive with another program and upload that."


@dataclass
class ArchiveAttr:
    """One inode. nlink: its number of names. target: of a link. is_own: a directory that has its
    own member. rows: of a file, once it is stored."""

    mode: int
    mtime_ns: int
    ino: int
    size: int = 0
    nlink: int = 1
    target: bytes = b""
    is_own: bool = True
    rows: list[ExtentRow] | None = None

    def read(self) -> Read:
        """What a file becomes in the version."""
        assert self.rows is not None, "the archive was read to its end"
        return Read(self.mode & KEPT_BITS, self.mtime_ns, self.size, self.rows)


class ArchiveNames:
    """url: of the archive, for messages. root: the part to import; b"": all. excluded: as in
    `UploadPlan`. Paths are relative to root; b"" is the root itself: a directory, or the one
    file."""

    def __init__(self, url: str, root: bytes, excluded: Callable[[bytes], bool]) -> None:
        self._url = url
        self._root = root
        self._excluded = excluded
        self._inodes = 1
        self._top = ArchiveAttr(DIRECTORY_MODE, 0, 1, is_own=False)
        self._entries: dict[bytes, dict[bytes, ArchiveAttr]] = {b"": {}}  # of each directory
        self.is_empty = True

    # -- the tree

    def stat(self, path: bytes) -> ArchiveAttr:
        found = self._find(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path))
        return found

    def list(self, path: bytes) -> list[tuple[bytes, ArchiveAttr]]:
        """Sorted by name."""
        return sorted(self._entries[path].items(), key=lambda entry: entry[0])

    def _find(self, path: bytes) -> ArchiveAttr | None:
        if not path:
            return self._top
        above, _, name = path.rpartition(b"/")
        return self._entries.get(above, {}).get(name)

    # -- adding

    def add(self, member: Member) -> ArchiveAttr | None:
        """Adds a member. Returns the file whose contents it brings; None if no contents are needed.
        InvalidInputError: it cannot be imported."""
        path = self._relative(member.path)
        is_directory = stat.S_ISDIR(member.mode)
        if path is None:
            return None
        self.is_empty = False
        if self._is_left_out(path, is_directory):
            return None
        if member.fault:
            raise self._refuse(member, member.fault)
        self._check_path(member, path)
        if member.is_hard_link:
            self._add_hard_link(member, path)
            return None
        if is_directory:
            self._add_directory(member, path)
            return None
        self._inodes += 1
        attr = ArchiveAttr(member.mode, member.mtime_ns, self._inodes, member.size, target=member.target)
        self._put(member, path, attr)
        return attr if stat.S_ISREG(member.mode) else None

    def _relative(self, path: bytes) -> bytes | None:
        """Makes the path relative to the root; None: it is outside."""
        if not self._root or path == self._root:
            return path if not self._root else b""
        return path.removeprefix(self._root + b"/") if path.startswith(self._root + b"/") else None

    def _is_left_out(self, path: bytes, is_directory: bool) -> bool:
        if self._excluded is nothing_excluded or not path:
            return False
        return is_left_out(self._excluded, path + b"/" if is_directory else path)

    def _check_path(self, member: Member, path: bytes) -> None:
        for part in path.split(b"/"):
            if part == b".." or len(part) > NAME_BYTES or b"\0" in part:
                raise self._refuse(member, "has a path that no file can have")

    def _add_directory(self, member: Member, path: bytes) -> None:
        attr = self._find(path)
        if attr is None or not stat.S_ISDIR(attr.mode):
            self._inodes += 1
            attr = ArchiveAttr(member.mode, member.mtime_ns, self._inodes)
            self._put(member, path, attr)
            self._entries[path] = {}
        attr.mode, attr.mtime_ns, attr.is_own = member.mode, member.mtime_ns, True

    def _add_hard_link(self, member: Member, path: bytes) -> None:
        target = self._relative(member.target)
        attr = self._find(target) if target is not None else None
        if attr is None or stat.S_ISDIR(attr.mode):
            name = os.fsdecode(member.target)
            raise self._refuse(member, f"is a hard link to {name!r}, which does not come before it, or is not imported")
        if self._find(path) is not attr:
            attr.nlink += 1
            self._put(member, path, attr)

    def _put(self, member: Member, path: bytes, attr: ArchiveAttr) -> None:
        """Gives the member the name, unless a directory with entries has it."""
        old = self._find(path)
        if old is not None and stat.S_ISDIR(old.mode):
            if self._entries[path]:
                raise self._refuse(member, "would replace a directory that has entries")
            del self._entries[path]
        if not path:
            self._top = attr
            return
        above, _, name = path.rpartition(b"/")
        siblings = self._directory(member, above)
        if old is not None:
            old.nlink -= 1
        siblings[name] = attr

    def _directory(self, member: Member, path: bytes) -> dict[bytes, ArchiveAttr]:
        """The entries of the directory; it and its parents are created where they are missing."""
        at, attr = b"", self._top
        for name in [b"", *path.split(b"/")] if path else [b""]:
            if name:
                siblings = self._entries[at]
                at = at + b"/" + name if at else name
                if name not in siblings:
                    self._inodes += 1
                    siblings[name] = ArchiveAttr(DIRECTORY_MODE, 0, self._inodes, is_own=False)
                    self._entries[at] = {}
                attr = siblings[name]
            if not stat.S_ISDIR(attr.mode):
                raise self._refuse(member, f"is below {os.fsdecode(at)!r}, which is not a directory")
            if not attr.is_own:
                attr.mtime_ns = max(attr.mtime_ns, member.mtime_ns)
        return self._entries[at]

    def _refuse(self, member: Member, fault: str) -> InvalidInputError:
        name = os.fsdecode(member.path)
        return InvalidInputError(
            f"{self._url}: {name!r} {fault}", hint=_LEAVE_OUT, details={"url": self._url, "member": name}
        )
