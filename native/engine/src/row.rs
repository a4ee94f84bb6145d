//! Rows of the index as the engine takes them in and hands them out, and who a caller is.
//!
//! Rows come from a store and are not trusted: `check` refuses what the engine could not keep its
//! invariants with.

use std::sync::Arc;

use cowfs_base::{ChunkHash, Errno, Ino, LAST_INO, Owners, Segment};

/// The inode has extended attributes.
pub const INODE_HAS_XATTRS: u32 = 1;

/// Longest name of a directory entry.
pub const NAME_MAX_BYTES: usize = 255;
/// Longest target of a symbolic link.
pub const TARGET_MAX_BYTES: usize = 4095;
/// Largest size of a file: what an `off_t` can say.
pub const SIZE_MAX_BYTES: u64 = i64::MAX as u64;

pub(crate) const S_IFMT: u32 = libc::S_IFMT;
pub(crate) const S_IFDIR: u32 = libc::S_IFDIR;
pub(crate) const S_IFREG: u32 = libc::S_IFREG;
pub(crate) const S_IFLNK: u32 = libc::S_IFLNK;

/// One inode as the index has it. `mode` includes the file type. `mapped_bytes` is the sum of its
/// extents, so the allocated size is known before they are here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the fields of stat(2)")]
pub struct InodeRow {
    pub ino: Ino,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub size: u64,
    pub mapped_bytes: u64,
    pub atime_ns: i64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    pub flags: u32,
    pub target: Box<[u8]>,
}

impl InodeRow {
    /// Refuses (EIO) a row the engine cannot hold: an impossible number, no known type, an
    /// impossible size or target, more bytes mapped than it has.
    pub fn check(&self) -> Result<(), Errno> {
        let known_type = matches!(
            self.mode & S_IFMT,
            S_IFDIR
                | S_IFREG
                | S_IFLNK
                | libc::S_IFIFO
                | libc::S_IFSOCK
                | libc::S_IFCHR
                | libc::S_IFBLK
        );
        let target_fits = match self.mode & S_IFMT {
            S_IFLNK => (1..=TARGET_MAX_BYTES).contains(&self.target.len()),
            _ => self.target.is_empty(),
        };
        let mapped_max_bytes = if self.mode & S_IFMT == S_IFREG {
            self.size
        } else {
            0
        };
        if !(1..=LAST_INO).contains(&self.ino)
            || !known_type
            || self.size > SIZE_MAX_BYTES
            || self.mapped_bytes > mapped_max_bytes
            || !target_fits
        {
            return Err(Errno::EIO);
        }
        Ok(())
    }
}

/// The place of one chunk: enough to fetch, decode and verify it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the index")]
pub struct ChunkRef {
    pub hash: ChunkHash,
    pub pack: u64,
    pub offset: u64,
    pub stored_length: u32,
    pub raw_length: u32,
    pub codec: u32,
}

/// One mapped range of a file as the index has it: `length` bytes of `chunk` from `skip` on, shown
/// at `offset`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the index")]
pub struct ExtentRow {
    pub offset: u64,
    pub length: u64,
    pub chunk: ChunkRef,
    pub skip: u32,
}

impl ExtentRow {
    /// Refuses (EIO) an extent that is empty, shows more than its chunk has, or ends behind the
    /// largest file.
    pub fn check(&self) -> Result<(), Errno> {
        let end = self.offset.checked_add(self.length).ok_or(Errno::EIO)?;
        let shown_end = u64::from(self.skip)
            .checked_add(self.length)
            .ok_or(Errno::EIO)?;
        if self.length == 0 || end > SIZE_MAX_BYTES || shown_end > u64::from(self.chunk.raw_length)
        {
            return Err(Errno::EIO);
        }
        Ok(())
    }
}

/// One mapped range of a file in a layer or as it is now: staged, in a chunk, or both (uploaded and
/// still cached).
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "as `ExtentRow`; `staged` is (segment, offset in it)"
)]
pub struct LayerExtent {
    pub offset: u64,
    pub length: u64,
    pub staged: Option<(Segment, u64)>,
    pub chunk: Option<Arc<ChunkRef>>,
    pub skip: u32,
}

/// The caller of a request, as the kernel knows it. `groups`: supplementary groups, None when they
/// are not known (then the kernel's own checks stand alone). `owners`: the ids that the mount shows
/// in place of stored ones; rows have the stored ids.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "the fields of a FUSE request")]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    pub umask: u32,
    pub groups: Option<Vec<u32>>,
    pub owners: Owners,
}

impl Caller {
    /// Whether files stored under this user belong to the caller.
    pub fn owns(&self, uid: u32) -> bool {
        self.owners.shown_user(uid) == self.uid
    }

    /// Whether the caller is known not to belong to the group stored as `gid`, and not to be root.
    pub fn is_outside_group(&self, gid: u32) -> bool {
        let Some(groups) = &self.groups else {
            return false;
        };
        let gid = self.owners.shown_group(gid);
        self.uid != 0 && self.gid != gid && !groups.contains(&gid)
    }
}

/// Refuses a name no directory entry can have.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name {
        b"" => Err(Errno::ENOENT),
        _ if name.len() > NAME_MAX_BYTES => Err(Errno::ENAMETOOLONG),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}
