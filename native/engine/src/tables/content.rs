//! What belongs to an inode besides its row: extents and extended attributes. Present or absent as
//! a whole.

use cowfs_base::{Ino, Segment};

use crate::extents::ExtentMap;
use crate::row::ExtentRow;

/// Name and value of an extended attribute.
pub type XattrPair = (Box<[u8]>, Box<[u8]>);

/// An inode, its extents by offset and its extended attributes by name.
pub type ContentRows = (Ino, Vec<ExtentRow>, Vec<XattrPair>);

/// Extended attributes, ordered by name. Most inodes have none: one word then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(clippy::box_collection, reason = "a vector has three words")]
pub(crate) struct Xattrs(Option<Box<Vec<XattrPair>>>);

impl Xattrs {
    pub fn from_pairs(pairs: &[XattrPair]) -> Xattrs {
        let mut xattrs = Xattrs::default();
        for (name, value) in pairs {
            xattrs.put(name, value);
        }
        xattrs
    }

    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.find(name).ok().map(|at| &*self.pairs()[at].1)
    }

    pub fn put(&mut self, name: &[u8], value: &[u8]) {
        let found = self.find(name);
        let pairs = self.0.get_or_insert_default();
        match found {
            Ok(at) => pairs[at].1 = value.into(),
            Err(at) => pairs.insert(at, (name.into(), value.into())),
        }
    }

    pub fn drop(&mut self, name: &[u8]) {
        let found = self.find(name);
        if let (Ok(at), Some(pairs)) = (found, &mut self.0) {
            pairs.remove(at);
        }
        if self.pairs().is_empty() {
            self.0 = None;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn pairs(&self) -> &[XattrPair] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }

    fn find(&self, name: &[u8]) -> Result<usize, usize> {
        self.pairs()
            .binary_search_by(|(have, _)| (**have).cmp(name))
    }
}

/// Segments with bytes of a file that no fsync of it has covered yet.
#[derive(Debug, Default)]
#[allow(clippy::box_collection, reason = "a vector has three words")]
pub(crate) enum Unsynced {
    #[default]
    Nothing,
    One(Segment),
    Several(Box<Vec<Segment>>),
}

impl Unsynced {
    pub fn segments(&self) -> &[Segment] {
        match self {
            Unsynced::Nothing => &[],
            Unsynced::One(segment) => std::slice::from_ref(segment),
            Unsynced::Several(segments) => segments,
        }
    }

    /// Bytes went to the segment.
    pub fn add(&mut self, segment: Segment) {
        match self {
            _ if self.segments().last() == Some(&segment) => {}
            Unsynced::Nothing => *self = Unsynced::One(segment),
            Unsynced::One(first) => {
                *self = Unsynced::Several(Box::new(vec![*first, segment]));
            }
            Unsynced::Several(segments) => segments.push(segment),
        }
    }
}

/// Extents and extended attributes of one inode. Every file that was written has one: it is kept
/// small.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub extents: ExtentMap,
    pub xattrs: Xattrs,
    /// Moves with every change of the extents; unique in this process.
    pub version: u64,
    /// When the extents changed last, on the monotonic clock.
    pub written_ns: u64,
    pub unsynced: Unsynced,
}
