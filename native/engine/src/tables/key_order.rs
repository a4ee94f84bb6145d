//! The keys of a frozen layer in the order of the index, so that a commit can read the layer in
//! pages.
//!
//! Changes are kept in unordered tables. References to them are sorted here: half a byte for each
//! inode, four bytes for each entry. The order is made when the first page is asked for.

use cowfs_base::Ino;

use crate::changes::{Changes, EntryAt};

/// The order of the keys of one `Changes`; it makes sense with no other.
#[derive(Debug)]
pub(crate) struct KeyOrder {
    /// Pages of marks by number.
    inodes: Vec<u64>,
    /// Places of entries by parent and name.
    entries: Vec<u32>,
}

impl KeyOrder {
    pub fn of(changes: &Changes) -> KeyOrder {
        let mut inodes = changes.inodes.pages();
        inodes.sort_unstable();
        let mut entries = changes.entries.places();
        // Not the unstable sort: entries with equal keys stay in the order in which they were made.
        entries.sort_by_key(|place| key(changes.entries.at(*place)));
        KeyOrder { inodes, entries }
    }

    /// Marked inodes behind `after`, each with its marks.
    pub fn inodes<'a>(
        &'a self,
        changes: &'a Changes,
        after: Ino,
    ) -> impl Iterator<Item = (Ino, u8)> + 'a {
        let first = self
            .inodes
            .partition_point(|page| changes.inodes.last_of(*page) <= after);
        let marked = self.inodes[first..]
            .iter()
            .flat_map(|page| changes.inodes.page(*page));
        marked.filter(move |(ino, _)| *ino > after)
    }

    /// Changed entries behind `after`.
    pub fn entries<'a>(
        &'a self,
        changes: &'a Changes,
        after: EntryAt<'_>,
    ) -> impl Iterator<Item = EntryAt<'a>> + 'a {
        let first = self
            .entries
            .partition_point(|place| key(changes.entries.at(*place)) <= key(after));
        self.entries[first..]
            .iter()
            .map(|place| changes.entries.at(*place))
    }
}

fn key(at: EntryAt<'_>) -> (Ino, &[u8]) {
    (at.parent, at.name)
}
