//! What belongs to an inode besides its row: extents and extended attributes. Present or absent as a whole.

use crate::extents::ExtentMap;

/// Name and value of an extended attribute.
pub type XattrPair = (Box<[u8]>, Box<[u8]>);

/// Extended attributes, ordered by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Xattrs(Vec<XattrPair>);

impl Xattrs {
    pub fn from_pairs(pairs: &[XattrPair]) -> Xattrs {
        let mut xattrs = Xattrs::default();
        for (name, value) in pairs {
            xattrs.put(name, value);
        }
        xattrs
    }

    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.find(name).ok().map(|at| &*self.0[at].1)
    }

    pub fn put(&mut self, name: &[u8], value: &[u8]) {
        match self.find(name) {
            Ok(at) => self.0[at].1 = value.into(),
            Err(at) => self.0.insert(at, (name.into(), value.into())),
        }
    }

    pub fn drop(&mut self, name: &[u8]) {
        if let Ok(at) = self.find(name) {
            self.0.remove(at);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn pairs(&self) -> &[XattrPair] {
        &self.0
    }

    fn find(&self, name: &[u8]) -> Result<usize, usize> {
        self.0.binary_search_by(|(have, _)| (**have).cmp(name))
    }
}

/// Extents and extended attributes of one inode.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub extents: ExtentMap,
    pub xattrs: Xattrs,
    /// Moves with every change of the extents; unique in this process.
    pub version: u64,
    /// When the extents changed last, on the monotonic clock.
    pub written_ns: u64,
    /// Segments with bytes of this file that no fsync of it has covered yet.
    pub unsynced: Vec<cowfs_base::Segment>,
}
