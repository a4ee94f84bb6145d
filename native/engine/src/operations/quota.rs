//! The size limit of a volume, and room for files that are written apart before they replace
//! others.

use std::mem;

use cowfs_base::{Attr, Ino};

use crate::amount::{Amount, Apart, counted};
use crate::attributes::AttrChange;
use crate::engine::Engine;
use crate::error::Result;
use crate::row::Caller;

impl Engine {
    /// Sets the totals of the base version: counted bytes, and inodes. `statfs` counts from there.
    pub fn count_base(&self, bytes: u64, inodes: u64) -> Result<()> {
        self.fill()?.base = Amount {
            bytes: bytes.into(),
            inodes: i64::try_from(inodes).unwrap_or(i64::MAX),
            links: 0,
        };
        Ok(())
    }

    /// Limits the bytes of files, link targets and attributes of the volume together, and the
    /// number of names that go with them (`amount`). A larger volume is refused with EDQUOT. 0: no
    /// limit.
    pub fn set_quota(&self, bytes: u64) -> Result<()> {
        self.fill()?.quota_bytes = bytes;
        Ok(())
    }

    /// The limit set by `set_quota`.
    pub fn quota(&self) -> Result<u64> {
        Ok(self.read()?.quota_bytes)
    }

    /// Reserves `kept_bytes`, the volume's final growth by files that are written apart with
    /// `resize_apart` and then replace others. Other calls cannot use this space. EDQUOT if there
    /// is too little.
    pub fn begin_apart(&self, kept_bytes: u64) -> Result<()> {
        let mut state = self.fill()?;
        state.apart = Apart::default();
        state.check_quota(kept_bytes.into())?;
        state.apart.kept_bytes = kept_bytes.into();
        Ok(())
    }

    /// As `setattr` of the size, for root. The growth of the file does not count yet.
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

    /// Counts the files written apart like all others. Called before the replaced files are
    /// removed, so that no other call takes their room.
    pub fn end_apart(&self) -> Result<()> {
        self.fill()?.apart = Apart::default();
        Ok(())
    }
}
