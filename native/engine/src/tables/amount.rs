//! How much there is in a volume, and how much there may be.
//!
//! ```text
//! what the base version has + growth of the frozen layer + growth of the changes since
//! ```
//!
//! `State::apply` counts, so every change is counted once, whoever makes it, and again by a replay,
//! which begins with the rows of the base. A commit adds its layer to the base.

use std::ops::{AddAssign, SubAssign};

use cowfs_base::{COUNTED_BYTES, Errno, Ino};

use crate::effect::Effect;
use crate::error::Result;
use crate::inode::Inode;
use crate::row::InodeRow;
use crate::state::State;

/// How much there is, or how much more than before: of what has a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    /// Of regular files, as `counted`.
    pub bytes: i128,
    pub inodes: i64,
}

impl Amount {
    pub fn of(inode: &Inode) -> Amount {
        Amount::with(inode.nlink, inode.is_file(), inode.size)
    }

    pub fn of_row(row: &InodeRow) -> Amount {
        let is_file = row.mode & libc::S_IFMT == libc::S_IFREG;
        Amount::with(row.nlink, is_file, row.size)
    }

    fn with(nlink: u32, is_file: bool, size: u64) -> Amount {
        if nlink == 0 {
            return Amount::default();
        }
        Amount {
            bytes: if is_file { counted(size) } else { 0 },
            inodes: 1,
        }
    }
}

/// What a file of this size counts as: as in the totals of versions.
pub(crate) fn counted(size: u64) -> i128 {
    size.min(COUNTED_BYTES).into()
}

/// What somebody makes beside what it is going to replace. It does not count while both are there;
/// what the volume grows by in the end is kept from everybody else from the beginning.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Apart {
    pub made_bytes: i128,
    pub kept_bytes: i128,
}

impl AddAssign for Amount {
    fn add_assign(&mut self, more: Amount) {
        self.bytes += more.bytes;
        self.inodes += more.inodes;
    }
}

impl SubAssign for Amount {
    fn sub_assign(&mut self, less: Amount) {
        self.bytes -= less.bytes;
        self.inodes -= less.inodes;
    }
}

impl State {
    /// How much there is in the volume as it is now.
    pub fn amount(&self) -> Amount {
        let mut amount = self.base;
        if let Some(frozen) = &self.frozen {
            amount += frozen.changes.growth;
        }
        amount += self.changes.growth;
        amount
    }

    /// EDQUOT: so many bytes more would be too many. What makes nothing larger is never refused.
    pub fn check_quota(&self, growth: i128) -> Result<()> {
        let counted_bytes = self.amount().bytes - self.apart.made_bytes + self.apart.kept_bytes;
        if self.quota_bytes == 0
            || growth <= 0
            || counted_bytes + growth <= i128::from(self.quota_bytes)
        {
            return Ok(());
        }
        Err(Errno::EDQUOT.into())
    }

    /// EDQUOT: a file may not become so large.
    pub fn check_size(&self, ino: Ino, size: u64) -> Result<()> {
        match self.inodes.get(ino) {
            Some(inode) if self.quota_bytes > 0 && inode.nlink > 0 => {
                self.check_quota(counted(size) - counted(inode.size))
            }
            _ => Ok(()),
        }
    }

    /// By how many bytes the effects make the volume larger.
    pub fn growth_of(&self, effects: &[Effect<'_>]) -> i128 {
        let here = |ino| {
            self.inodes
                .get(ino)
                .map_or(0, |inode| Amount::of(inode).bytes)
        };
        effects
            .iter()
            .map(|effect| match effect {
                Effect::PutInode(row) => Amount::of_row(row).bytes - here(row.ino),
                Effect::RemoveInode(ino) => -here(*ino),
                _ => 0,
            })
            .sum()
    }
}
