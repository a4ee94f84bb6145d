"""The native engine as Python sees it: the in-memory file system of one mount, its journal and its
staging.

Every method may be called from any thread, releases the GIL while it works and never calls back
into Python. Numbers named `*_ns` are nanoseconds since the epoch, lengths and offsets are bytes,
names are raw bytes.

Errors: `OSError` with the errno a system call would give; `NotResident` when the answer needs rows
or chunks that are not in memory yet (load what it names, then call again); `JournalCorrupt` when a
working copy's journal has an invalid record with valid ones behind it.
"""

import os
from collections.abc import Sequence
from typing import Literal, TypeAlias

# (ino, mode, nlink, uid, gid, rdev, size, atime_ns, mtime_ns, ctime_ns, flags, symlink target or
# b"") mode includes the S_IFMT bits; flags: INODE_HAS_XATTRS = 1 (the inode has rows in xattrs).
InodeRow: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, bytes]

# (offset in file, length shown, chunk hash (32 bytes), pack number, offset in pack, stored length,
# raw length, skip into the raw chunk, codec)
ExtentRow: TypeAlias = tuple[int, int, bytes, int, int, int, int, int, int]

# (inode of an open file or directory, number)
Handle: TypeAlias = tuple[int, int]

INODE_HAS_XATTRS: int
ROOT_INO: int  # 1
LAST_INO: int  # 2^48 - 1
COUNTED_BYTES: int  # of a file in totals, at most: 8 TiB
ACL_ACCESS: bytes  # b"system.posix_acl_access"
ACL_DEFAULT: bytes  # b"system.posix_acl_default"
MAX_BACKGROUND: int  # requests that the kernel may have in the background at once
CONGESTION: int  # from so many on it reads nothing ahead
DIRECTORY_RUN: tuple[int, int]  # least and most inode numbers that are put aside for directories
LOADS_MAX: int  # loads for one request, each after the one before has been brought
CODEC_RAW: int  # 0
CODEC_ZSTD: int  # 1

class NotResident(Exception):
    """What must be loaded before the call can be answered.

    attachment: what it is about: 0 is the mount's own volume, others are versions beside it
    (`Engine.open_version`).

    what: "inode" (ino; answer with `load_inode`, or fail the call if the base version has none of
    that number), "parent" (ino; `load_parent`), "directory" (ino; `load_directory`), "content"
    (ino; `load_content`; if the call reads bytes, `wanted` says which, and `absent_chunks` what
    they need besides), "chunks" (`cache_chunk` for each of `chunks`), "file" (ino; `assemble_file`,
    only asked for by the lane). Of the versions beside: "closed" (name: the id; `open_version`),
    "name" (name; `name_version`, or fail the call), "names" (`list_versions`).
    """

    what: str
    attachment: int
    name: bytes
    ino: int
    wanted: tuple[int, int]
    chunks: list[ChunkRef]

class JournalCorrupt(Exception): ...

class ChunkRun:
    """Chunks on their way from a range of a pack into the cache: each is verified, decompressed and
    cached as soon as all of it is there. Both calls give how many are settled: the first ones.
    failed: those of them whose bytes have another length or hash; they are not cached."""

    failed: list[int]

    def take(self, piece: bytes | bytearray | memoryview) -> int:
        """The bytes that follow, in any buffer that nobody changes meanwhile."""
    def take_next(self, stored: bytes | bytearray | memoryview) -> int:
        """The stored bytes of the next chunk alone."""

class CachedChunks:
    """The chunks of a cache directory, to look at. Any thread."""

    def __init__(self, cache_dir: str | os.PathLike[str]) -> None: ...
    def get(self, hash: bytes, raw_length: int) -> bytes | None:
        """A chunk that is there undamaged, with this length."""

class ChunkRef:
    """Where one chunk lies: enough to fetch, decode and verify it."""

    hash: bytes
    pack: int
    offset: int
    stored_length: int
    raw_length: int
    codec: int
    def __init__(
        self, hash: bytes, pack: int, offset: int, stored_length: int, raw_length: int, codec: int
    ) -> None: ...

class Attr:
    """The attributes of an inode at one moment. blocks counts 512-byte units of mapped data."""

    ino: int
    mode: int
    nlink: int
    uid: int
    gid: int
    rdev: int
    size: int
    blocks: int
    atime_ns: int
    mtime_ns: int
    ctime_ns: int

class Owners:
    """Two owners that a mount takes for one, each a user and a group: whose files are kept as
    `kept` are shown as `shown`'s, and what is to be `shown`'s is kept as `kept`'s. All others stay
    who they are, on the way out as on the way in."""

    def __init__(self, kept: tuple[int, int], shown: tuple[int, int]) -> None: ...
    def shown_user(self, user: int) -> int: ...
    def shown_group(self, group: int) -> int: ...
    def kept_user(self, user: int) -> int: ...
    def kept_group(self, group: int) -> int: ...
    def shown_acl(self, value: bytes) -> bytes:
        """A POSIX ACL as the mount shows it; OSError (EIO) for a damaged one."""
    def kept_acl(self, value: bytes) -> bytes:
        """A POSIX ACL as it is kept; OSError (EINVAL) for what is none."""

class Caller:
    """Who asks, as the kernel knows them: permission decisions it leaves to us (sticky bits,
    setgid, privilege clearing) use it. owners: of the mount; None: everybody is shown as they are
    kept."""

    def __init__(
        self,
        uid: int,
        gid: int,
        pid: int,
        umask: int,
        groups: Sequence[int] | None,
        owners: Owners | None = None,
    ) -> None: ...

class LayerExtent:
    """One mapped range of a file in a frozen layer: either staged (segment ≥ 0) or in a chunk
    (chunk not None).

    A staged extent that already has a chunk (uploaded, still cached locally) has both.
    """

    offset: int
    length: int
    segment: int  # -1 when not staged
    segment_offset: int
    chunk: ChunkRef | None
    skip: int  # bytes of the raw chunk before this extent

class FileRows:
    """Extent rows of many files, packed: about 75 bytes for a file of one extent."""

    def __init__(self) -> None: ...
    def count(self) -> int: ...
    def put(self, ino: int, version: int, rows: Sequence[ExtentRow]) -> None:
        """Adds a file, or replaces what is known of it. version: its data version."""
    def get(self, ino: int) -> tuple[int, list[ExtentRow]] | None:
        """Data version and rows."""
    def version(self, ino: int) -> int | None: ...
    def packs(self) -> list[int]:
        """Numbers of the packs that rows name."""
    def page(self, place: int, limit: int) -> tuple[list[tuple[int, int, list[ExtentRow]]], int]:
        """Up to limit files from `place` on (0: the first), in the order in which they were put,
        and the place behind them. Nothing may be put in between."""

class ChunkPlaces:
    """Where chunks lie, by hash: about 65 bytes a chunk. Fresh: uploaded here, and in no catalogue
    yet. Named: fresh, and used by the version that is being made. A place is (pack id, offset,
    stored length, raw length, codec)."""

    def __init__(self) -> None: ...
    def get(self, hash: bytes) -> tuple[bytes, int, int, int, int] | None: ...
    def put(self, hash: bytes, place: tuple[bytes, int, int, int, int], is_fresh: bool) -> None:
        """Remembers where a chunk lies, instead of what was known."""
    def name(self, files: FileRows) -> None:
        """From now on the fresh chunks in rows of `files` are named, and no others."""
    def named(self, first: int, limit: int) -> tuple[bytes, list[bytes], int, int] | None:
        """Up to limit named chunks from the table's chunk `first` on, as a catalogue lists them:
        its entries, the packs that they number, the chunks' raw bytes, and where to go on. None:
        there are no more."""
    def published(self, left: int) -> None:
        """A version that names the named chunks is in the store: only the last `left` other fresh
        ones stay."""
    def fresh_packs(self) -> list[bytes]: ...
    def keep_fresh_in(self, packs: Sequence[bytes]) -> None:
        """Forgets all but the fresh chunks in these packs."""

class SmallFiles:
    """A batch of small files on its way into packs: at most one chunk each, already named. In this
    order: `look_up` and `doubt`, `found` for some of `missing_in`, `compress`, `pour` until
    `is_poured`, `finish`. Equal files are one chunk; a chunk's number is of this batch."""

    def count(self) -> int: ...
    def size_bytes(self) -> int:
        """Bytes that were read."""
    def last_ino(self) -> int | None: ...
    def read_inodes(self) -> list[int]:
        """Files whose bytes were read."""
    def look_up(self, places: ChunkPlaces) -> None: ...
    def packs(self) -> list[bytes]:
        """Packs in which chunks were placed, each once."""
    def doubt(self, packs: Sequence[bytes]) -> None:
        """Chunks that were found in these packs are missing."""
    def missing_in(self, catalogues: Sequence[tuple[bytes, int]], noted: Sequence[bytes]) -> list[tuple[int, bytes]]:
        """(number, hash) of the chunks without a place that may have one: that were doubted, are
        among `noted`, or begin as an entry of a catalogue does, each given as its bytes and where
        its entries begin."""
    def found(self, number: int, place: tuple[bytes, int, int, int, int]) -> None:
        """Where a missing chunk lies."""
    def compress(self, compresses: bool) -> None:
        """What is missing still is to be poured. compresses: where that pays."""
    def is_poured(self) -> bool: ...
    def pour(
        self, pack: bytes, offset: int, room: bytearray | memoryview, target: int, margins: tuple[int, int]
    ) -> tuple[int, bytes]:
        """Puts chunks into `room`, from `offset` of their pack on, until they and their entries
        have `target` bytes or the room is full. margins: bytes left free before and behind each.
        Returns how many bytes the chunks take, and their entries as a pack's directory has them."""
    def finish(self, places: ChunkPlaces, numbers: dict[bytes, int], rows: FileRows) -> None:
        """Tells `places` where chunks lie, and gives every file its rows. numbers: of each of
        `packs`, in the index."""

class DirectoryRows:
    """The entries of one directory on their way into an engine, a page after the other."""

    def __init__(self) -> None: ...
    def add(self, entries: Sequence[tuple[bytes, InodeRow]]) -> None: ...

class Recovery:
    """What the journal of a working copy held.

    directories, inodes, contents: what must be loaded before `replay`: `load_directory`,
    `load_inode` and `load_content` for each that the base version has. Numbers that it has not
    given out are left out. records: valid records found. cut_bytes: length of a torn tail that was
    cut. power_loss: another boot wrote it.
    """

    directories: list[int]
    inodes: list[int]
    contents: list[int]
    records: int
    cut_bytes: int
    power_loss: bool

class Engine:
    """One mount's file system. `open` for a working copy or read-only view; `close` when done."""

    @staticmethod
    def open(
        *,
        root: InodeRow,
        next_ino: int,
        cache_dir: str,
        memory_cache_bytes: int = 8 << 20,
        store_is_near: bool = False,
        staging_dir: str | None = None,
        failures_file: str | None = None,
        staging_limit_bytes: int = 0,
        after_layer: int = 0,
        boot_id: str = "",
    ) -> Engine:
        """staging_dir None: read-only, every change raises EROFS. Otherwise journal and segments
        live in it and journals of layers > after_layer are opened for `recover`; older ones and
        unreferenced segments are removed. store_is_near: it is on the disk of cache_dir, so what is
        read from it (`chunk_run`) is copied there only the second time. staging_limit_bytes 0: no
        limit but the disk's. The calling process must hold the working copy's lock."""
    def close(self) -> None:
        """Syncs journal and staging and lets go of the files. Further calls raise EBADF."""
    def abandon(self) -> None:
        """As close, without syncing: for a working copy that the caller deletes next."""

    # -- other versions of the volume, to look at under `.cowfs/versions` (native/mounted)
    def with_versions(self, is_listed: bool) -> Engine:
        """The same engine for a server of its mount: calls about files find the versions beside it,
        and changes of those are EROFS. is_listed: a listing of the root has `.cowfs`."""
    def name_version(self, name: bytes, target: bytes | None) -> None:
        """What a name in `.cowfs/versions` leads to: None if it is a version's whole id; else the
        id that it stands for, which is believed for a moment. OSError ENFILE: the kernel refers to
        as many versions as a mount can show."""
    def list_versions(self, names: list[tuple[bytes, bytes | None]]) -> None:
        """The names for the next listing, as for `name_version`."""
    def open_version(self, attachment: int, id: bytes, engine: Engine) -> bool:
        """engine: read-only, of the version with this id. False: the attachment is gone, and its
        number may belong to another version."""
    def close_version(self, attachment: int) -> bool:
        """Drops the version's engine, which answers no call then. False: a file is open in it."""
    def open_versions(self) -> list[int]:
        """Attachments of versions with an engine; the one that was asked longest ago first."""
    def next_ino(self) -> int:
        """The number that the next new inode of the volume gets, at least."""
    @staticmethod
    def shown_ino(node: int) -> int:
        """The number of an inode that programs see, below 2**53. node: as calls about files take
        and return it."""
    @staticmethod
    def node_of_shown(shown: int) -> int:
        """The node that `shown_ino` was asked about, where inodes are below 2**37."""
    def may_move(self, ino: int) -> bool:
        """Whether nobody is to remember names of this inode, or in it."""
    def generation(self, ino: int) -> int:
        """What an entry of the inode says to tell it from others that had its number, or will."""
    def is_only_named(self, ino: int) -> bool:
        """Whether a listing's entry says no more than that it is a directory."""

    # -- recovery: open → recover → loads → replay, before anything else
    def keep_for_next_server(self, table: SurvivalTable) -> None:
        """Notes in the journal and the table what another server needs to go on with the mount if
        this process is killed: before `recover`, which then keeps what earlier servers noted."""
    def expect_earlier_references(self) -> None:
        """The kernel refers to inodes that this process has not told it of: after `replay`, in a
        process that goes on with a mount."""
    def recover(self) -> Recovery: ...
    def replay(self) -> int:
        """Applies the journal; `lost_files` tells what had no bytes any more within one boot.
        Returns the number of extents dropped because their bytes failed the checksum after power
        loss."""
    def replay_progress(self) -> tuple[int, int]:
        """(done, total) of `recover` and `replay` together, in records; for another thread than
        theirs."""

    # -- residency
    def load_inode(self, row: InodeRow) -> None: ...
    def load_parent(self, ino: int, parent: int) -> None:
        """Which directory a directory is in; what is known wins."""
    def load_directory(self, ino: int, entries: DirectoryRows) -> list[int]:
        """All entries of one directory of the base version; `entries` is empty afterwards. A name
        or inode already in memory wins over the row. Idempotent: if the entries are here already,
        only inodes that were evicted come back. Rows must be of the version that the engine stands
        on, as for `load_inode` and `load_content`: a caller who read them before a commit reads
        them again. Returns the directories among them whose own entries are not in memory."""
    def unloaded_directories(self) -> list[int]:
        """Directories in memory whose entries are not. Looks at every inode."""
    def load_content(self, ino: int, extents: Sequence[ExtentRow], xattrs: Sequence[tuple[bytes, bytes]]) -> None:
        """Extents and extended attributes of one inode of the base version. Idempotent: ignored if
        resident. EIO when they do not add up to what the inode's row says it has."""
    def load_contents(self, contents: Sequence[tuple[int, Sequence[ExtentRow], Sequence[tuple[bytes, bytes]]]]) -> None:
        """As `load_content`, of inodes that nobody has asked for: what would be refused is left
        out."""
    def nameless_without_content(self) -> list[int]:
        """Inodes without a name whose content is not in memory: a commit must load it from the
        version before, since the new one has not got it."""
    def cache_chunk(self, hash: bytes, data: bytes) -> None:
        """Hands in a verified, decoded chunk: kept in memory for a while and, where the disk
        allows, in cache_dir."""
    def chunk_run(
        self, start: int, wanted: list[tuple[int, int, int, int, bytes]], name_key: bytes | None = None
    ) -> ChunkRun:
        """For the bytes of a pack from `start` on: what is wanted of them, (offset in the pack,
        stored length, raw length, codec, hash), in order of offset. name_key: of a store that names
        its chunks by one."""
    def cached_chunk(self, hash: bytes, raw_length: int) -> bytes | None:
        """A chunk that is in the cache undamaged, with this length."""
    def assemble_file(self, ino: int) -> None:
        """Puts a file together from its cached chunks, for passthrough: copies all of it once, a
        second or so for each GiB, and fetches nothing. Where it cannot be done the file is read by
        requests."""
    def absent_chunks(self, ino: int, start: int, end: int) -> list[ChunkRef]:
        """What must be fetched before these bytes can be read, as far as the file's extents are
        here."""
    def next_ahead(self) -> list[ChunkRef] | None:
        """Waits until a sequential reader will soon want chunks that are not in the cache: these,
        nearest first, 16 to 32 MiB of a file that is read on and on. Readers take turns. None once
        the engine is closed."""
    def note_reads(self) -> None:
        """From now on `take_reads` tells what is read: each read costs a short lock more."""
    def take_reads(self) -> list[tuple[int, int, int]]:
        """(ino, offset, length) of what was read for the first time since the last call, in the
        order of first reading, rounded out to 64 KiB; length 0: a directory whose entries came in.
        After 1,048,576 of them nothing more is noted."""
    def evict(self, max_bytes: int) -> int:
        """Forgets what was not used for longest and can be loaded again, until inodes, entries and
        contents take at most about max_bytes (0: all that can be); returns bytes freed. Cheap
        unless much was loaded since the last call."""
    def keep_chunks(self, chunks: Sequence[tuple[bytes, int]]) -> list[int]:
        """Of chunks by hash and raw length: the numbers of those that are not in cache_dir. The
        others count as used now. One in memory is there unless writing it has failed."""
    def flush_cache(self) -> None:
        """Writes chunks that are only in memory to cache_dir, as far as that can be."""
    def cache_bytes(self) -> int:
        """What cache_dir holds. Costs what `trim_cache` does."""
    def cache_grown_bytes(self) -> int:
        """What this process has put into cache_dir since it was trimmed."""
    def trim_cache(self, max_bytes: int) -> int:
        """Deletes what was used least of cache_dir, blocks of indexes among it, until it
        holds at most max_bytes; returns bytes freed. Cheap unless something was added since the
        last call."""
    def free_cache(self, wanted_bytes: int) -> int:
        """Deletes least recently used files of cache_dir until about wanted_bytes are freed;
        returns how many were."""

    # -- operations, in the order of the FUSE protocol. lookup, create, mknod, mkdir, symlink, link,
    # and readdir_plus
    #    entries that are reported as delivered raise the kernel's lookup count by one; forget lowers it.
    def lookup(self, parent: int, name: bytes) -> Attr: ...
    def forget(self, ino: int, count: int) -> None: ...
    def getattr(self, ino: int) -> Attr: ...
    def setattr(
        self,
        ino: int,
        caller: Caller,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        size: int | None = None,
        atime_ns: int | None = None,
        mtime_ns: int | None = None,
        ctime_ns: int | None = None,
    ) -> Attr:
        """Changes what is given; ctime becomes now unless it is given. A new owner clears set-id
        bits, a new size does for all but root. Nothing given at all is chown(-1, -1): it clears
        them too. Times that 64 bits cannot hold become the nearest that they can."""
    def readlink(self, ino: int) -> bytes: ...
    def mknod(self, parent: int, name: bytes, mode: int, rdev: int, caller: Caller) -> Attr: ...
    def mkdir(self, parent: int, name: bytes, mode: int, caller: Caller) -> Attr: ...
    def symlink(self, parent: int, name: bytes, target: bytes, caller: Caller) -> Attr: ...
    def link(self, ino: int, parent: int, name: bytes) -> Attr: ...
    def unlink(self, parent: int, name: bytes, caller: Caller) -> None: ...
    def rmdir(self, parent: int, name: bytes, caller: Caller) -> None: ...
    def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int, caller: Caller) -> None:
        """flags: 0 or RENAME_EXCHANGE = 2, or some of RENAME_NOREPLACE = 1 and RENAME_WHITEOUT = 4,
        which leaves a character device 0:0 under the old name."""
    def create(self, parent: int, name: bytes, mode: int, flags: int, caller: Caller) -> tuple[Attr, Handle]: ...
    def open_file(self, ino: int, flags: int) -> Handle:
        """O_TRUNC in flags truncates."""
    def read(self, fh: Handle, offset: int, size: int) -> bytes: ...
    def write(self, fh: Handle, offset: int, data: bytes) -> int:
        """The bytes are in staging and the change is in the journal when this returns. Clears
        setuid/setgid as the kernel would for anybody but root; who writes is not known here. ENOSPC
        on a full disk: `relieve`, and call again. Does not wait for `reclaim_overdue`: ask
        `is_reclaim_overdue` before."""
    def append(self, fh: Handle, data: bytes) -> int:
        """As `write`, at the end of the file, in one step; the end behind it."""
    def replace(self, fh: Handle, data: bytes) -> None:
        """Makes it all that the file holds, in one step: after a crash the file holds that, or what
        it held before. As `write` otherwise."""
    def copy_range(self, source: tuple[Handle, int], target: tuple[Handle, int], length: int) -> int:
        """Copies up to `length` bytes by sharing extents; each end is (file handle, offset).
        Returns how many, 0 at the source's end. EOPNOTSUPP where only a copy of the bytes will do:
        the source may have a writable mapping, or one of the files has no name."""
    def note_failed_write(self, fh: Handle, offset: int, length: int, errno: int) -> None:
        """For a server that cannot tell a mapped store from another write: one that failed and may
        have been one counts as lost (`refused_stores`)."""
    def fsync(self, fh: Handle, datasync: bool) -> None:
        """Segment bytes of the file, then the journal (group commit), are on stable storage when
        this returns."""
    def release(self, fh: Handle) -> None: ...
    def open_directory(self, ino: int) -> Handle: ...
    def read_directory(self, fh: Handle, cookie: int, limit: int) -> list[tuple[bytes, int, Attr]]:
        """(name, cookie of this entry, attributes) of up to `limit` entries after `cookie` (0: from
        the start), "." and ".." included. Cookies stay valid while entries come and go: an entry
        present all the time is returned exactly once."""
    def entry_delivered(self, ino: int) -> None:
        """Raises the lookup count of an entry that read_directory returned and the kernel took
        (readdirplus)."""
    def release_directory(self, fh: Handle) -> None: ...
    def sync(self) -> None:
        """Everything written so far is on stable storage when this returns."""
    def statfs(self) -> tuple[int, int, int]:
        """(bytes of the volume's regular files, its inodes, bytes free for staging and by the
        quota): of what has a name, committed or not."""
    def count_base(self, bytes: int, inodes: int) -> None:
        """What the base version has, from which `statfs` counts. Once, after `open`."""
    def set_quota(self, bytes: int) -> None:
        """The regular files may have so many bytes together; what makes the volume larger is
        refused beyond that, EDQUOT. 0: anything."""
    def quota(self) -> int: ...
    def begin_apart(self, kept_bytes: int) -> None:
        """Files are going to be made beside those that they replace: what `resize_apart` makes them
        grow by does not count until `end_apart`. The volume grows by kept_bytes in the end: nobody
        else gets that room. EDQUOT: it is not there."""
    def resize_apart(self, ino: int, size: int) -> None: ...
    def end_apart(self) -> None:
        """Before what is replaced goes."""
    def inodes_in_memory(self) -> int: ...
    def set_xattr(self, ino: int, name: bytes, value: bytes, flags: int) -> None:
        """flags: 0, XATTR_CREATE = 1, XATTR_REPLACE = 2. Not for POSIX ACLs (EOPNOTSUPP)."""
    def set_acl(self, ino: int, name: bytes, value: bytes, caller: Caller) -> None:
        """name: ACL_ACCESS, of anything but a link, which changes the mode; or ACL_DEFAULT, of
        directories, which is handed down to what is made in them. EINVAL for what is no ACL. They
        are read, listed and removed as extended attributes are."""
    def get_xattr(self, ino: int, name: bytes) -> bytes: ...
    def list_xattrs(self, ino: int) -> list[bytes]: ...
    def remove_xattr(self, ino: int, name: bytes) -> None: ...

    # -- layers: what a commit publishes
    def writable_handles(self) -> list[int]:
        """Inodes with a live O_RDWR handle: mmap stores to them must be flushed before a freeze."""
    def is_dirty(self) -> bool: ...
    def lost_files(self) -> list[tuple[int, int]]:
        """(ino, bytes) of each named file of which the local disk has lost bytes. Not to be
        committed."""
    def lose_unreadable(self, ino: int) -> int:
        """Reads all staged bytes of a file and marks those the disk has lost; returns how many are.
        For after a failed read."""
    def names_of(self, inodes: Sequence[int]) -> list[tuple[int, int, bytes]]:
        """(ino, parent, name): a name of each, as far as directories in memory have one. Looks at
        every entry."""
    def freeze(self) -> int | None:
        """Closes the current layer under a number and starts the next: milliseconds, whatever has
        changed. None: nothing changed since the last commit. A failed earlier layer is part of the
        new one. At most one layer is frozen at a time."""
    #    A layer is read in pages, each behind `after` and in the order of the index's keys; an empty page is behind the last.
    def layer_inodes(self, layer: int, after: int, limit: int, contents: FileRows) -> list[InodeRow]:
        """Inodes whose row changed and which still have a name (nlink > 0), as they were at the
        freeze. Inodes in contents count the bytes that are mapped there."""
    def layer_removed(self, layer: int, after: int, limit: int) -> list[int]:
        """Inodes of the base version (or of an earlier layer) that have no name any more."""
    def layer_entries(self, layer: int, after: tuple[int, bytes], limit: int) -> list[tuple[int, bytes, int]]:
        """(parent, name, ino) of each directory entry that changed; ino 0: removed. after: parent
        and name."""
    def layer_contents(self, layer: int, after: int, limit: int) -> list[tuple[int, int]]:
        """(ino, data version) of each file whose extents changed and which still has a name."""
    def layer_totals(self, layer: int) -> tuple[int, int]:
        """How many files `layer_contents` has, and how many bytes of them are staged and in no
        chunk. Looks at every file."""
    def layer_small_files(
        self, layer: int, after: int, limit: int, stored: Sequence[FileRows], name_key: bytes | None = None
    ) -> SmallFiles:
        """Files of `layer_contents` behind `after`, in its order, with their bytes: up to the first
        that is not small (`native/engine/src/layers/small_files.rs`) or cannot be read, and no more
        than `limit`. stored: what was made of files before, small or not; the first that has this
        version of a file counts. ValueError: one of them is there twice."""
    def live_small_files(self, inodes: Sequence[int], name_key: bytes | None = None) -> SmallFiles:
        """The same of these files as they are now: up to the first that is not small, or gone."""
    def layer_extents(self, layer: int, ino: int) -> list[LayerExtent]: ...
    def layer_xattrs(self, layer: int, after: int, limit: int) -> list[tuple[int, list[tuple[bytes, bytes]]]]:
        """Inodes whose extended attributes changed, each with all it has."""
    def layer_next_ino(self, layer: int) -> int: ...
    def read_staged(self, segment: int, offset: int, length: int) -> bytes: ...
    def read_staged_into(self, segment: int, offset: int, target: bytearray | memoryview) -> None:
        """Fills the whole target, which nobody else may look at meanwhile; after an error it holds
        anything."""
    def layer_committed(self, layer: int, contents: FileRows) -> None:
        """The layer is in the store and its head number on local stable storage. For each file of
        contents: if it has not changed since the freeze its extents become these rows; else every
        range still mapped as it was frozen does. Staged bytes of the layer stay readable as a cache
        until `trim_staging`; its journal is removed. EINVAL, and nothing done, unless contents has
        every file of `layer_contents`, no other, each at its version."""
    def layer_failed(self, layer: int) -> None:
        """Joins the layer with the current one; nothing is lost."""
    def trim_staging(self, max_bytes: int) -> int:
        """Drops segments no uncommitted extent needs, oldest first, until clean ones and files kept
        for later segments hold at most max_bytes; returns bytes freed."""
    def committed_staged_bytes(self) -> int:
        """What `trim_staging(0)` would free at most: staged bytes that are in the store, a cache of
        what was written last, and files kept for later segments."""
    def relieve(self, wanted_bytes: int, *, is_refused: bool) -> int:
        """On a full local disk: frees about wanted_bytes of staging, what is cheapest to lose
        first, and takes the ballast back; returns bytes freed, 0 when trying again is in vain.
        is_refused: a call met ENOSPC, so each dead block counts. Counts extents and may sync; chunk
        files are not touched."""
    def restore_ballast(self) -> bool:
        """Takes back the space that is set aside for leaving a full disk, if there is room; whether
        bytes may be added."""
    def give_up_ballast(self) -> bool:
        """Gives up a part of it, for a commit or an unmount that needs a little space; False when
        none is left."""
    def checkpoint_when_due(self) -> bool:
        """Replaces the journal by a checkpoint of the state if it has become long or cannot be
        synced; whether it did. Syncs. A commit that begins or ends meanwhile is waited for, or does
        not wait long."""
    def checkpoint_before_close(self) -> bool:
        """Likewise if there is a journal that is worth it, so that the next mount has little to
        replay."""
    def reclaim_when_due(self, timeout_s: float) -> int:
        """Waits up to timeout_s until so much was staged that it may pay, then drops segments of
        which every byte was overwritten or removed, committed or not, and moves what is left in
        mostly dead ones; returns bytes freed. May sync."""
    def watch(self) -> int:
        """Begins to watch for changes; for `wait_changed`."""
    def wait_changed(self, since: int, timeout_s: float) -> None:
        """Waits until something was changed or loaded since the `watch` that gave `since`; at most
        timeout_s, and a day."""
    def end_waits(self) -> None:
        """The mount ends: `wait_changed` and `reclaim_when_due` return now."""
    def is_reclaim_overdue(self) -> bool:
        """Whether so much was overwritten that `reclaim_overdue` is to be called before the next
        write. Never waits."""
    def reclaim_overdue(self) -> int:
        """What `reclaim_when_due` does, if it is overdue still when a pass under way has ended."""
    def refused_stores(self) -> list[tuple[int, int, int]]:
        """(ino, bytes, errno) of each named file that lacks bytes stored through a mapping, since
        they could not be staged and nothing was written over them."""
    def is_broken(self) -> bool:
        """Whether a change was given up halfway: every call gives EIO. What was acknowledged is in
        the journal."""
    def quiet_files(self, idle_s: float, after: tuple[int, int], limit: int) -> list[tuple[tuple[int, int], int]]:
        """((time of the last write, ino), data version) of files with staged, uncommitted data not
        written for idle_s seconds.

        For background upload. Oldest first, only those behind `after`: pass the last one's first
        part to go on.
        """
    def staged_bytes(self) -> int:
        """Bytes that were staged since the mount, also those that nothing needs any more."""
    def growing_files(self, least_bytes: int, recent_s: float, most_extents: int, limit: int) -> list[int]:
        """Files of that size or more that were written within recent_s seconds, have no chunk at
        their beginning and not more extents, in no order."""
    def live_extents(self, ino: int) -> tuple[int, list[LayerExtent]]:
        """(data version, extents) of a file as it is now."""

class SurvivalTable:
    """What the next server of a mount must know if this one is killed, in shared memory
    (native/survival)."""

    @staticmethod
    def allocate() -> int:
        """A descriptor of new memory for a table, which the caller closes."""
    def __init__(self, descriptor: int, connection: int) -> None:
        """Maps a table, whose descriptor may be closed afterwards. connection: a random number
        above 0, for a table that is new. ValueError, with the reason, for anything else."""
    @property
    def is_continued(self) -> bool:
        """Whether a server has made the kernel's handshake, so that this one goes on."""
    @property
    def has_all_handles(self) -> bool:
        """Whether it had room for every handle."""

class Lane:
    """Answers the kernel's requests of one mount from its engine, on threads of its own
    (native/lane says how)."""

    def __init__(
        self,
        engine: Engine,
        *,
        device_fd: int,
        attr_ns: int,
        entry_ns: int,
        dir_entry_ns: int,
        passthrough: bool = False,
        spins: bool = False,
        transport: Literal["device", "uring"] = "device",
        owners: Owners | None = None,
        handshake: tuple[int, int, int, int] | None = None,
        table: SurvivalTable | None = None,
    ) -> None:
        """Takes over the descriptor, also when it fails (but for an argument of a wrong type, and
        EBADF for a negative number): a mounted /dev/fuse. passthrough: on a read-only mount let the
        kernel read whole local files by itself, if it can; needs CAP_SYS_ADMIN. spins: keep a
        processor busy while requests follow each other closely, where that is measured to pay.
        transport: what carries requests after the handshake. owners: None: everybody is shown as
        they are kept. handshake: what an earlier lane agreed on with the kernel (`handshake()`),
        for a descriptor whose INIT was answered; ValueError with the reason if this one cannot go
        on from it. table: the engine's (`keep_for_next_server`), which has the handshake as well;
        it excludes passthrough and io_uring."""
    def start(self) -> None:
        """OSError when this process may not use io_uring and was to."""
    def handshake(self) -> tuple[int, int, int, int] | None:
        """Waits until requests are answered: the protocol's minor number, features, bytes of the
        largest write, pages of the largest request. None: the lane has ended before."""
    def transport(self) -> Literal["device", "uring"]:
        """What carries requests; known after the handshake."""
    def wait(self) -> None:
        """Returns when the mount is gone or the lane was stopped; OSError when the device
        failed."""
    def stop(self, grace_ms: int) -> None:
        """Takes no request any more; those that wait have grace_ms to be answered, then they get
        EIO. The mount stays: its requests wait for whoever reads the descriptor next, or closes the
        last copy of it."""
    def next_wanted(self) -> tuple[int, NotResident | Literal["space", "room"]] | None:
        """Waits for a request that cannot be answered yet: its number, and what it needs: something
        resident, local disk space, or a reclaim pass (`Engine.reclaim_overdue`). To be answered by
        `resume` or `fail`. None: the lane has ended."""
    def waiting(self) -> list[tuple[int, str, float, bool]]:
        """(number, what it needs, for how many seconds, whether `next_wanted` has yet to return it)
        of each parked request."""
    def resume(self, unique: int) -> None: ...
    def fail(self, unique: int, errno: int) -> None: ...
    def invalidate_inode(self, ino: int) -> None:
        """The kernel writes back and drops every page of the inode; returns when the writes have
        been answered. Not from a thread that holds anything an answer needs. ENOENT: the kernel
        does not know the inode."""
    def invalidate_entry(self, parent: int, name: bytes) -> None:
        """The kernel forgets what a name of a directory leads to, or that it leads nowhere. Waits
        for requests about that directory. Not from a thread that one of them needs. ENOENT: the
        kernel does not know the name or the directory."""

def take_faults() -> list[tuple[str, int]]:
    """Why the native code of this process answered EIO since the last call: (reason, how often), of
    at most 64 different reasons."""

def cut_points(
    data: bytes | bytearray | memoryview,
    final: bool,
    begin: int = 0,
    end: int | None = None,
    gear: bytes | None = None,
) -> list[int]:
    """Content-defined chunk ends in data[begin:end], ascending, counted from the beginning of data.
    final False: only ends that no later bytes can move. Sizes: 128 KiB minimum, 512 KiB average, 2
    MiB maximum; `docs/format/chunks.md` says why. gear: another table than the public one, 256
    numbers of 8 bytes, big-endian. Nobody may write to data meanwhile."""

def plain_inodes(rows: list[InodeRow], last: int, next_ino: int) -> int:
    """How many of the first rows are plainly right by themselves, with numbers that ascend behind
    `last` and lie below next_ino. It says nothing about any other row."""

def plain_entries(rows: list[tuple[int, bytes, int]], last: tuple[int, bytes]) -> int:
    """The same of (parent, name, ino)."""

def plain_contents(rows: list[tuple[int, list[ExtentRow]]], last: int) -> int:
    """The same of a file's extents, (ino, rows)."""

def compressed(data: bytes | bytearray | memoryview) -> bytes | None:
    """data as one zstd frame that declares its content size; None where that saves less than 3 %.
    Nobody may write to data meanwhile."""

def zero_runs(data: bytes | bytearray | memoryview, minimum: int, end: int | None = None) -> list[tuple[int, int]]:
    """(offset, length) of the runs of zero bytes of at least `minimum` bytes in data[:end],
    ascending."""

class IgnorePatterns:
    """Lines as in `.gitignore`, of which the last that matches decides. Empty lines and comments
    match nothing, nor do patterns that git takes for broken."""

    def __init__(self, patterns: Sequence[bytes]) -> None: ...
    def ignores(self, path: bytes, is_directory: bool) -> bool:
        """The verdict on one entry, whatever is above it. path: relative, without a "/" at its
        end."""

def list_directory(fd: int) -> list[tuple[bytes, tuple[int, int, int, int, int, int, int]]]:
    """(name, (device, inode, mode, links, size, mtime ns, ctime ns)) of what is in an open
    directory, sorted by name; what vanishes meanwhile is left out. Links are not followed."""

def open_beneath(root: int, path: bytes, flags: int, mode: int = 0) -> int:
    """A descriptor of `path` below the directory `root`; b"" is the root itself. flags and mode as
    of `os.open`; O_CLOEXEC is added. OSError: ELOOP for a symbolic link anywhere in
    path, EXDEV for "..". The caller closes it."""

def read_small_files(
    fd: int, names: Sequence[bytes], limit: int, name_key: bytes | None, compresses: bool
) -> list[tuple[tuple[int, int, int, int, int, int, int], bytes, int, bytes] | None]:
    """Of each of these names in an open directory what `list_directory` tells, the name of the blob
    with all its bytes, by name_key if there is one, its codec and its stored bytes; all as they
    were at one moment. None: it is no regular file of at most `limit` bytes without holes, was
    changed within the last 20 ms or meanwhile, or cannot be opened."""
