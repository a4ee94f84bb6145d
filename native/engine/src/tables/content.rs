//! The content of an inode: extents and extended attributes. Present or absent as a whole.

use cowfs_base::{Ino, Segment};

use crate::extents::ExtentMap;
use crate::row::ExtentRow;

/// Name and value of an extended attribute.
pub type XattrPair = (Box<[u8]>, Box<[u8]>);

/// An inode, its extents by offset and its extended attributes by name.
pub type ContentRows = (Ino, Vec<ExtentRow>, Vec<XattrPair>);

/// Extended attributes, ordered by name. Most inodes have none: one word then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Xattrs(Option<Box<Pairs>>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Pairs {
    pairs: Vec<XattrPair>,
    name_bytes: usize,
    value_bytes: usize,
}

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
        let all = self.0.get_or_insert_default();
        all.value_bytes += value.len();
        match found {
            Ok(at) => {
                all.value_bytes -= all.pairs[at].1.len();
                all.pairs[at].1 = value.into();
            }
            Err(at) => {
                all.name_bytes += name.len();
                all.pairs.insert(at, (name.into(), value.into()));
            }
        }
    }

    pub fn drop(&mut self, name: &[u8]) {
        let found = self.find(name);
        if let (Ok(at), Some(all)) = (found, &mut self.0) {
            let (name, value) = all.pairs.remove(at);
            all.name_bytes -= name.len();
            all.value_bytes -= value.len();
        }
        if self.pairs().is_empty() {
            self.0 = None;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn pairs(&self) -> &[XattrPair] {
        self.0.as_deref().map_or(&[], |all| &all.pairs)
    }

    /// The size of all names, and of all values.
    pub fn sizes(&self) -> (usize, usize) {
        let all = self.0.as_deref();
        all.map_or((0, 0), |all| (all.name_bytes, all.value_bytes))
    }

    pub fn bytes(&self) -> usize {
        let (name_bytes, value_bytes) = self.sizes();
        name_bytes + value_bytes
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
