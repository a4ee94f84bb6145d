//! Encoding of replies.

use cowfs_base::Attr;

use crate::MAJOR;
use crate::init::InitReply;

/// Bytes in front of every reply's body.
pub const REPLY_HEADER_BYTES: usize = 16;
/// Pages of the file stay valid when it is opened again.
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// Closing a descriptor needs no request of its own.
pub const FOPEN_NOFLUSH: u32 = 1 << 5;

/// The kernel reads from the file behind the backing id, and keeps no pages.
const FOPEN_PASSTHROUGH: u32 = 1 << 7;
const BLOCK_BYTES: u32 = 4096;
const ENTRY_BYTES: usize = 128;
const DIRENT_BYTES: usize = 24;
const NOTIFY_INVAL_INODE: i32 = 2;
const NOTIFY_INVAL_ENTRY: i32 = 3;
const NOTIFY_RESEND: i32 = 7;

/// The part of an entry besides the attributes: how long the kernel may cache it, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terms {
    /// For the fact that the name leads to the inode, or does not exist.
    pub entry_ns: u64,
    /// For the attributes.
    pub attr_ns: u64,
    /// Tells the inode from others that had its number, or will: file handles hold both.
    pub generation: u64,
}

/// The reply to STATFS, in blocks of 4096 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of statvfs(3)")]
pub struct Statistics {
    pub blocks: u64,
    pub blocks_free: u64,
    pub files: u64,
    pub files_free: u64,
    pub name_max: u32,
}

/// One reply under construction: its header, its body, ready to be written in one call.
#[derive(Debug, Clone)]
pub struct Reply(Vec<u8>);

impl Reply {
    /// A success without a body.
    pub fn new(unique: u64) -> Reply {
        Reply::start(unique, 0, 160)
    }

    /// A failure; `errno` is positive.
    pub fn error(unique: u64, errno: i32) -> Reply {
        Reply::start(unique, -errno, REPLY_HEADER_BYTES)
    }

    fn start(unique: u64, error: i32, capacity: usize) -> Reply {
        let mut reply = Reply(Vec::with_capacity(capacity));
        reply.u32(0).u32(error as u32).u64(unique);
        reply
    }

    /// The finished message; `behind` more bytes of body follow it in the same write.
    pub fn finish(mut self, behind: usize) -> Vec<u8> {
        let length = (self.0.len() + behind) as u32;
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        self.0
    }

    /// Raw bytes.
    pub fn bytes(mut self, bytes: &[u8]) -> Reply {
        self.0.extend_from_slice(bytes);
        self
    }

    /// LOOKUP and everything that makes an entry. `node`: the number by which the kernel is to name
    /// the inode; 0: the name leads nowhere. The inode number in `attr` is the one programs see.
    pub fn entry(mut self, node: u64, attr: &Attr, terms: Terms) -> Reply {
        self.put_entry(node, attr, terms);
        self
    }

    /// GETATTR, SETATTR.
    pub fn attributes(mut self, attr: &Attr, attr_ns: u64) -> Reply {
        let (seconds, nanoseconds) = (attr_ns / 1_000_000_000, (attr_ns % 1_000_000_000) as u32);
        self.u64(seconds).u32(nanoseconds).u32(0).put_attr(attr);
        self
    }

    /// OPEN, OPENDIR; CREATE behind its entry.
    pub fn opened(mut self, fh: u64, open_flags: u32) -> Reply {
        self.u64(fh).u32(open_flags).u32(0);
        self
    }

    /// OPEN of a file that the kernel reads from another one, as `backing_open` has numbered it.
    pub fn opened_passthrough(mut self, fh: u64, open_flags: u32, backing_id: u32) -> Reply {
        self.u64(fh)
            .u32(open_flags | FOPEN_PASSTHROUGH)
            .u32(backing_id);
        self
    }

    /// WRITE, COPY_FILE_RANGE; the size of an attribute that was only measured.
    pub fn size(mut self, bytes: u32) -> Reply {
        self.u32(bytes).u32(0);
        self
    }

    /// LSEEK, the 64-bit COPY_FILE_RANGE.
    pub fn number(mut self, number: u64) -> Reply {
        self.u64(number);
        self
    }

    /// STATFS.
    pub fn statistics(mut self, found: &Statistics) -> Reply {
        self.u64(found.blocks)
            .u64(found.blocks_free)
            .u64(found.blocks_free)
            .u64(found.files)
            .u64(found.files_free);
        self.u32(BLOCK_BYTES)
            .u32(found.name_max)
            .u32(BLOCK_BYTES)
            .u32(0);
        self.0.resize(self.0.len() + 24, 0);
        self
    }

    /// INIT.
    pub fn init(mut self, init: &InitReply) -> Reply {
        self.u32(MAJOR)
            .u32(init.minor)
            .u32(init.max_readahead)
            .u32(init.flags as u32);
        self.u32(u32::from(init.max_background) | u32::from(init.congestion_threshold) << 16);
        self.u32(init.max_write)
            .u32(1)
            .u32(u32::from(init.max_pages))
            .u32((init.flags >> 32) as u32)
            .u32(init.max_stack_depth);
        self.0.resize(REPLY_HEADER_BYTES + 64, 0);
        self
    }

    fn put_entry(&mut self, node: u64, attr: &Attr, terms: Terms) {
        let split = |ns: u64| (ns / 1_000_000_000, (ns % 1_000_000_000) as u32);
        let (entry, attr_time) = (split(terms.entry_ns), split(terms.attr_ns));
        self.u64(node)
            .u64(terms.generation)
            .u64(entry.0)
            .u64(attr_time.0);
        self.u32(entry.1).u32(attr_time.1).put_attr(attr);
    }

    fn put_attr(&mut self, attr: &Attr) {
        let times = [attr.atime_ns, attr.mtime_ns, attr.ctime_ns];
        self.u64(attr.ino).u64(attr.size).u64(attr.blocks);
        for ns in times {
            self.u64(ns.div_euclid(1_000_000_000) as u64);
        }
        for ns in times {
            self.u32(ns.rem_euclid(1_000_000_000) as u32);
        }
        self.u32(attr.mode)
            .u32(attr.nlink)
            .u32(attr.uid)
            .u32(attr.gid)
            .u32(attr.rdev)
            .u32(BLOCK_BYTES)
            .u32(0);
    }

    fn u32(&mut self, number: u32) -> &mut Reply {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn u64(&mut self, number: u64) -> &mut Reply {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }
}

/// A READDIR or READDIRPLUS reply that grows up to the size the kernel has room for.
#[derive(Debug)]
pub struct Listing {
    reply: Reply,
    limit: usize,
}

impl Listing {
    /// `room`: how many bytes of entries the kernel takes.
    pub fn new(unique: u64, room: usize) -> Listing {
        Listing {
            reply: Reply::start(unique, 0, REPLY_HEADER_BYTES + room),
            limit: REPLY_HEADER_BYTES + room,
        }
    }

    /// Adds an entry; returns false, and does nothing, if there is no room for it.
    pub fn add(&mut self, name: &[u8], cookie: u64, ino: u64, mode: u32) -> bool {
        self.fits(DIRENT_BYTES, name) && self.put(name, cookie, ino, mode)
    }

    /// `add` with the reply that a LOOKUP of it would get; node 0: none, the kernel has to look it
    /// up.
    pub fn add_plus(
        &mut self,
        name: &[u8],
        cookie: u64,
        node: u64,
        attr: &Attr,
        terms: Terms,
    ) -> bool {
        if !self.fits(ENTRY_BYTES + DIRENT_BYTES, name) {
            return false;
        }
        self.reply.put_entry(node, attr, terms);
        self.put(name, cookie, attr.ino, attr.mode)
    }

    /// The finished message.
    pub fn finish(self) -> Vec<u8> {
        self.reply.finish(0)
    }

    fn fits(&self, fixed: usize, name: &[u8]) -> bool {
        self.reply.0.len() + fixed + name.len().next_multiple_of(8) <= self.limit
    }

    fn put(&mut self, name: &[u8], cookie: u64, ino: u64, mode: u32) -> bool {
        self.reply
            .u64(ino)
            .u64(cookie)
            .u32(name.len() as u32)
            .u32((mode >> 12) & 0xf);
        self.reply.0.extend_from_slice(name);
        let padded = self.reply.0.len().next_multiple_of(8);
        self.reply.0.resize(padded, 0);
        true
    }
}

/// The notice that makes the kernel write back and drop every page of an inode.
pub fn invalidate_inode(ino: u64) -> Vec<u8> {
    let mut notice = Reply::start(0, NOTIFY_INVAL_INODE, 40);
    notice.u64(ino).u64(0).u64(0);
    notice.finish(0)
}

/// The notice that makes the kernel look a name up again, and ask for its directory's attributes
/// and entries again.
pub fn invalidate_entry(parent: u64, name: &[u8]) -> Vec<u8> {
    let mut notice = Reply::start(0, NOTIFY_INVAL_ENTRY, 32 + name.len() + 1);
    notice.u64(parent).u32(name.len() as u32).u32(0);
    notice.0.extend_from_slice(name);
    notice.0.push(0);
    notice.finish(0)
}

/// The notice that makes the kernel send all requests again that were taken and not answered. Their
/// numbers then have the highest bit, also in the replies.
pub fn resend() -> Vec<u8> {
    Reply::start(0, NOTIFY_RESEND, 0).finish(0)
}
