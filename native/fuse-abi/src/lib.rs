//! The wire format between the kernel and a FUSE server, as `include/uapi/linux/fuse.h` of protocol
//! 7.45 has it.
//!
//! Every message is one read or one write of the device; numbers are little-endian (the host's
//! order on every machine this is built for), structures packed as listed, names end with a zero
//! byte.
//!
//! ```text
//! request   length opcode u32, unique nodeid u64, uid gid pid u32, extensions u16 (8-byte units, at the end), padding u16; body
//! reply     length u32, error i32 (negative errno), unique u64; body unless there is an error
//! notice    as a reply with unique 0, the notice's code in `error`
//!
//! INIT            in  major minor max_readahead flags flags2 u32, …   out  `InitReply`, 64 bytes
//! LOOKUP UNLINK RMDIR REMOVEXATTR                in  name
//! FORGET          in  count u64            BATCH_FORGET    in  n padding u32, n × (nodeid count u64); neither has a reply
//! GETATTR         in  flags padding u32, fh u64                       out  attr reply
//! SETATTR         in  valid padding u32, fh size lock_owner atime mtime ctime u64, atimensec mtimensec ctimensec mode - uid gid - u32
//! SYMLINK         in  name, target         LINK            in  old nodeid u64, name
//! MKNOD           in  mode rdev umask padding u32, name               MKDIR  in  mode umask u32, name
//! CREATE TMPFILE  in  flags mode umask open_flags u32, name           out  entry, open reply
//! RENAME          in  new parent u64, name, new name                  RENAME2  in  new parent u64, flags padding u32, names
//! OPEN OPENDIR    in  flags open_flags u32                            out  fh u64, open_flags backing_id u32
//! READ READDIR READDIRPLUS   in  fh offset u64, size flags u32, lock_owner u64, flags padding u32
//! WRITE           in  the same 40 bytes, data                         out  size padding u32
//! RELEASE RELEASEDIR  in  fh u64, flags release_flags u32, lock_owner u64
//! FLUSH           in  fh u64, -, - u32, lock_owner u64                FSYNC FSYNCDIR  in  fh u64, flags padding u32
//! SETXATTR        in  size flags u32, name, value                     GETXATTR  in  size padding u32, name
//! LISTXATTR       in  size padding u32     INTERRUPT       in  unique u64 (of the request it is about); no reply
//! FALLOCATE       in  fh offset length u64, mode padding u32          LSEEK  in  fh offset u64, whence padding u32   out  u64
//! COPY_FILE_RANGE in  fh offset nodeid_out fh_out offset_out length flags u64   out  size padding u32; its _64 form: size u64
//! entry           nodeid generation entry_valid attr_valid u64, entry_valid_ns attr_valid_ns u32, attr (88 bytes)
//! attr            ino size blocks atime mtime ctime u64, atimensec mtimensec ctimensec mode nlink uid gid rdev blksize flags u32
//! attr reply      attr_valid u64, attr_valid_ns padding u32, attr
//! dirent          ino cookie u64, namelen type u32, name, padded to 8; direntplus: entry before it
//! statfs          blocks bfree bavail files ffree u64, bsize namelen frsize padding u32, 6 × spare u32
//! ```
//!
//! Guarantees: no input makes the parser panic, read outside of its bytes, or allocate. A message
//! that is too short, or has a name without a zero byte, is refused as a whole. Not here: what a
//! request means, and any I/O.

mod init;
pub mod opcode;
mod reply;
mod request;
pub mod ring;

pub use init::{InitReply, flag};
pub use reply::{
    FOPEN_KEEP_CACHE, FOPEN_NOFLUSH, Listing, REPLY_HEADER_BYTES, Reply, Statistics, Terms,
    invalidate_entry, invalidate_inode, resend,
};
pub use request::{
    CreateIn, Forgets, HEADER_BYTES, Header, IoIn, Operation, SetAttrIn, WRITE_CACHE,
    WRITE_KILL_SUIDGID, set_attr,
};

/// The protocol this crate speaks.
pub const MAJOR: u32 = 7;
/// Its minor number; the kernel takes what both know.
pub const MINOR: u32 = 45;

#[cfg(test)]
mod tests;
