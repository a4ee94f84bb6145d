//! How large a volume may be, and room for what is made beside what it replaces.

use std::mem;

use cowfs_base::{Attr, Ino};

use crate::amount::{Amount, Apart, counted};
use crate::attributes::AttrChange;
use crate::engine::Engine;
use crate::error::Result;
use crate::row::Caller;

impl Engine {
    /// What the base version has: bytes of regular files, and inodes. `statfs` counts from there.
    pub fn count_base(&self, bytes: u64, inodes: u64) -> Result<()> {
        self.fill()?.base = Amount {
            bytes: bytes.into(),
            inodes: i64::try_from(inodes).unwrap_or(i64::MAX),
        };
        Ok(())
    }

    /// The regular files of the volume may have so many bytes together: what makes it larger is
    /// refused beyond that, EDQUOT. 0: anything.
    pub fn set_quota(&self, bytes: u64) -> Result<()> {
        self.fill()?.quota_bytes = bytes;
        Ok(())
    }

    /// As of `set_quota`.
    pub fn quota(&self) -> Result<u64> {
        Ok(self.read()?.quota_bytes)
    }

    /// Somebody is going to make what is new beside what is old, by `resize_apart`, and the volume
    /// grows by so many bytes in the end: that much is kept from everybody else. EDQUOT: it is not
    /// there.
    pub fn begin_apart(&self, kept_bytes: u64) -> Result<()> {
        let mut state = self.fill()?;
        state.apart = Apart::default();
        state.check_quota(kept_bytes.into())?;
        state.apart.kept_bytes = kept_bytes.into();
        Ok(())
    }

    /// As `setattr` of the size, for root. What the file grows by does not count yet.
    pub fn resize_apart(&self, ino: Ino, size: u64) -> Result<Attr> {
        let mut state = self.change()?;
        let before = state.inode(ino)?.size;
        let quota_bytes = mem::take(&mut state.quota_bytes);
        let change = AttrChange {
            size: Some(size),
            ..AttrChange::default()
        };
        let attr = Engine::change_attributes(&mut state, ino, &Caller::default(), &change);
        state.quota_bytes = quota_bytes;
        if attr.is_ok() {
            state.apart.made_bytes += counted(size) - counted(before);
        }
        attr
    }

    /// What was made apart counts as everything else does: before what is old goes, so that nobody
    /// takes its room.
    pub fn end_apart(&self) -> Result<()> {
        self.fill()?.apart = Apart::default();
        Ok(())
    }
}
