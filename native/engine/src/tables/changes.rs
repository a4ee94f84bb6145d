//! The changes since a commit: which inodes (row, extents, xattrs), which entries, and which
//! segments they need.
//!
//! `Changes` holds only keys: the values are the live ones. `Frozen` is the `Changes` of a closed
//! layer plus old values. An old value is saved when it is first changed after the freeze, so a
//! freeze copies nothing.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use cowfs_base::{Ino, Layer, Segment};
use hashbrown::{Equivalent, HashMap};

use crate::amount::Amount;
use crate::content::Xattrs;
use crate::entry_set::EntrySet;
use crate::extents::ExtentMap;
use crate::key_order::KeyOrder;
use crate::row::InodeRow;

/// The row changed.
pub(crate) const ROW: u8 = 1;
/// The extents changed.
pub(crate) const EXTENTS: u8 = 2;
/// The extended attributes changed.
pub(crate) const XATTRS: u8 = 4;

/// A directory entry's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryKey {
    pub parent: Ino,
    pub name: Box<[u8]>,
}

/// `EntryKey`, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryAt<'a> {
    pub parent: Ino,
    pub name: &'a [u8],
}

impl Hash for EntryKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        EntryAt {
            parent: self.parent,
            name: &self.name,
        }
        .hash(state);
    }
}

impl Hash for EntryAt<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parent.hash(state);
        self.name.hash(state);
    }
}

impl Equivalent<EntryKey> for EntryAt<'_> {
    fn equivalent(&self, key: &EntryKey) -> bool {
        self.parent == key.parent && *self.name == *key.name
    }
}

impl From<EntryAt<'_>> for EntryKey {
    fn from(at: EntryAt<'_>) -> EntryKey {
        EntryKey {
            parent: at.parent,
            name: at.name.into(),
        }
    }
}

/// How many neighbours share a page of marks: numbers are given out in sequence, and inodes made
/// together change together.
const MARKS: u64 = 16;

/// The kinds of change, by inode.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks(HashMap<u64, [u8; MARKS as usize]>);

impl Marks {
    pub fn get(&self, ino: Ino) -> u8 {
        self.0
            .get(&(ino / MARKS))
            .map_or(0, |page| page[(ino % MARKS) as usize])
    }

    pub fn add(&mut self, ino: Ino, what: u8) {
        self.0.entry(ino / MARKS).or_default()[(ino % MARKS) as usize] |= what;
    }

    pub fn remove(&mut self, ino: Ino) {
        if let Some(page) = self.0.get_mut(&(ino / MARKS)) {
            page[(ino % MARKS) as usize] = 0;
            if *page == [0; MARKS as usize] {
                self.0.remove(&(ino / MARKS));
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each marked inode with its marks.
    pub fn iter(&self) -> impl Iterator<Item = (Ino, u8)> {
        self.0.keys().flat_map(|page| self.page(*page))
    }

    /// The numbers of all pages.
    pub fn pages(&self) -> Vec<u64> {
        self.0.keys().copied().collect()
    }

    /// The marked inodes of one page, ascending.
    pub fn page(&self, page: u64) -> impl Iterator<Item = (Ino, u8)> {
        let marks = self.0.get(&page).copied().unwrap_or_default();
        (page * MARKS..).zip(marks).filter(|(_, marks)| *marks != 0)
    }

    /// The last inode that has its marks in the page.
    pub fn last_of(&self, page: u64) -> Ino {
        page * MARKS + (MARKS - 1)
    }
}

/// The keys of everything that changed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    /// Inodes from this number on were made within these changes.
    pub first_ino: Ino,
    pub inodes: Marks,
    /// Whether the entry was made within these changes where none had been: then its removal needs
    /// no effect.
    pub entries: EntrySet,
    /// Segments the journal records of these changes refer to.
    pub segments: BTreeSet<Segment>,
    /// Segments that the journal may still name last for bytes that an earlier layer's commit has
    /// put in the store. A commit leaves no record, so a replay maps them there again, and they
    /// stay though nothing maps them now.
    pub held: BTreeSet<Segment>,
    /// The growth of the volume by these changes.
    pub growth: Amount,
    /// The size of all attributes of named inodes that are marked `XATTRS`.
    pub xattr_bytes: u64,
}

impl Changes {
    pub fn starting_at(first_ino: Ino) -> Changes {
        Changes {
            first_ino,
            ..Changes::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        self.inodes.is_empty() && self.entries.is_empty()
    }

    pub fn mark(&mut self, ino: Ino, what: u8) {
        self.inodes.add(ino, what);
    }

    pub fn has(&self, ino: Ino, what: u8) -> bool {
        self.inodes.get(ino) & what != 0
    }

    /// Inodes with a change of the kind `what`.
    pub fn marked(&self, what: u8) -> impl Iterator<Item = Ino> {
        self.inodes
            .iter()
            .filter(move |(_, marks)| marks & what != 0)
            .map(|(ino, _)| ino)
    }

    /// The entry is put; `existed`: there was one of that name right before.
    pub fn mark_put(&mut self, at: EntryAt<'_>, existed: bool) {
        if !self.entries.contains(at) {
            self.entries.insert(at, !existed);
        }
    }

    pub fn mark_dropped(&mut self, at: EntryAt<'_>) {
        match self.entries.get(at) {
            Some(true) => self.entries.remove(at),
            Some(false) => {}
            None => self.entries.insert(at, false),
        }
    }

    /// Joins what came later. `is_there`: whether an entry exists now.
    pub fn join(&mut self, later: Changes, is_there: impl Fn(EntryAt<'_>) -> bool) {
        for (ino, marks) in later.inodes.iter() {
            self.mark(ino, marks);
        }
        for (at, is_fresh) in later.entries.iter() {
            let known = self.entries.get(at);
            if known.is_none() {
                self.entries.insert(at, is_fresh);
            }
            if known.unwrap_or(is_fresh) && !is_there(at) {
                self.entries.remove(at);
            }
        }
        self.segments.extend(later.segments);
        self.held.extend(later.held);
        self.growth += later.growth;
    }
}

/// The state of an inode at the freeze, as far as it has been changed since.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    pub row: Option<InodeRow>,
    /// With the data version.
    pub extents: Option<(u64, ExtentMap)>,
    pub xattrs: Option<Xattrs>,
}

/// A closed layer that is not committed yet.
#[derive(Debug)]
pub(crate) struct Frozen {
    pub layer: Layer,
    pub next_ino: Ino,
    /// Shared, so that a reader of the layer walks the keys without holding the state.
    pub changes: Arc<Changes>,
    /// Made at the first request for a page of the layer.
    pub order: Arc<OnceLock<KeyOrder>>,
    /// Bytes of journal that these changes alone have taken since the last checkpoint.
    pub logged_bytes: u64,
    pub saved: HashMap<Ino, Saved>,
    /// Entries as they were at the freeze; 0: there was none.
    pub saved_entries: HashMap<EntryKey, Ino>,
}

impl Frozen {
    pub fn new(layer: Layer, next_ino: Ino, changes: Arc<Changes>) -> Frozen {
        Frozen {
            layer,
            next_ino,
            changes,
            order: Arc::default(),
            logged_bytes: 0,
            saved: HashMap::new(),
            saved_entries: HashMap::new(),
        }
    }
}
