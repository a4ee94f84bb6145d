//! The size of a volume, and its limit.
//!
//! ```text
//! base version + growth of the frozen layer + growth of the changes since
//! ```
//!
//! `State::apply` counts, so every change is counted once, from any caller, and again by a replay,
//! which begins with the rows of the base. A commit adds its layer to the base.

use std::ops::{AddAssign, SubAssign};

use cowfs_base::{COUNTED_BYTES, Errno, Ino};

use crate::changes::XATTRS;
use crate::effect::Effect;
use crate::error::Result;
use crate::inode::Inode;
use crate::row::InodeRow;
use crate::state::State;

/// The number of inodes and names that a volume with a quota may have: this many, and one more for
/// each so many bytes of the quota. Each takes memory until it is committed, however small its file
/// is.
const QUOTA_NAMES: u64 = 4096;
const QUOTA_BYTES_PER_NAME: u64 = 256;

/// Attributes that only this process has may take so many bytes together. They lie in memory, here
/// and in the mount that replays them after a crash.
pub const HELD_XATTRS_MAX_BYTES: u64 = 256 << 20;

/// A size or a growth, of everything that has a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    /// Bytes of regular files, as `counted`; of the targets of links; of names and values of
    /// extended attributes that are here.
    pub bytes: i128,
    pub inodes: i64,
    /// Names that an inode has besides the first; those of the base are not known.
    pub links: i64,
}

impl Amount {
    pub fn of(inode: &Inode) -> Amount {
        let attribute_bytes = inode.target().len() + inode.xattr_bytes();
        Amount::with(inode.nlink, inode.mode, inode.size, attribute_bytes)
    }

    /// xattr_bytes: what the inode has beside the row.
    fn of_row(row: &InodeRow, xattr_bytes: usize) -> Amount {
        let attribute_bytes = row.target.len() + xattr_bytes;
        Amount::with(row.nlink, row.mode, row.size, attribute_bytes)
    }

    fn with(nlink: u32, mode: u32, size: u64, attribute_bytes: usize) -> Amount {
        if nlink == 0 {
            return Amount::default();
        }
        let kind = mode & libc::S_IFMT;
        let file_bytes = if kind == libc::S_IFREG {
            counted(size)
        } else {
            0
        };
        Amount {
            bytes: file_bytes + attribute_bytes as i128,
            inodes: 1,
            links: if kind == libc::S_IFDIR {
                0
            } else {
                i64::from(nlink) - 1
            },
        }
    }
}

/// The counted size of a file, as in the totals of versions.
pub(crate) fn counted(size: u64) -> i128 {
    size.min(COUNTED_BYTES).into()
}

/// Files written apart before they replace others. They do not count while both exist; the volume's
/// final growth is reserved from the beginning.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Apart {
    pub made_bytes: i128,
    pub kept_bytes: i128,
}

impl AddAssign for Amount {
    fn add_assign(&mut self, more: Amount) {
        self.bytes += more.bytes;
        self.inodes += more.inodes;
        self.links += more.links;
    }
}

impl SubAssign for Amount {
    fn sub_assign(&mut self, less: Amount) {
        self.bytes -= less.bytes;
        self.inodes -= less.inodes;
        self.links -= less.links;
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

    /// EDQUOT if the volume must not grow by so many bytes. A change without growth is never
    /// refused.
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

    /// EDQUOT if the volume must not have so many more inodes and names.
    fn check_names(&self, growth: Amount) -> Result<()> {
        let amount = self.amount();
        let names = (amount.inodes + amount.links).max(0) as u64;
        let most = QUOTA_NAMES.saturating_add(self.quota_bytes / QUOTA_BYTES_PER_NAME);
        let more = growth.inodes + growth.links;
        match more > 0 && names.saturating_add(more as u64) > most {
            true => Err(Errno::EDQUOT.into()),
            false => Ok(()),
        }
    }

    /// Bytes of the attributes that no version has, or that no version of the future will have.
    fn held_xattr_bytes(&self) -> u64 {
        let frozen = self.frozen.as_ref();
        self.changes.xattr_bytes
            + frozen.map_or(0, |frozen| frozen.changes.xattr_bytes)
            + self.nameless_xattr_bytes
    }

    /// Counts what the inode has of them, after a change of its names, marks or attributes.
    pub fn count_xattrs(&mut self, ino: Ino) {
        if let Some((held_bytes, bytes)) = self.xattrs_held(ino) {
            *held_bytes += bytes;
        }
    }

    /// Before such a change.
    pub fn discount_xattrs(&mut self, ino: Ino) {
        if let Some((held_bytes, bytes)) = self.xattrs_held(ino) {
            *held_bytes = held_bytes.saturating_sub(bytes);
        }
    }

    /// The counter for the attributes of the inode, and their size.
    fn xattrs_held(&mut self, ino: Ino) -> Option<(&mut u64, u64)> {
        let inode = self.inodes.get(ino)?;
        match inode.xattr_bytes() as u64 {
            0 => None,
            bytes if inode.nlink == 0 => Some((&mut self.nameless_xattr_bytes, bytes)),
            bytes if self.changes.has(ino, XATTRS) => Some((&mut self.changes.xattr_bytes, bytes)),
            _ => None,
        }
    }

    /// ENOSPC: attributes would take more memory than they may.
    fn check_held_xattrs(&self, effects: &[Effect<'_>]) -> Result<()> {
        let mut growth = 0;
        for effect in effects {
            let Effect::PutXattr { ino, name, value } = effect else {
                continue;
            };
            growth += (name.len() + value.len()) as i64;
            if let Some(inode) = self.inodes.get(*ino) {
                growth -= inode.xattr_pair_bytes(name) as i64;
                if inode.nlink > 0 && !self.changes.has(*ino, XATTRS) {
                    growth += inode.xattr_bytes() as i64;
                }
            }
        }
        match growth > 0 && self.held_xattr_bytes() + growth as u64 > HELD_XATTRS_MAX_BYTES {
            true => Err(Errno::ENOSPC.into()),
            false => Ok(()),
        }
    }

    /// EDQUOT: the effects make the volume larger than its quota. ENOSPC: they take more memory
    /// than there may be of their kind.
    pub fn check_effects(&self, effects: &[Effect<'_>]) -> Result<()> {
        self.check_held_xattrs(effects)?;
        if self.quota_bytes == 0 {
            return Ok(());
        }
        let mut growth = Amount::default();
        for effect in effects {
            growth += self.growth_of(effect);
        }
        self.check_names(growth)?;
        self.check_quota(growth.bytes)
    }

    /// How much larger the effect makes the volume.
    fn growth_of(&self, effect: &Effect<'_>) -> Amount {
        let mut growth = Amount::default();
        match effect {
            Effect::PutInode(row) => {
                let inode = self.inodes.get(row.ino);
                growth += Amount::of_row(row, inode.map_or(0, Inode::xattr_bytes));
                growth -= inode.map(Amount::of).unwrap_or_default();
            }
            Effect::RemoveInode(ino) => {
                growth -= self.inodes.get(*ino).map(Amount::of).unwrap_or_default();
            }
            Effect::PutXattr { ino, name, value } => {
                let inode = self.inodes.get(*ino);
                if inode.is_none_or(|inode| inode.nlink > 0) {
                    let old_bytes = inode.map_or(0, |inode| inode.xattr_pair_bytes(name));
                    growth.bytes = (name.len() + value.len()) as i128 - old_bytes as i128;
                }
            }
            _ => {}
        }
        growth
    }
}
