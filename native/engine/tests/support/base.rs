//! A version as the index and the packs hold it: rows by their keys, chunks by their names.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cowfs_base::{ChunkHash, Ino};
use cowfs_engine::{ChunkRef, ContentRows, ExtentRow, InodeRow, XattrPair};

use super::ROOT;

/// The rows of a version, and its chunks.
#[derive(Clone)]
pub struct Base {
    pub inodes: BTreeMap<Ino, InodeRow>,
    pub entries: BTreeMap<(Ino, Vec<u8>), Ino>,
    pub extents: BTreeMap<Ino, Vec<ExtentRow>>,
    pub xattrs: BTreeMap<Ino, Vec<XattrPair>>,
    pub chunks: HashMap<[u8; 32], Vec<u8>>,
    pub next_ino: Ino,
}

impl Base {
    pub fn empty() -> Base {
        let root = InodeRow {
            ino: ROOT,
            mode: libc::S_IFDIR | 0o755,
            nlink: 2,
            ..InodeRow::default()
        };
        Base {
            inodes: BTreeMap::from([(ROOT, root)]),
            entries: BTreeMap::new(),
            extents: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            chunks: HashMap::new(),
            next_ino: ROOT + 1,
        }
    }

    /// Bytes of its regular files, and its inodes.
    pub fn amount(&self) -> (u64, u64) {
        let pairs = self.xattrs.values().flatten();
        let xattr_bytes: usize = pairs.map(|(name, value)| name.len() + value.len()).sum();
        // The size of a link is that of its target.
        let sizes = self.inodes.values().map(|row| row.size);
        let bytes = sizes.sum::<u64>() + xattr_bytes as u64;
        (bytes, self.inodes.len() as u64)
    }

    pub fn directory(&self, ino: Ino) -> Vec<(Box<[u8]>, InodeRow)> {
        let entries = self.entries.range((ino, Vec::new())..(ino + 1, Vec::new()));
        entries
            .map(|((_, name), child)| (name.as_slice().into(), self.inodes[child].clone()))
            .collect()
    }

    pub fn extents_of(&self, ino: Ino) -> Vec<ExtentRow> {
        self.extents.get(&ino).cloned().unwrap_or_default()
    }

    pub fn xattrs_of(&self, ino: Ino) -> Vec<XattrPair> {
        self.xattrs.get(&ino).cloned().unwrap_or_default()
    }

    /// Of all inodes that have any.
    pub fn contents(&self) -> Vec<ContentRows> {
        let inodes: BTreeSet<Ino> = self
            .extents
            .keys()
            .chain(self.xattrs.keys())
            .copied()
            .collect();
        let rows = |ino| (ino, self.extents_of(ino), self.xattrs_of(ino));
        inodes.into_iter().map(rows).collect()
    }

    /// A chunk named by a number instead of a digest: what matters here is only that names are not
    /// reused.
    pub fn add_chunk(&mut self, bytes: &[u8]) -> ChunkRef {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&(self.chunks.len() as u64 + 1).to_le_bytes());
        self.chunks.insert(hash, bytes.to_vec());
        let length = bytes.len() as u32;
        ChunkRef {
            hash: ChunkHash(hash),
            pack: 1,
            offset: 0,
            stored_length: length,
            raw_length: length,
            codec: 0,
        }
    }

    pub fn bytes_of(&self, ino: Ino) -> Vec<u8> {
        let mut bytes = vec![0; self.inodes[&ino].size as usize];
        for row in self.extents.get(&ino).into_iter().flatten() {
            let chunk = &self.chunks[&row.chunk.hash.0];
            let from = row.skip as usize;
            bytes[row.offset as usize..][..row.length as usize]
                .copy_from_slice(&chunk[from..from + row.length as usize]);
        }
        bytes
    }
}
