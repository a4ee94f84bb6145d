//! The data remembered of evicted inodes: the kernel's reference count, and the parent of a
//! directory.
//!
//! An inode may leave memory while the kernel still knows its number (`evict`). When a request
//! needs it, it is loaded again by number and takes its reference count from here. Counts lie in
//! pages of neighbouring numbers, a byte each, because the inodes of a directory mostly have
//! consecutive numbers. That is about two bytes for each inode of a tree that was walked.

use cowfs_base::Ino;
use hashbrown::HashMap;

const PAGE: u64 = 32;

/// A count that is not exact: it stays, and so does the inode once it is back.
const LOST: u8 = u8::MAX;

#[derive(Debug, Default)]
pub(crate) struct Away {
    references: HashMap<u64, [u8; PAGE as usize]>,
    parents: HashMap<Ino, Ino>,
    /// An earlier server may have told the kernel of any inode below this number.
    pub unknown_below: Ino,
}

/// The data remembered of an inode that is loaded again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Returned {
    /// None if the count is unknown.
    pub references: Option<u32>,
    /// The parent of a directory; 0 if unknown.
    pub parent: Ino,
}

impl Away {
    /// Whether the references to this inode are not known, here or in memory.
    pub fn is_unknown(&self, ino: Ino) -> bool {
        ino < self.unknown_below
    }

    /// Whether so many references can be remembered, or need not be.
    pub fn can_keep(&self, ino: Ino, references: u32) -> bool {
        references < u32::from(LOST) || self.is_unknown(ino)
    }

    /// Remembers an evicted inode, for which `can_keep` is true. `parent`: 0 if it is no directory.
    pub fn put(&mut self, ino: Ino, references: u32, parent: Ino) {
        debug_assert!(self.can_keep(ino, references));
        if references > 0 && !self.is_unknown(ino) {
            self.change(ino, |_| references as u8);
        }
        if parent != 0 {
            self.parents.insert(ino, parent);
        }
    }

    /// An inode is back.
    pub fn take(&mut self, ino: Ino) -> Returned {
        let references = self.references(ino);
        if references > 0 {
            self.change(ino, |_| 0);
        }
        Returned {
            references: (references < LOST && !self.is_unknown(ino)).then_some(references.into()),
            parent: self.parents.remove(&ino).unwrap_or(0),
        }
    }

    /// The kernel holds one more reference.
    pub fn raise(&mut self, ino: Ino) {
        if !self.is_unknown(ino) {
            self.change(ino, |references| references.saturating_add(1));
        }
    }

    /// The kernel holds `count` references less.
    pub fn lower(&mut self, ino: Ino, count: u64) {
        let count = u8::try_from(count).unwrap_or(u8::MAX);
        match self.references(ino) {
            0 | LOST => {}
            references => self.change(ino, |_| references.saturating_sub(count)),
        }
    }

    /// The directory that an evicted directory is in.
    pub fn parent(&self, ino: Ino) -> Option<Ino> {
        self.parents.get(&ino).copied()
    }

    fn references(&self, ino: Ino) -> u8 {
        self.references
            .get(&(ino / PAGE))
            .map_or(0, |page| page[(ino % PAGE) as usize])
    }

    fn change(&mut self, ino: Ino, change: impl FnOnce(u8) -> u8) {
        let page = self.references.entry(ino / PAGE).or_default();
        let place = &mut page[(ino % PAGE) as usize];
        *place = change(*place);
        if *page == [0; PAGE as usize] {
            self.references.remove(&(ino / PAGE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_counted_while_an_inode_is_away() {
        let mut away = Away::default();
        away.put(40, 3, 0);
        away.put(41, 0, 7);
        away.raise(40);
        away.lower(40, 2);
        away.lower(41, 5);
        assert_eq!(away.parent(41), Some(7));
        let (known, parent) = (Some(2), 0);
        assert_eq!(
            away.take(40),
            Returned {
                references: known,
                parent
            }
        );
        let (known, parent) = (Some(0), 7);
        assert_eq!(
            away.take(41),
            Returned {
                references: known,
                parent
            }
        );
        assert!(away.references.is_empty() && away.parents.is_empty());
    }

    #[test]
    fn a_count_that_is_lost_stays_lost() {
        let mut away = Away::default();
        away.put(1, 254, 0);
        away.raise(1);
        away.lower(1, u64::MAX);
        assert_eq!(away.take(1).references, None);
    }
}
