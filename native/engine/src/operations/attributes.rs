//! Changes attributes. The kernel checks permission. The consequences of a change (set-id bits,
//! times) are decided here.

use cowfs_base::{Attr, Errno, Ino, now_ns};

use crate::acl::{ACL_ACCESS, changed_by_mode};
use crate::effect::Effect;
use crate::engine::Engine;
use crate::error::Result;
use crate::inode::Inode;
use crate::row::{Caller, InodeRow, S_IFMT, SIZE_MAX_BYTES};
use crate::state::State;

pub(crate) const S_ISUID: u32 = libc::S_ISUID;
pub(crate) const S_ISGID: u32 = libc::S_ISGID;
pub(crate) const S_ISVTX: u32 = libc::S_ISVTX;
const S_IXGRP: u32 = libc::S_IXGRP;

/// The attributes to change; None leaves one as it is.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "the fields of stat(2)")]
pub struct AttrChange {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime_ns: Option<i64>,
    pub mtime_ns: Option<i64>,
    pub ctime_ns: Option<i64>,
}

impl AttrChange {
    /// chown(-1, -1) changes no owner and still clears set-id bits; it is the only empty request
    /// that the kernel sends.
    fn is_chown(&self) -> bool {
        let is_other = self.mode.is_some()
            || self.size.is_some()
            || self.atime_ns.is_some()
            || self.mtime_ns.is_some();
        self.uid.is_some() || self.gid.is_some() || (!is_other && self.ctime_ns.is_none())
    }
}

impl Engine {
    /// Changes attributes. A smaller size unmaps the bytes behind it; a larger one adds a hole.
    pub fn setattr(&self, ino: Ino, caller: &Caller, change: &AttrChange) -> Result<Attr> {
        Engine::change_attributes(&mut *self.change()?, ino, caller, change)
    }

    pub(crate) fn change_attributes(
        state: &mut State,
        ino: Ino,
        caller: &Caller,
        change: &AttrChange,
    ) -> Result<Attr> {
        let inode = state.inode(ino)?;
        let (mut effects, mut cut_at) = (Vec::with_capacity(2), None);
        let now_ns = now_ns();
        let mut row = with_owner_and_mode(inode, caller, change);
        if let Some(size) = change.size {
            check_size(inode, size)?;
            if size < inode.size || (size == inode.size && inode.has_allocated()) {
                if size > 0 || inode.has_xattrs() {
                    state.content(ino)?;
                }
                effects.push(Effect::Unmap {
                    ino,
                    from: size,
                    to: u64::MAX,
                });
                cut_at = Some(size);
            }
            row.size = size;
            row.mtime_ns = now_ns;
            if caller.uid != 0 && change.mode.is_none() {
                row = Clears::by(caller, row.gid).apply(row);
            }
        }
        row.atime_ns = change.atime_ns.unwrap_or(row.atime_ns);
        row.mtime_ns = change.mtime_ns.unwrap_or(row.mtime_ns);
        row.ctime_ns = change.ctime_ns.unwrap_or(now_ns);
        let acl = match change.mode {
            Some(_) => changed_by_mode(state, ino, row.mode)?,
            None => None,
        };
        if let Some(value) = &acl {
            effects.push(Effect::PutXattr {
                ino,
                name: ACL_ACCESS,
                value,
            });
        }
        effects.push(Effect::PutInode(row));
        Engine::record(state, &effects)?;
        if let Some(size) = cut_at {
            state.refused.store_again(ino, size, u64::MAX);
        }
        Ok(state.inode(ino)?.attr())
    }
}

fn check_size(inode: &Inode, size: u64) -> Result<()> {
    if inode.is_directory() {
        return Err(Errno::EISDIR.into());
    }
    if !inode.is_file() {
        return Err(Errno::EINVAL.into());
    }
    if size > SIZE_MAX_BYTES {
        return Err(Errno::EFBIG.into());
    }
    Ok(())
}

fn with_owner_and_mode(inode: &Inode, caller: &Caller, change: &AttrChange) -> InodeRow {
    let mut row = inode.row();
    if change.is_chown() && change.mode.is_none() && !inode.is_directory() {
        row = Clears::by(caller, row.gid).apply(row);
    }
    row.uid = change.uid.unwrap_or(row.uid);
    row.gid = change.gid.unwrap_or(row.gid);
    if let Some(mode) = change.mode {
        row.mode = (row.mode & S_IFMT) | (mode & !S_IFMT);
        if caller.is_outside_group(row.gid) {
            row.mode &= !S_ISGID;
        }
    }
    row
}

/// Which set-id bits a change of a file's bytes clears: for root none; for others set-user-id, and
/// set-group-id where the group may execute or where they do not belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "said above")]
pub enum Clears {
    Nothing,
    ForMember,
    ForOutsider,
}

impl From<bool> for Clears {
    /// Whether bits are cleared, for a caller whose groups are not known.
    fn from(clears: bool) -> Clears {
        match clears {
            true => Clears::ForMember,
            false => Clears::Nothing,
        }
    }
}

impl Clears {
    pub(crate) fn apply(self, mut row: InodeRow) -> InodeRow {
        if self != Clears::Nothing {
            row.mode &= !S_ISUID;
            if row.mode & S_IXGRP != 0 || self == Clears::ForOutsider {
                row.mode &= !S_ISGID;
            }
        }
        row
    }

    /// As for this caller, if it is not root.
    fn by(caller: &Caller, gid: u32) -> Clears {
        match caller.is_outside_group(gid) {
            true => Clears::ForOutsider,
            false => Clears::ForMember,
        }
    }
}

/// Whether the bits that a write clears depend on the caller's groups.
pub fn depends_on_groups(mode: u32) -> bool {
    mode & (S_ISGID | S_IXGRP) == S_ISGID
}
