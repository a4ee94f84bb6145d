//! Which chunk files this process has verified, or written: the inode by hash, least recently asked for out first.

use lru::LruCache;

use crate::Hash;

/// 32 GiB of average chunks; about 8 MB of memory.
const FILES_MAX: usize = 1 << 16;

pub struct Verified(LruCache<Hash, u64>);

impl Default for Verified {
    fn default() -> Verified {
        Verified(LruCache::unbounded())
    }
}

impl Verified {
    pub fn inode(&mut self, hash: &Hash) -> Option<u64> {
        self.0.get(hash).copied()
    }

    pub fn insert(&mut self, hash: &Hash, inode: u64) {
        self.0.put(*hash, inode);
        if self.0.len() > FILES_MAX {
            self.0.pop_lru();
        }
    }
}
