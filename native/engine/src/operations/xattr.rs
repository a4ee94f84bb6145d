//! Extended attributes. `user.*` is for files and directories, `trusted.*` and `security.*` for any
//! inode (the kernel checks permission). POSIX ACLs are attributes too, which `acl` sets.

use cowfs_base::{Errno, Ino};

use crate::acl::is_acl;
use crate::content::Xattrs;
use crate::effect::Effect;
use crate::engine::{Engine, touched};
use crate::error::Result;
use crate::inode::Inode;
use crate::row::NAME_MAX_BYTES;

/// Fail if the attribute exists.
pub const XATTR_CREATE: u32 = 1;
/// Fail if the attribute does not exist.
pub const XATTR_REPLACE: u32 = 2;
/// Longest value: the kernel's own limit.
pub const XATTR_VALUE_MAX_BYTES: usize = 64 << 10;
/// The limit for all names of an inode, each with its zero byte: the kernel lists no more.
pub const XATTR_NAMES_MAX_BYTES: usize = 64 << 10;
/// The limit for all values of an inode: they are loaded together.
pub const XATTR_VALUES_MAX_BYTES: usize = 1 << 20;

impl Engine {
    /// Sets an attribute; `flags` is 0, `XATTR_CREATE` or `XATTR_REPLACE`. EOPNOTSUPP for an ACL
    /// (`set_acl`).
    pub fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        check_xattr_name(name)?;
        if is_acl(name) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if value.len() > XATTR_VALUE_MAX_BYTES {
            return Err(Errno::E2BIG.into());
        }
        if flags > XATTR_REPLACE {
            return Err(Errno::EINVAL.into());
        }
        let mut state = self.change()?;
        let inode = state.inode(ino)?;
        check_kind(inode, name)?;
        let xattrs = &state.content(ino)?.xattrs;
        let exists = xattrs.get(name).is_some();
        match flags {
            XATTR_CREATE if exists => return Err(Errno::EEXIST.into()),
            XATTR_REPLACE if !exists => return Err(Errno::ENODATA.into()),
            _ => {}
        }
        check_room_for(xattrs, name, value)?;
        let row = touched(inode.row());
        state.check_room()?;
        Engine::record(
            &mut state,
            &[Effect::PutXattr { ino, name, value }, Effect::PutInode(row)],
        )
    }

    /// The value of an attribute; ENODATA if the inode has no such attribute.
    pub fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        check_xattr_name(name)?;
        let state = self.read()?;
        if !state.inode(ino)?.has_xattrs() {
            return Err(Errno::ENODATA.into());
        }
        let value = state.content(ino)?.xattrs.get(name).ok_or(Errno::ENODATA)?;
        Ok(value.to_vec())
    }

    /// The names of all attributes.
    pub fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let state = self.read()?;
        if !state.inode(ino)?.has_xattrs() {
            return Ok(Vec::new());
        }
        Ok(state
            .content(ino)?
            .xattrs
            .pairs()
            .iter()
            .map(|(name, _)| name.to_vec())
            .collect())
    }

    /// Removes an attribute. ENODATA if it does not exist, unless it is an ACL.
    pub fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        check_xattr_name(name)?;
        let mut state = self.change()?;
        let inode = state.inode(ino)?;
        check_kind(inode, name)?;
        let exists = inode.has_xattrs() && state.content(ino)?.xattrs.get(name).is_some();
        if !exists {
            // Everything has an ACL: its mode, if no other.
            return match is_acl(name) {
                true => Ok(()),
                false => Err(Errno::ENODATA.into()),
            };
        }
        let row = touched(inode.row());
        Engine::record(
            &mut state,
            &[Effect::DropXattr { ino, name }, Effect::PutInode(row)],
        )
    }
}

fn check_xattr_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX_BYTES {
        return Err(Errno::ERANGE.into());
    }
    if name.contains(&0) {
        return Err(Errno::EINVAL.into());
    }
    if is_acl(name) {
        return Ok(());
    }
    let suffix = [&b"user."[..], b"trusted.", b"security."]
        .iter()
        .find_map(|prefix| name.strip_prefix(*prefix));
    match suffix {
        None => Err(Errno::EOPNOTSUPP.into()),
        Some(b"") => Err(Errno::EINVAL.into()),
        Some(_) => Ok(()),
    }
}

/// ENOSPC: with this attribute the inode would have more than can be listed, or kept.
pub(crate) fn check_room_for(xattrs: &Xattrs, name: &[u8], value: &[u8]) -> Result<()> {
    let (name_bytes, value_bytes) = xattrs.sizes();
    let old = xattrs.get(name);
    let listed_bytes = name_bytes + xattrs.pairs().len() + name.len() + 1;
    let grown_bytes = (value_bytes + value.len()).saturating_sub(old.map_or(0, <[u8]>::len));
    let is_listed = old.is_some() || listed_bytes <= XATTR_NAMES_MAX_BYTES;
    let is_kept = grown_bytes <= value_bytes.max(XATTR_VALUES_MAX_BYTES);
    match is_listed && is_kept {
        true => Ok(()),
        false => Err(Errno::ENOSPC.into()),
    }
}

fn check_kind(inode: &Inode, name: &[u8]) -> Result<()> {
    if name.starts_with(b"user.") && !inode.is_file() && !inode.is_directory() {
        return Err(Errno::EPERM.into());
    }
    Ok(())
}
