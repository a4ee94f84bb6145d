"""Restores a path of a version into a volume that is in use, as uncommitted changes that its next
commit publishes.

    version's index, working index ──▶ version.restoring (decides, path by path)
      1. content     every new file is made in a staging directory at the root that no program can reach by name
      2. names       removed, deepest first; put in place, each by one rename; then attributes
      3. the kernel  drops its entries for those names and inodes (`invalidate`, by the caller)

Before step 2 an error leaves the volume unchanged; step 2 needs no store. Commits wait from the
comparison to the end of step 2, so a version has all of the restore or none. Programs that have a
replaced or removed file open keep it, as after `rename` and `unlink`.

A file whose content differs becomes a new file. It shares the ranges that the existing file already
has; the rest is fetched and staged here. Naming the version's chunks would not be enough:
uncommitted work must not depend on a version that may be pruned before the commit. The commit finds
the chunks in the store and stores nothing twice. Where only attributes differ, they are set in
place.

A kill may leave the staging directory, `.cowfs-restore-<8 hex>`. The working copy's state records
its name before it is created and until its removal is durable; the next opening of the volume
removes it (`remove_left`), so that no version contains it. A directory of such a name without a
record belongs to the user.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from typing import TYPE_CHECKING, Final

from cowfs.base import clock, log
from cowfs.base.errors import ConflictError, CorruptError, CowfsError
from cowfs.base.failpoints import hit
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import ChunkHash
from cowfs.control.messages import Restoration, Restored, RestoredPath
from cowfs.format.codec import Codec
from cowfs.native import Caller, Handle
from cowfs.session.files import Files
from cowfs.session.work_comparing import working_pair
from cowfs.store.packs import ChunkRequest, PackReader
from cowfs.version.differences import RDEV, UID, comparable_extents, find_inode
from cowfs.version.merge.merge_changes import becomes
from cowfs.version.merge.merge_states import TARGET_SIDE
from cowfs.version.merge.restoring import plan_restore
from cowfs.version.named_changes import join_path
from cowfs.version.names import quotas
from cowfs.version.publish.tree_changes import FLAGS, GID, HAS_XATTRS, INO, MODE, MTIME, NLINK, SIZE, TARGET

if TYPE_CHECKING:
    from cowfs.index import ExtentRow, InodeRow
    from cowfs.machine.working_copy import WorkingCopy
    from cowfs.session.session import Session
    from cowfs.version.merge.merge_states import Merged, Part, State

_log = log.get("mount")

APART = b".cowfs-restore-"
SHARED_FROM_BYTES = 256 << 10  # smaller files are fetched as a whole
BATCH_BYTES = 8 << 20
ACLS = frozenset([b"system.posix_acl_access", b"system.posix_acl_default"])
_ATIME: Final = 8


@dataclass
class Stale:
    """What the kernel may have cached and is no longer true: (directory, name) pairs and inodes.
    expect: called before the first change, with each path, the inode of its directory and its own,
    or 0."""

    names: set[tuple[int, bytes]] = field(default_factory=set)
    inodes: set[int] = field(default_factory=set)
    expect: Callable[[Iterable[tuple[bytes, int, int]]], None] = lambda _: None


def restore(session: Session, wanted: Restoration, stale: Stale) -> Restored:
    """stale is filled even if this raises. NotFoundError, ConflictError, InvalidInputError as for
    `restoring.plan_restore`; InvalidStateError: a file is linked."""
    path, to = os.fsencode(wanted.path), os.fsencode(wanted.to)
    if path.split(b"/")[0].startswith(APART) or to.split(b"/")[0].startswith(APART):
        raise ConflictError(f"{APART.decode()}… is reserved for running restores", hint="Give another path.")
    with working_pair(session, wanted.version) as (source, now, shared, _):
        merged = plan_restore(now, source, shared=shared, path=path, to=to, now_ns=clock.now_ns())
        told = tuple(RestoredPath("/" + os.fsdecode(each), what) for each, what in becomes(merged))
        if not wanted.dry_run and merged.paths:
            _Restoring(session, merged, path, to, stale).run()
    return Restored(session.base.version_id, told)


def find_path(session: Session, path: bytes) -> int:
    """The inode at a path. OSError, CowfsError: there is none, or it is not known."""
    return _files(session, _root()).stat(path).ino


def remove_left(session: Session, working_copy: WorkingCopy) -> None:
    """Removes the staging directories of killed restores, in a session that is not in use yet. An
    error is only logged, so that the volume still opens."""
    noted = working_copy.state.restoring
    if not noted:
        return
    files = _files(session, _root())
    try:
        for name in noted:
            with suppress(FileNotFoundError):
                _remove(files, name.encode())
                _log.warning("removed /%s from %s, left by a killed restore", name, session.volume)
        session.engine.sync()
        working_copy.forget_restores(noted)
    except (CowfsError, OSError) as error:
        _log.warning("could not remove the remains of a killed restore in %s: %s", session.volume, error)


class _Restoring:
    """One restore. It calls the engine as root, since owners and permissions are the version's."""

    def __init__(self, session: Session, merged: Merged, path: bytes, to: bytes, stale: Stale) -> None:
        assert session.writer is not None
        self._working_copy = session.writer.working_copy
        self._engine = session.engine
        self._caller = _root()
        self._files = _files(session, self._caller)
        self._volume = session.spec.volume
        self._packs = PackReader(session.store)
        self._merged = merged
        self._now, self._source = merged.sides
        self._path, self._to = path, to
        self._stale = stale
        self._apart = APART + clock.random_bytes(4).hex().encode()
        self._here = {each: find_inode(self._now, each) for each in merged.paths}
        self._wanted = {
            each: state for each, state in merged.paths.items() if state is not None and not _is_touched(state)
        }
        self._names_gone = Counter(row[INO] for row in self._here.values() if row is not None)
        self._missing: list[tuple[bytes, ExtentRow]] = []
        self._missing_bytes = 0
        self._made: dict[bytes, bytes] = {}  # path → where its replacement was made
        self._by_source: dict[int, bytes] = {}  # inode of the version → where it was made, or a file with its content

    def run(self) -> None:
        try:
            self._restore()
        finally:
            self._forget_apart()

    def _restore(self) -> None:
        root = self._files.stat("")
        with self._directory_apart():
            with self._room_for_both():
                for path in sorted(self._wanted):
                    self._make(path, self._wanted[path])
                self._fetch()
                for path, made in self._made.items():
                    self._set_attributes(made, self._wanted[path])
            self._stale.expect(map(self._describe_before, self._here))
            hit("restore-made")
            for path in sorted(self._merged.paths, reverse=True):
                self._clear(path)
            hit("restore-cleared")
            for path in sorted(self._wanted):
                self._put(path, self._wanted[path])
        for path in sorted(self._wanted, reverse=True):
            if self._wanted[path].is_directory or path not in self._made:
                self._set_attributes(path, self._wanted[path])
        self._set_times_of_parents(root.mtime_ns)
        self._engine.sync()

    # -- content, in the staging directory

    @contextmanager
    def _room_for_both(self) -> Iterator[None]:
        """Excludes staged files from the quota until all are made; from then on programs get no new
        space until the replaced files are gone. NoSpaceError, OSError: the result would exceed the
        quota."""
        if (quota_bytes := self._engine.quota()) == quotas.NONE:
            yield
            return
        made: dict[int, int] = {}
        gone: dict[int, int] = {}
        for path, here in self._here.items():
            state = self._wanted.get(path)
            if state is not None and self._is_same_file(here, state.body):
                continue
            if here is not None and stat.S_ISREG(here[MODE]) and self._names_gone[here[INO]] >= here[NLINK]:
                gone[here[INO]] = here[SIZE]
            if state is not None and stat.S_ISREG(state.body.row[MODE]) and state.body.side != TARGET_SIDE:
                made[state.body.row[INO]] = state.body.row[SIZE]
        more_bytes = sum(made.values()) - sum(gone.values())
        used_bytes = self._engine.statfs()[0]
        quotas.check(self._volume, quota_bytes, used_bytes, used_bytes + more_bytes)
        self._engine.begin_apart(max(0, more_bytes))
        try:
            yield
        finally:
            self._engine.end_apart()

    @contextmanager
    def _directory_apart(self) -> Iterator[None]:
        self._working_copy.note_restore(self._apart.decode())
        self._files.mkdir(self._apart)
        self._files.chmod(self._apart, 0o700)
        try:
            yield
        finally:
            _remove(self._files, self._apart)
            self._stale.inodes.add(self._files.stat("").ino)

    def _forget_apart(self) -> None:
        """Forgets the staging directory if it is gone; otherwise the next opening looks for it."""
        with suppress(CowfsError, OSError):
            try:
                self._files.stat(self._apart)
            except FileNotFoundError:
                self._engine.sync()
                self._working_copy.forget_restores([self._apart.decode()])

    def _make(self, path: bytes, state: State) -> None:
        """Makes one file in the staging directory. Skips directories, which are made in place
        later, and files of which only attributes differ."""
        row, here = state.body.row, self._here[path]
        if state.is_directory or self._is_same_file(here, state.body):
            return
        made = join_path(self._apart, b"%d" % len(self._made))
        self._made[path] = made
        may_have_names = (
            row[NLINK] > 1 or state.body.side == TARGET_SIDE
        )  # the link count is then the volume's, not the version's
        if may_have_names and (first := self._first_name(row)) is not None:
            parent, name = self._files.place(made)
            self._engine.forget(self._files.ask(self._engine.link, first, parent, name).ino, 1)
            return
        if may_have_names:
            self._by_source[row[INO]] = made
        if stat.S_ISREG(row[MODE]):
            self._fill(made, row, here)
        elif stat.S_ISLNK(row[MODE]):
            self._files.new_symlink(made, row[TARGET])
        else:
            parent, name = self._files.place(made)
            attr = self._files.ask(self._engine.mknod, parent, name, row[MODE], row[RDEV], self._caller)
            self._engine.forget(attr.ino, 1)

    def _is_same_file(self, here: InodeRow | None, body: Part) -> bool:
        """Whether only attributes differ, of a file that has no other names on either side."""
        row = body.row
        if body.side == TARGET_SIDE and here is not None and here[INO] != row[INO]:
            return False  # the name belongs to another file of the volume
        if here is None or here[NLINK] > 1 or row[NLINK] > 1 or stat.S_IFMT(here[MODE]) != stat.S_IFMT(row[MODE]):
            return False
        if (here[SIZE], here[TARGET], here[RDEV]) != (row[SIZE], row[TARGET], row[RDEV]):
            return False
        return not stat.S_ISREG(row[MODE]) or comparable_extents(self._now.content(here[INO])[0]) == comparable_extents(
            self._source.content(row[INO])[0]
        )

    def _first_name(self, row: InodeRow) -> int | None:
        """The inode that a further name of the version's file links to: one made before, or the
        volume's own if all names are rolled back and one remains."""
        if (made := self._by_source.get(row[INO])) is not None:
            return self._files.stat(made).ino
        return row[INO] if self._keeps_a_name(row[INO]) else None

    def _keeps_a_name(self, ino: int) -> bool:
        is_own = any(
            state is not None and state.body.side == TARGET_SIDE and state.body.row[INO] == ino
            for state in self._merged.paths.values()
        )
        own = self._now.inode(ino) if is_own else None
        return own is not None and own[NLINK] > self._names_gone[ino]

    def _fill(self, made: bytes, row: InodeRow, here: InodeRow | None) -> None:
        missing = self._source.content(row[INO])[0]
        with self._files.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL) as file:
            self._engine.resize_apart(file.ino, row[SIZE])
            if row[SIZE] >= SHARED_FROM_BYTES and here is not None and stat.S_ISREG(here[MODE]):
                missing = self._share(file.fh, here, missing)
        for each in missing:
            self._missing.append((made, each))
            self._missing_bytes += each[1]
        if self._missing_bytes >= BATCH_BYTES:
            self._fetch()

    def _share(self, fh: Handle, here: InodeRow, rows: list[ExtentRow]) -> list[ExtentRow]:
        """Shares the ranges that the existing file has in the same chunks. Returns the rows still
        to be written: all of them if the file changes meanwhile, may be written through a mapping,
        or is gone."""
        try:
            return self._try_share(fh, here, rows)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOENT, errno.ESTALE):
                raise
            return rows

    def _try_share(self, fh: Handle, here: InodeRow, rows: list[ExtentRow]) -> list[ExtentRow]:
        version, extents = self._files.ask(self._engine.live_extents, here[INO])
        known = {each.chunk.hash: each for each in extents if each.chunk is not None}
        donor = self._files.ask(self._engine.open_file, here[INO], os.O_RDONLY)
        missing = []
        try:
            for row in rows:
                each = known.get(bytes(row[2]))
                if each is None or not (each.skip <= row[7] and row[7] + row[1] <= each.skip + each.length):
                    missing.append(row)
                elif not self._copy(donor, each.offset + row[7] - each.skip, fh, row[0], row[1]):
                    return rows
        finally:
            self._engine.release(donor)
        return missing if self._files.ask(self._engine.live_extents, here[INO])[0] == version else rows

    def _copy(self, source: Handle, first: int, target: Handle, offset: int, length: int) -> bool:
        while length > 0:
            done = self._files.ask(self._engine.copy_range, (source, first), (target, offset), length)
            if done == 0:
                return False
            first, offset, length = first + done, offset + done, length - done
        return True

    def _fetch(self) -> None:
        """Writes the deferred rows, pack by pack, so that one request fetches neighbours."""
        by_pack: dict[int, list[tuple[bytes, ExtentRow]]] = defaultdict(list)
        for made, row in self._missing:
            if (raw := self._engine.cached_chunk(bytes(row[2]), row[6])) is not None:
                self._write(made, row, raw)
            else:
                by_pack[row[3]].append((made, row))
        for number, some in by_pack.items():
            pack = self._source.pack_id(number)
            if pack is None:
                raise CorruptError(f"the index has no pack {number}", hint="Restore another version.")
            requests = [ChunkRequest(row[4], row[5], row[6], Codec(row[8]), ChunkHash(row[2])) for _, row in some]
            for i, raw in self._packs.read_each(pack, requests):
                self._write(*some[i], raw)
        self._missing, self._missing_bytes = [], 0

    def _write(self, made: bytes, row: ExtentRow, raw: bytes) -> None:
        self._files.write(made, raw[row[7] : row[7] + row[1]], row[0])

    # -- names

    def _clear(self, path: bytes) -> None:
        """Removes a path that is to disappear, or that is a directory on one side only."""
        here, state = self._here[path], self._merged.paths[path]
        if here is None:
            return
        is_directory = stat.S_ISDIR(here[MODE])
        if state is not None and is_directory == state.is_directory:
            return
        with suppress(FileNotFoundError, NotADirectoryError), _meanwhile(path):
            parent, name = self._files.place(path)
            try:
                self._files.ask(self._engine.rmdir if is_directory else self._engine.unlink, parent, name, self._caller)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY or state is not None:
                    raise
                return  # a program has just created something there: leave it
            self._forget(parent, name, here)

    def _put(self, path: bytes, state: State) -> None:
        made, here = self._made.get(path), self._here[path]
        if made is None and not (state.is_directory and (here is None or not stat.S_ISDIR(here[MODE]))):
            return  # it exists, and only its attributes are set
        with _meanwhile(path):
            parent, name = self._files.place(path)
            if made is not None:
                self._files.move(made, path)
            else:
                with suppress(FileExistsError):
                    self._files.mkdir(path)
            self._forget(parent, name, here)

    def _set_attributes(self, path: bytes, state: State) -> None:
        row = state.attributes.row
        attr = self._files.stat(path)
        index = self._merged.sides[state.attributes.side]
        xattrs = index.content(row[INO])[1] if row[FLAGS] & HAS_XATTRS else []
        for name in self._files.ask(self._engine.list_xattrs, attr.ino):
            if name not in dict(xattrs):
                self._files.ask(self._engine.remove_xattr, attr.ino, name)
        for name, value in xattrs:
            if name in ACLS:
                self._files.ask(self._engine.set_acl, attr.ino, name, value, self._caller)
            else:
                self._files.ask(self._engine.set_xattr, attr.ino, name, value, 0)
        if (attr.uid, attr.gid) != (row[UID], row[GID]):
            self._set(attr.ino, uid=row[UID], gid=row[GID])
        self._set(attr.ino, mode=stat.S_IMODE(row[MODE]))  # after owner and ACLs, which change it
        self._set(attr.ino, atime_ns=row[_ATIME], mtime_ns=row[MTIME])
        self._stale.inodes.add(attr.ino)

    def _set_times_of_parents(self, root_mtime_ns: int) -> None:
        """Restores the modification times of directories in which names changed, and of the root,
        in which the staging directory was created and removed."""
        touched = {path.rpartition(b"/")[0] for path in self._merged.paths if path} | {b""}
        if self._to and self._to in self._merged.paths:
            touched.discard(self._to.rpartition(b"/")[0])  # that directory did change
        for path in touched:
            mtime_ns = root_mtime_ns if not path else None
            if not self._to or path == self._to or path.startswith(self._to + b"/"):
                row = find_inode(self._source, join_path(self._path, path[len(self._to) :].strip(b"/")))
                mtime_ns = row[MTIME] if row is not None else mtime_ns
            if mtime_ns is not None:
                with suppress(FileNotFoundError, NotADirectoryError):
                    self._set(self._files.stat(path).ino, mtime_ns=mtime_ns)

    # -- inside

    def _describe_before(self, path: bytes) -> tuple[bytes, int, int]:
        here, parent = self._here[path], find_inode(self._now, path.rpartition(b"/")[0])
        return path, parent[INO] if parent is not None else 0, here[INO] if here is not None else 0

    def _set(self, ino: int, **values: int) -> None:
        self._files.ask(self._engine.setattr, ino, self._caller, **values)

    def _forget(self, parent: int, name: bytes, here: InodeRow | None) -> None:
        self._stale.names.add((parent, name))
        self._stale.inodes.add(parent)
        if here is not None:
            self._stale.inodes.add(here[INO])


def _root() -> Caller:
    return Caller(0, 0, os.getpid(), 0, None, None)


def _files(session: Session, caller: Caller) -> Files:
    return Files(session.engine, session.residency, caller, session.room.relieve)


def _remove(files: Files, top: bytes) -> None:
    for name, _ in files.list(top):
        files.remove(join_path(top, name))
    files.remove(top)


def _is_touched(state: State) -> bool:
    """Whether this is a directory in which only names change: that needs no action."""
    return state.is_directory and state.body.side == TARGET_SIDE


@contextmanager
def _meanwhile(path: bytes) -> Iterator[None]:
    """Raises ConflictError where a name has changed since it was compared."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR, errno.ENOENT):
            raise
        raise ConflictError(
            f"/{os.fsdecode(path)} was changed by another program during the restore: {error.strerror}",
            hint="The restore is incomplete. Check the files that are there, then restore again.",
        ) from error
