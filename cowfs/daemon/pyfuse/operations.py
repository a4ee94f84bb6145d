"""The FUSE operations of one mount: an adapter between pyfuse3 and the engine, without policy.

Every operation of the protocol that the engine has is answered here, so a mount is complete with
this server alone. The kernel checks permissions (default_permissions) and holds locks; poll and
ioctl are left to it.

Guarantees
- a `write` that returned is in staging and its record in the journal; fsync waits in a worker
  thread, for the disk only
- names, link targets and xattr names are bytes, passed through unchanged
- the engine raises lookup counts for every entry passed to the kernel; `readdir` counts an entry
  before it is put into the reply and takes the count back if it did not fit. pyfuse3 does not
  report a failure to write a reply (an interrupted request); such a count keeps the inode in memory
  until unmount, and has no other effect
- programs see the inode numbers that the lane shows. pyfuse3 has one number for an inode, which
  both the kernel and programs get: `_Numbers` turns it into the engine's. It hands over no inode
  with a handle: `_handles` remembers it
- on a read-only mount the kernel refuses changes (option `ro`), and so does the engine (EROFS)

All of it runs on the trio thread; `calls` defines which calls may wait, and for what.
"""

from __future__ import annotations

import contextlib
import errno
import stat
from collections.abc import Sequence

import pyfuse3
import trio
from pyfuse3 import FUSEError

from cowfs.daemon.pyfuse.calls import EngineCalls
from cowfs.daemon.request_server import CacheTimes
from cowfs.native import Attr, Caller, Engine, Handle, Owners
from cowfs.native.constants import ACL_ACCESS, ACL_DEFAULT

READDIR_BATCH = 64
ACLS = (ACL_ACCESS, ACL_DEFAULT)
BLOCK_BYTES = 4096
NAME_MAX_BYTES = 255
FREE_INODES = 1 << 32
"""The free inodes in statfs: inode numbers have 64 bits, and a number of this size confuses no
program."""


SHOWN_INOS = 1 << 37
"""From here on, a number that programs see is of what is shown beside the volume
(native/mounted)."""


class _Numbers:
    """The numbers that pyfuse3 has for inodes: those that programs are to see. In a volume with
    inodes beyond `SHOWN_INOS` these are ambiguous; there they are the engine's own."""

    def __init__(self, engine: Engine) -> None:
        self._is_same = engine.next_ino() >= SHOWN_INOS

    def show(self, node: int) -> int:
        return node if node < SHOWN_INOS or self._is_same else Engine.shown_ino(node)

    def node(self, shown: int) -> int:
        return shown if shown < SHOWN_INOS or self._is_same else Engine.node_of_shown(shown)


class MountOperations(pyfuse3.Operations):
    """`opened` is set when the kernel has finished its handshake (INIT)."""

    supports_dot_lookup = True
    enable_writeback_cache = False  # a write() would return before its bytes arrive here
    enable_acl = True

    def __init__(self, engine: Engine, calls: EngineCalls, times: CacheTimes, owners: Owners) -> None:
        super().__init__()
        self._engine = engine
        self._ask = calls.ask
        self._ask_for_space = calls.ask_for_space
        self._sync = calls.sync
        self._tell = calls.tell
        self._times = times
        self._owners = owners
        self.numbers = _Numbers(engine)
        self._handles: dict[int, Handle] = {}
        self.opened = trio.Event()

    def init(self) -> None:
        self.opened.set()

    # -- names and attributes

    async def lookup(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        try:
            return self._entry(await self._ask(self._engine.lookup, self._node(parent_inode), name))
        except FUSEError as error:
            if error.errno != errno.ENOENT or self._engine.may_move(self._node(parent_inode)):
                raise
        absent = pyfuse3.EntryAttributes()  # inode 0: the kernel remembers that there is no such name
        absent.st_ino = 0
        absent.entry_timeout = self._times.entry_s
        return absent

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        for ino, count in inode_list:
            self._tell(self._engine.forget, self._node(ino), count)

    async def getattr(self, inode: int, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        return self._entry(await self._ask(self._engine.getattr, self._node(inode)))

    async def setattr(
        self,
        inode: int,
        attr: pyfuse3.EntryAttributes,
        fields: pyfuse3.SetattrFields,
        fh: int | None,
        ctx: pyfuse3.RequestContext,
    ) -> pyfuse3.EntryAttributes:
        mode = attr.st_mode & 0o7777 if fields.update_mode else None
        if (fields.update_atime and not _is_kept(attr.st_atime_ns)) or (
            fields.update_mtime and not _is_kept(attr.st_mtime_ns)
        ):
            raise FUSEError(errno.EINVAL)
        changed = await self._ask_for_space(
            self._engine.setattr,
            self._node(inode),
            self._caller(ctx, mode or 0),
            mode=mode,
            uid=self._owners.kept_user(attr.st_uid) if fields.update_uid else None,
            gid=self._owners.kept_group(attr.st_gid) if fields.update_gid else None,
            size=attr.st_size if fields.update_size else None,
            atime_ns=attr.st_atime_ns if fields.update_atime else None,
            mtime_ns=attr.st_mtime_ns if fields.update_mtime else None,
            ctime_ns=attr.st_ctime_ns if fields.update_ctime else None,
        )
        return self._entry(changed)

    async def readlink(self, inode: int, ctx: pyfuse3.RequestContext) -> bytes:
        return await self._ask(self._engine.readlink, self._node(inode))

    async def mknod(
        self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        made = await self._ask_for_space(
            self._engine.mknod, self._node(parent_inode), name, mode, rdev, self._caller(ctx, mode)
        )
        return self._entry(made)

    async def mkdir(
        self, parent_inode: int, name: bytes, mode: int, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        return self._entry(
            await self._ask_for_space(self._engine.mkdir, self._node(parent_inode), name, mode, self._caller(ctx, mode))
        )

    async def symlink(
        self, parent_inode: int, name: bytes, target: bytes, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        return self._entry(
            await self._ask_for_space(self._engine.symlink, self._node(parent_inode), name, target, self._caller(ctx))
        )

    async def link(
        self, inode: int, new_parent_inode: int, new_name: bytes, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        return self._entry(
            await self._ask_for_space(self._engine.link, self._node(inode), self._node(new_parent_inode), new_name)
        )

    async def unlink(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        await self._ask_for_space(self._engine.unlink, self._node(parent_inode), name, self._caller(ctx))

    async def rmdir(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        await self._ask_for_space(self._engine.rmdir, self._node(parent_inode), name, self._caller(ctx))

    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: pyfuse3.RequestContext,
    ) -> None:
        await self._ask_for_space(
            self._engine.rename,
            self._node(parent_inode_old),
            name_old,
            self._node(parent_inode_new),
            name_new,
            flags,
            self._caller(ctx),
        )

    # -- files

    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: pyfuse3.RequestContext
    ) -> tuple[pyfuse3.FileInfo, pyfuse3.EntryAttributes]:
        attr, handle = await self._ask_for_space(
            self._engine.create, self._node(parent_inode), name, mode, flags, self._caller(ctx, mode)
        )
        return pyfuse3.FileInfo(fh=self._remember(handle), keep_cache=True), self._entry(attr)

    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        # keep_cache: every change of a file goes through this kernel, so its pages are never stale
        handle = await self._ask_for_space(self._engine.open_file, self._node(inode), flags)
        return pyfuse3.FileInfo(fh=self._remember(handle), keep_cache=True)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        return await self._ask(self._engine.read, self._handle(fh), off, size)

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        if self._engine.is_reclaim_overdue():
            with contextlib.suppress(FUSEError):  # the write itself reports its error
                await self._sync(self._engine.reclaim_overdue)
        try:
            return await self._ask_for_space(self._engine.write, self._handle(fh), off, buf)
        except FUSEError as error:
            self._tell(self._engine.note_failed_write, self._handle(fh), off, len(buf), error.errno)
            raise

    async def flush(self, fh: int) -> None:
        """Nothing waits to be written: every write was staged before it was answered."""

    async def release(self, fh: int) -> None:
        await self._ask(self._engine.release, self._handles.pop(fh))

    async def fsync(self, fh: int, datasync: bool) -> None:
        await self._sync(self._engine.fsync, self._handle(fh), datasync)

    # -- directories

    async def opendir(self, inode: int, ctx: pyfuse3.RequestContext) -> int:
        return self._remember(await self._ask(self._engine.open_directory, self._node(inode)))

    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        cookie = start_id
        while batch := await self._ask(self._engine.read_directory, self._handle(fh), cookie, READDIR_BATCH):
            for name, cookie, attr in batch:
                if not self._deliver(token, name, cookie, attr):
                    return

    def _deliver(self, token: pyfuse3.ReaddirToken, name: bytes, cookie: int, attr: Attr) -> bool:
        """Puts one entry into the reply; False when it is full. The kernel counts a lookup for all
        but "." and ".."."""
        entry = self._entry(attr)
        if self._engine.is_only_named(attr.ino):
            entry.attr_timeout = 0
        if name in (b".", b".."):
            return pyfuse3.readdir_reply(token, name, entry, cookie)
        if not self._tell(self._engine.entry_delivered, attr.ino):
            return True  # gone since the batch was read
        if pyfuse3.readdir_reply(token, name, entry, cookie):
            return True
        self._tell(self._engine.forget, attr.ino, 1)
        return False

    async def releasedir(self, fh: int) -> None:
        await self._ask(self._engine.release_directory, self._handles.pop(fh))

    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        await self._sync(self._engine.sync)

    # -- the whole, and extended attributes

    async def statfs(self, ctx: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        used_bytes, inodes, free_bytes = await self._ask(self._engine.statfs)
        data = pyfuse3.StatvfsData()
        data.f_bsize = data.f_frsize = BLOCK_BYTES
        data.f_bfree = data.f_bavail = free_bytes // BLOCK_BYTES
        data.f_blocks = data.f_bfree + -(-used_bytes // BLOCK_BYTES)
        data.f_ffree = data.f_favail = FREE_INODES
        data.f_files = inodes + FREE_INODES
        data.f_namemax = NAME_MAX_BYTES
        return data

    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: pyfuse3.RequestContext) -> None:
        # pyfuse3 has checked XATTR_CREATE and XATTR_REPLACE with getxattr, without an await that
        # yields in between
        if name not in ACLS:
            await self._ask_for_space(self._engine.set_xattr, self._node(inode), name, value, 0)
            return
        known = await self._ask(self._engine.getattr, self._node(inode))
        kept = await self._ask(self._owners.kept_acl, value)
        await self._ask_for_space(self._engine.set_acl, self._node(inode), name, kept, self._caller(ctx, known.mode))

    async def getxattr(self, inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> bytes:
        value = await self._ask(self._engine.get_xattr, self._node(inode), name)
        return await self._ask(self._owners.shown_acl, value) if name in ACLS else value

    async def listxattr(self, inode: int, ctx: pyfuse3.RequestContext) -> list[bytes]:
        return await self._ask(self._engine.list_xattrs, self._node(inode))

    async def removexattr(self, inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        await self._ask_for_space(self._engine.remove_xattr, self._node(inode), name)

    # -- conversion

    def _node(self, shown: int) -> int:
        return self.numbers.node(shown)

    def _remember(self, handle: Handle) -> int:
        """The number of a handle is different from those of all other engines in this process."""
        self._handles[handle[1]] = handle
        return handle[1]

    def _handle(self, fh: int) -> Handle:
        return self._handles[fh]

    def _entry(self, attr: Attr) -> pyfuse3.EntryAttributes:
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = self.numbers.show(attr.ino)
        entry.st_mode = mode = attr.mode
        entry.st_nlink = attr.nlink
        entry.st_uid = self._owners.shown_user(attr.uid)
        entry.st_gid = self._owners.shown_group(attr.gid)
        entry.st_rdev = attr.rdev
        entry.st_size = attr.size
        entry.st_blocks = attr.blocks
        entry.st_atime_ns = attr.atime_ns
        entry.st_mtime_ns = attr.mtime_ns
        entry.st_ctime_ns = attr.ctime_ns
        entry.attr_timeout = self._times.attr_s
        entry.entry_timeout = self._times.dir_entry_s if stat.S_ISDIR(mode) else self._times.entry_s
        entry.generation = self._engine.generation(attr.ino)
        if self._engine.may_move(attr.ino):
            entry.entry_timeout = 0
        return entry

    def _caller(self, ctx: pyfuse3.RequestContext, mode: int = 0) -> Caller:
        """Reads supplementary groups only where a setgid bit is set, because that costs a look into
        /proc and only the bit depends on them."""
        groups = None
        if mode & stat.S_ISGID and ctx.uid != 0 and ctx.pid != 0:
            try:
                groups = sorted(pyfuse3.get_sup_groups(ctx.pid))
            except (OSError, RuntimeError):
                groups = None  # the caller has ended, or lives in another pid namespace
        return Caller(ctx.uid, ctx.gid, ctx.pid, ctx.umask, groups, self._owners)


def _is_kept(time_ns: int) -> bool:
    """Whether 64 bits of nanoseconds hold the time; the same rule as in the lane."""
    return -(2**63) < time_ns < 2**63 - 1
