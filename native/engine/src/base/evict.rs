//! Forgetting what can be loaded again, so that memory does not grow with what was ever looked at.
//!
//! `evict` keeps the namespace within a budget. A survey adds up what is held; if it is too much, a
//! hand goes around the table of inodes like that of a clock: an inode used since the hand was here
//! last gets a second chance, any other that may go goes, with its entries and its content. What
//! may go is exactly what the base version would give back:
//!
//! - it has not changed since the last commit (no mark in the current layer nor in a frozen one),
//! - it has a name (an inode without one is in no version),
//! - no handle is open on it (a reader of a directory goes on from cookies that a reloaded
//!   directory would not have).
//!
//! The kernel may still refer to it by number: `Away` keeps count, and whoever asks gets
//! `Missing::Inode`. A directory whose entries are here may name inodes that are not.
//!
//! Who loads rows must take them from the version that the engine stands on: rows read before a
//! commit must not be loaded after it (`cowfs/session/residency.py`).
//!
//! Locks: the survey holds the state shared, the hand exclusively, both for a batch of slots at a
//! time.

use std::sync::atomic::{AtomicU64, Ordering};

use cowfs_base::sync::Mutex;
use cowfs_base::{Ino, ROOT_INO};

use crate::away::Away;
use crate::engine::Engine;
use crate::error::Result;
use crate::extents::Extent;
use crate::inode::Inode;
use crate::row::{ChunkRef, ExtentRow};
use crate::state::State;

const SURVEY_BATCH: usize = 8192;
const SWEEP_BATCH: usize = 512;
/// An inode with its places in the table and in its directory (decision 14).
const INODE_BYTES: u64 = 110;
const CONTENT_BYTES: u64 = 112;
/// An extent and the chunk it names.
pub(crate) const EXTENT_BYTES: u64 = (size_of::<Extent>() + size_of::<ChunkRef>() + 16) as u64;

/// How much is held, as far as is known without looking.
#[derive(Debug, Default)]
pub(crate) struct Eviction {
    /// By the last survey and what was evicted since.
    surveyed_bytes: AtomicU64,
    /// Taken in since that survey.
    taken_in_bytes: AtomicU64,
    /// Where the hand is. Held by whoever evicts.
    hand: Mutex<usize>,
}

impl Eviction {
    pub fn took_in_inodes(&self, inodes: usize, name_bytes: usize) {
        let bytes = inodes as u64 * INODE_BYTES + name_bytes as u64;
        self.taken_in_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What a layer changed can go from now on.
    pub fn took_in_layer(&self, inodes: usize, extents: usize) {
        let bytes = inodes as u64 * (INODE_BYTES + CONTENT_BYTES) + extents as u64 * EXTENT_BYTES;
        self.taken_in_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn took_in_content(&self, rows: &[ExtentRow]) {
        let bytes = CONTENT_BYTES + rows.len() as u64 * EXTENT_BYTES;
        self.taken_in_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Engine {
    /// Forgets what has not been used for longest until inodes, entries and contents take at most
    /// about `max_bytes`, as far as that can be loaded again; returns the bytes freed. Cheap unless
    /// much was loaded since the last call. 0: all that may go.
    pub fn evict(&self, max_bytes: u64) -> Result<u64> {
        let eviction = &self.eviction;
        let mut hand = eviction.hand.lock();
        let taken_in_bytes = eviction.taken_in_bytes.load(Ordering::Relaxed);
        let surveyed_bytes = eviction.surveyed_bytes.load(Ordering::Relaxed);
        // When little came in since, what is held cannot go, or was used just now.
        let is_news = taken_in_bytes >= max_bytes / 16 || surveyed_bytes <= max_bytes;
        if max_bytes > 0 && (surveyed_bytes + taken_in_bytes <= max_bytes || !is_news) {
            return Ok(0);
        }
        eviction
            .taken_in_bytes
            .fetch_sub(taken_in_bytes, Ordering::Relaxed);
        let held_bytes = self.survey_memory()?;
        let mut freed_bytes = 0;
        if held_bytes > max_bytes {
            let wanted_bytes = held_bytes - (max_bytes - max_bytes / 8);
            freed_bytes = self.sweep(&mut hand, wanted_bytes)?;
        }
        let left_bytes = held_bytes.saturating_sub(freed_bytes);
        eviction.surveyed_bytes.store(left_bytes, Ordering::Relaxed);
        Ok(freed_bytes)
    }

    fn survey_memory(&self) -> Result<u64> {
        let (mut bytes, mut slot) = (0, 0);
        loop {
            let state = self.read()?;
            let slots = state.inodes.slots();
            if slot >= slots {
                return Ok(bytes);
            }
            let batch = slot..slots.min(slot + SURVEY_BATCH);
            slot = batch.end;
            let inodes = batch.filter_map(|slot| state.inodes.at_slot(slot));
            bytes += inodes.map(weight).sum::<u64>();
        }
    }

    /// Two rounds at most: the second finds what the first took the second chance from.
    fn sweep(&self, hand: &mut usize, wanted_bytes: u64) -> Result<u64> {
        let (mut freed_bytes, mut seen) = (0, 0);
        loop {
            let mut state = self.fill()?;
            let slots = state.inodes.slots();
            for _ in 0..SWEEP_BATCH {
                if freed_bytes >= wanted_bytes || seen >= 2 * slots {
                    return Ok(freed_bytes);
                }
                *hand = if *hand + 1 < slots { *hand + 1 } else { 0 };
                seen += 1;
                freed_bytes += state.evict_slot(*hand);
            }
        }
    }
}

impl State {
    /// Forgets the inode in a slot if it may go and was not used; returns the bytes it took.
    fn evict_slot(&mut self, slot: usize) -> u64 {
        let Some(inode) = self.inodes.at_slot(slot) else {
            return 0;
        };
        let may_go = inode.nlink > 0
            && !inode.is_open()
            && !self.is_changed(inode.ino)
            && !self.lost.contains(&inode.ino);
        if inode.take_use() || !may_go {
            return 0;
        }
        let (ino, bytes) = (inode.ino, weight(inode));
        if ino == ROOT_INO || !Away::can_count(inode.references()) {
            self.strip(ino);
            return bytes - INODE_BYTES;
        }
        let parent = inode.directory().map_or(0, |directory| directory.parent);
        self.away.put(ino, inode.references(), parent);
        self.inodes.remove(ino);
        bytes
    }

    /// Forgets entries and content, not the inode.
    fn strip(&mut self, ino: Ino) {
        let Some(inode) = self.inodes.get_mut(ino) else {
            return;
        };
        inode.drop_content();
        if let Some(directory) = inode.directory_mut() {
            directory.forget();
        }
    }

    /// As `Inode::lower_lookups`, for one that may be away.
    pub fn lower_references(&mut self, ino: Ino, count: u64) {
        match self.inodes.get(ino) {
            Some(inode) => {
                inode.lower_lookups(count);
                self.destroy(ino);
            }
            None => self.away.lower(ino, count),
        }
    }

    /// As `Inode::raise_lookups`, for one that may be away.
    pub fn raise_references(&mut self, ino: Ino) {
        match self.inodes.get(ino) {
            Some(inode) => inode.raise_lookups(),
            None => self.away.raise(ino),
        }
    }

    /// Whether a layer that is not committed has changed it: then memory knows more than the base
    /// version.
    pub fn is_changed(&self, ino: Ino) -> bool {
        let frozen = self.frozen.as_ref();
        self.changes.inodes.get(ino) != 0
            || frozen.is_some_and(|frozen| frozen.changes.inodes.get(ino) != 0)
    }
}

/// About what an inode takes with all that hangs on it.
fn weight(inode: &Inode) -> u64 {
    let content = inode.content.as_deref().map_or(0, |content| {
        let xattrs = content.xattrs.pairs().iter();
        let xattr_bytes: usize = xattrs.map(|(name, value)| name.len() + value.len()).sum();
        CONTENT_BYTES + content.extents.len() as u64 * EXTENT_BYTES + xattr_bytes as u64
    });
    let entries = inode.directory().map_or(0, |directory| directory.bytes());
    INODE_BYTES + content + entries as u64
}
