//! Answers: a request becomes engine calls, and their results become reply bytes. Names,
//! attributes and listings are here, file contents in `bytes`.
//!
//! The kernel checks permissions (default_permissions), by ACLs too, and holds locks. It may also
//! remember that a name does not exist.

mod bytes;

use std::ops::Range;

use cowfs_base::{Attr, Errno, now_ns};
use cowfs_engine::{AttrChange, HandleId, depends_on_groups, is_acl, kept_acl, shown_acl};
use cowfs_fuse_abi::{
    CreateIn, FOPEN_KEEP_CACHE, FOPEN_NOFLUSH, Header, InitReply, IoIn, Listing, MINOR, Operation,
    Reply, SetAttrIn, Statistics, Terms, flag, opcode, set_attr,
};

use cowfs_mounted::{Error, Mounted, Result, shown_ino};

use crate::buffer::Data;
use crate::device::MAX_WRITE_BYTES;
use crate::handshake::{Handshake, MAX_PAGES, features};
use crate::lane::Shared;
use crate::passthrough::STACK_DEPTH;

/// Reads that wait for a store count; beyond this number reads of other files would wait behind
/// them in the kernel.
pub const MAX_BACKGROUND: u16 = 1024;
/// With this many requests in flight the kernel stops reading ahead.
pub const CONGESTION: u16 = 96;
const BLOCK_BYTES: u64 = 4096;
/// The error numbers that a reply may have: `fuse_dev_do_write` refuses all others.
const ERRNOS: Range<i32> = 1..512;
/// The free inodes that statfs reports: inode numbers have 64 bits, and a number of this size
/// confuses no program.
const FREE_INODES: u64 = 1 << 32;
const NAME_MAX_BYTES: u32 = 255;
/// Every change of a file goes through this kernel, so its pages never are out of date. Every write
/// was staged before it was answered, so closing a descriptor needs no work.
pub(crate) const OPENED: u32 = FOPEN_KEEP_CACHE | FOPEN_NOFLUSH;

/// The place of the request's number in a reply's header, behind length and error.
const UNIQUE_AT: usize = 8;

/// How long the kernel may cache an answer.
pub(crate) struct Lifetime {
    pub attr_ns: u64,
    pub entry_ns: u64,
    pub dir_entry_ns: u64,
}

/// In the number of a request that the kernel sends again.
pub(crate) const RESENT: u64 = 1 << 63;

/// A reply, and what to take back when the kernel does not want it.
#[derive(Default)]
pub(crate) struct Answer {
    pub message: Vec<u8>,
    /// Follows the message in the same write.
    pub data: Data,
    /// The inode whose count was raised.
    pub node: Option<u64>,
    /// The handle that was opened.
    pub opened: Option<HandleId>,
    /// The inodes whose counts a listing raised.
    pub listed: Vec<u64>,
    /// The reply to the kernel's handshake: the agreed values.
    pub agreed: Option<Handshake>,
}

impl Answer {
    /// The kernel rejects a reply with a number outside of `ERRNOS`, and the caller would wait
    /// without end.
    pub fn error(unique: u64, errno: Errno) -> Answer {
        let errno = match ERRNOS.contains(&errno.0) {
            true => errno,
            false => Errno::EIO,
        };
        Answer::plain(Reply::error(unique, errno.0))
    }

    /// The number of the request that it answers.
    pub fn unique(&self) -> u64 {
        let number = self.message.get(UNIQUE_AT..).and_then(<[u8]>::first_chunk);
        number.map_or(0, |number| u64::from_le_bytes(*number))
    }

    pub fn plain(reply: Reply) -> Answer {
        Answer {
            message: reply.finish(0),
            ..Answer::default()
        }
    }

    pub fn opened(reply: Reply, id: HandleId) -> Answer {
        Answer {
            opened: Some(id),
            ..Answer::plain(reply)
        }
    }
}

impl Shared {
    /// The reply to one request; an error that is NotResident means that nothing was changed.
    pub(crate) fn answer(&self, header: &Header, operation: Operation<'_>) -> Result<Answer> {
        if !self.is_continued() || !is_once(&operation) {
            return self.answer_once(header, operation);
        }
        let (engine, number) = (self.files.engine(), header.unique & !RESENT);
        if header.unique & RESENT != 0
            && let Some(result) = engine.result_of_request(number)
        {
            return self.answer_again(header, operation, result);
        }
        engine.for_request(number, || self.answer_once(header, operation))
    }

    /// The reply to a request that an earlier server applied and did not answer.
    fn answer_again(
        &self,
        header: &Header,
        operation: Operation<'_>,
        result: u64,
    ) -> Result<Answer> {
        let (engine, unique) = (self.files.engine(), header.unique);
        match operation {
            // The file was there, and was only opened.
            Operation::Create(..) if result == 0 => self.answer_once(header, operation),
            Operation::MkDir { .. }
            | Operation::MkNod { .. }
            | Operation::Symlink { .. }
            | Operation::Link { .. } => Ok(self.entry(unique, &engine.refer(result)?)),
            Operation::Create(create, _) => {
                let flags = create.flags as i32 & !libc::O_TRUNC;
                let id = engine.open_file(result, flags)?;
                Ok(self.created(unique, &engine.refer(result)?, id))
            }
            Operation::CopyFileRange { .. } => Ok(copied(header, result)),
            _ => Ok(Answer::plain(Reply::new(unique))),
        }
    }

    fn answer_once(&self, header: &Header, operation: Operation<'_>) -> Result<Answer> {
        let (files, unique, node) = (&*self.files, header.unique, header.nodeid);
        let done = || Answer::plain(Reply::new(unique));
        match operation {
            Operation::Init {
                minor,
                max_readahead,
                flags,
                ..
            } => {
                let offered = self.passthrough.features() | self.uring.features();
                let agreed = flags & (features(files.engine().is_read_only()) | offered);
                self.passthrough.agree(agreed);
                Ok(init(unique, minor, max_readahead, agreed))
            }
            Operation::Lookup { name } => self.lookup(unique, node, name),
            Operation::GetAttr => files
                .getattr(node)
                .map(|attr| self.attributes(unique, &attr)),
            Operation::SetAttr(change) => self.set_attributes(header, &change),
            Operation::ReadLink => {
                let target = files.readlink(node)?;
                Ok(Answer::plain(Reply::new(unique).bytes(&target)))
            }
            Operation::Symlink { name, target } => {
                let attr = files.own_parent(node, name)?.symlink(
                    node,
                    name,
                    target,
                    &self.caller(header, 0, 0),
                )?;
                Ok(self.entry(unique, &attr))
            }
            Operation::MkNod {
                mode,
                rdev,
                umask,
                name,
            } => {
                let attr = files.own_parent(node, name)?.mknod(
                    node,
                    name,
                    mode,
                    rdev,
                    &self.caller(header, umask, mode),
                )?;
                Ok(self.entry(unique, &attr))
            }
            Operation::MkDir { mode, umask, name } => {
                let attr = files.own_parent(node, name)?.mkdir(
                    node,
                    name,
                    mode,
                    &self.caller(header, umask, mode),
                )?;
                Ok(self.entry(unique, &attr))
            }
            Operation::Unlink { name } => {
                let caller = self.caller(header, 0, 0);
                files.own_parent(node, name)?.unlink(node, name, &caller)?;
                Ok(done())
            }
            Operation::RmDir { name } => {
                let caller = self.caller(header, 0, 0);
                files.own_parent(node, name)?.rmdir(node, name, &caller)?;
                Ok(done())
            }
            Operation::Rename {
                new_parent,
                flags,
                name,
                new_name,
            } => {
                files.own_parent(node, name)?;
                let engine = files.own_parent(new_parent, new_name)?;
                let caller = self.caller(header, 0, 0);
                engine.rename(node, name, new_parent, new_name, flags, &caller)?;
                Ok(done())
            }
            Operation::Link { nodeid, name } => {
                let engine = files.own_parent(node, name)?;
                let attr = engine.link(files.own_source(nodeid)?, node, name)?;
                Ok(self.entry(unique, &attr))
            }
            Operation::Create(create, name) => self.create(header, &create, name),
            Operation::StatFs => statistics(files, unique),
            Operation::SetXattr { name, value, .. } if is_acl(name) => {
                self.set_acl(header, name, value).map(|()| done())
            }
            Operation::SetXattr { flags, name, value } => {
                files.own(node)?.set_xattr(node, name, value, flags)?;
                Ok(done())
            }
            Operation::GetXattr { size, name } => {
                let mut value = files.get_xattr(node, name)?;
                if is_acl(name) {
                    value = shown_acl(&value, &self.owners)?;
                }
                sized(unique, size, value)
            }
            Operation::ListXattr { size } => {
                let mut names = Vec::new();
                for name in files.list_xattrs(node)? {
                    names.extend_from_slice(&name);
                    names.push(0);
                }
                sized(unique, size, names)
            }
            Operation::RemoveXattr { name } => {
                files.own(node)?.remove_xattr(node, name)?;
                Ok(done())
            }
            Operation::OpenDir => {
                let id = files.open_directory(node)?;
                Ok(Answer::opened(Reply::new(unique).opened(id.fh, 0), id))
            }
            Operation::ReadDir(io) => self.list(header, &io, false),
            Operation::ReadDirPlus(io) => self.list(header, &io, true),
            Operation::ReleaseDir { fh } => {
                let id = HandleId { ino: node, fh };
                files.release_directory(id).map(|()| done())
            }
            Operation::Destroy => Ok(done()),
            other => self.answer_about_bytes(header, other),
        }
    }

    fn lookup(&self, unique: u64, parent: u64, name: &[u8]) -> Result<Answer> {
        match self.files.lookup(parent, name) {
            Ok(attr) => Ok(self.entry(unique, &attr)),
            Err(Error::Os(Errno::ENOENT)) if self.lifetime.entry_ns > 0 => {
                let absent = Terms {
                    generation: 0,
                    entry_ns: self.lifetime.entry_ns,
                    attr_ns: 0,
                };
                let reply = Reply::new(unique).entry(0, &Attr::default(), absent);
                Ok(Answer::plain(reply))
            }
            Err(error) => Err(error),
        }
    }

    fn set_attributes(&self, header: &Header, asked: &SetAttrIn) -> Result<Answer> {
        let given = |bit: u32| asked.valid & bit != 0;
        let is_beyond = |bit: u32, now: u32, ns: i64| {
            given(bit) && !given(now) && (ns == i64::MIN || ns == i64::MAX)
        };
        if is_beyond(set_attr::ATIME, set_attr::ATIME_NOW, asked.atime_ns)
            || is_beyond(set_attr::MTIME, set_attr::MTIME_NOW, asked.mtime_ns)
        {
            // Otherwise another time than the requested one would be stored.
            return Err(Errno::EINVAL.into());
        }
        let time = |bit: u32, now: u32, ns: i64| {
            given(bit).then(|| if given(now) { now_ns() } else { ns })
        };
        let change = AttrChange {
            mode: given(set_attr::MODE).then_some(asked.mode & 0o7777),
            uid: given(set_attr::UID).then(|| self.owners.kept_user(asked.uid)),
            gid: given(set_attr::GID).then(|| self.owners.kept_group(asked.gid)),
            size: given(set_attr::SIZE).then_some(asked.size),
            atime_ns: time(set_attr::ATIME, set_attr::ATIME_NOW, asked.atime_ns),
            mtime_ns: time(set_attr::MTIME, set_attr::MTIME_NOW, asked.mtime_ns),
            ctime_ns: given(set_attr::CTIME).then_some(asked.ctime_ns),
        };
        let mut mode = change.mode.unwrap_or(0);
        if change.mode.is_none() && header.uid != 0 {
            // A new size or owner clears set-id bits, which ones the groups decide.
            let known = self.files.getattr(header.nodeid).map(|attr| attr.mode);
            mode = known
                .ok()
                .filter(|mode| depends_on_groups(*mode))
                .unwrap_or(0);
        }
        let caller = self.caller(header, 0, mode);
        let engine = self.files.own(header.nodeid)?;
        let attr = engine.setattr(header.nodeid, &caller, &change)?;
        Ok(self.attributes(header.unique, &attr))
    }

    /// The kernel sets an ACL without flags.
    fn set_acl(&self, header: &Header, name: &[u8], value: &[u8]) -> Result<()> {
        let engine = self.files.own(header.nodeid)?;
        let known = engine.getattr(header.nodeid);
        let caller = self.caller(header, 0, known.map_or(0, |attr| attr.mode));
        let kept = kept_acl(value, &self.owners)?;
        Ok(engine.set_acl(header.nodeid, name, &kept, &caller)?)
    }

    fn create(&self, header: &Header, create: &CreateIn, name: &[u8]) -> Result<Answer> {
        let caller = self.caller(header, create.umask, create.mode);
        let flags = create.flags as i32;
        let engine = self.files.own_parent(header.nodeid, name)?;
        let (attr, id) = engine.create(header.nodeid, name, create.mode, flags, &caller)?;
        Ok(self.created(header.unique, &attr, id))
    }

    pub(crate) fn created(&self, unique: u64, attr: &Attr, id: HandleId) -> Answer {
        let reply = Reply::new(unique).entry(attr.ino, &self.shown(attr), self.terms(attr));
        Answer {
            node: Some(attr.ino),
            ..Answer::opened(reply.opened(id.fh, OPENED), id)
        }
    }

    fn entry(&self, unique: u64, attr: &Attr) -> Answer {
        let reply = Reply::new(unique).entry(attr.ino, &self.shown(attr), self.terms(attr));
        Answer {
            node: Some(attr.ino),
            ..Answer::plain(reply)
        }
    }

    /// Attributes as programs see them: the only code that puts an owner, or the number of an
    /// inode, into a reply.
    fn shown(&self, attr: &Attr) -> Attr {
        Attr {
            ino: shown_ino(attr.ino),
            uid: self.owners.shown_user(attr.uid),
            gid: self.owners.shown_group(attr.gid),
            ..attr.clone()
        }
    }

    fn attributes(&self, unique: u64, attr: &Attr) -> Answer {
        Answer::plain(Reply::new(unique).attributes(&self.shown(attr), self.lifetime.attr_ns))
    }

    fn list(&self, header: &Header, io: &IoIn, plus: bool) -> Result<Answer> {
        let room = io.size.min(MAX_WRITE_BYTES) as usize;
        let mut listing = Listing::new(header.unique, room);
        let mut listed = Vec::new();
        let id = HandleId {
            ino: header.nodeid,
            fh: io.fh,
        };
        self.files
            .list_directory(id, io.offset, plus, |name, cookie, attr| {
                if !plus {
                    return listing.add(name, cookie, shown_ino(attr.ino), attr.mode);
                }
                let shown = self.shown(attr);
                if name == b"." || name == b".." || self.files.is_only_named(attr.ino) {
                    return listing.add_plus(name, cookie, 0, &shown, Terms::default());
                }
                let fits = listing.add_plus(name, cookie, attr.ino, &shown, self.terms(attr));
                if fits {
                    listed.push(attr.ino);
                }
                fits
            })?;
        Ok(Answer {
            message: listing.finish(),
            listed,
            ..Answer::default()
        })
    }

    fn terms(&self, attr: &Attr) -> Terms {
        let is_directory = attr.mode & libc::S_IFMT == libc::S_IFDIR;
        let entry_ns = if self.files.may_move(attr.ino) {
            0
        } else if is_directory {
            self.lifetime.dir_entry_ns
        } else {
            self.lifetime.entry_ns
        };
        Terms {
            generation: self.files.generation(attr.ino),
            entry_ns,
            attr_ns: self.lifetime.attr_ns,
        }
    }
}

fn init(unique: u64, minor: u32, max_readahead: u32, flags: u64) -> Answer {
    let agreed = Handshake {
        minor: minor.min(MINOR),
        flags,
        max_write: MAX_WRITE_BYTES,
        max_pages: MAX_PAGES,
    };
    let reply = Reply::new(unique).init(&InitReply {
        minor: agreed.minor,
        max_readahead,
        flags,
        max_background: MAX_BACKGROUND,
        congestion_threshold: CONGESTION,
        max_write: agreed.max_write,
        max_pages: agreed.max_pages,
        max_stack_depth: match flags & flag::PASSTHROUGH {
            0 => 0,
            _ => STACK_DEPTH,
        },
    });
    Answer {
        agreed: Some(agreed),
        ..Answer::plain(reply)
    }
}

/// The value of an attribute, or only its length where the caller has said no size.
fn sized(unique: u64, size: u32, value: Vec<u8>) -> Result<Answer> {
    if size == 0 {
        return Ok(Answer::plain(Reply::new(unique).size(value.len() as u32)));
    }
    if value.len() > size as usize {
        return Err(Errno::ERANGE.into());
    }
    Ok(Answer::plain(Reply::new(unique).bytes(&value)))
}

fn statistics(files: &Mounted, unique: u64) -> Result<Answer> {
    let (used_bytes, inodes, free_bytes) = files.engine().statfs()?;
    let blocks_free = free_bytes / BLOCK_BYTES;
    let found = Statistics {
        blocks: blocks_free + used_bytes.div_ceil(BLOCK_BYTES),
        blocks_free,
        files: inodes + FREE_INODES,
        files_free: FREE_INODES,
        name_max: NAME_MAX_BYTES,
    };
    Ok(Answer::plain(Reply::new(unique).statistics(&found)))
}

/// The error for an operation that this file does not answer. Never ENOSYS for one that another
/// file may answer.
pub(crate) fn unknown(number: u32) -> Errno {
    match number {
        opcode::IOCTL => Errno(libc::ENOTTY),
        _ => Errno(libc::ENOSYS),
    }
}

/// Whether the operation does something else when it is applied a second time.
fn is_once(operation: &Operation<'_>) -> bool {
    matches!(
        operation,
        Operation::Create(..)
            | Operation::MkNod { .. }
            | Operation::MkDir { .. }
            | Operation::Symlink { .. }
            | Operation::Link { .. }
            | Operation::Unlink { .. }
            | Operation::RmDir { .. }
            | Operation::Rename { .. }
            | Operation::SetXattr { flags: 1.., .. }
            | Operation::RemoveXattr { .. }
            | Operation::CopyFileRange { .. }
    )
}

fn copied(header: &Header, bytes: u64) -> Answer {
    let reply = Reply::new(header.unique);
    Answer::plain(match header.opcode {
        opcode::COPY_FILE_RANGE => reply.size(bytes as u32),
        _ => reply.number(bytes),
    })
}
