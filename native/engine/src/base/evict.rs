//! Forgets rows that can be loaded again, so that memory does not grow with every inode ever used.
//!
//! `evict` keeps the namespace within a budget. A survey adds up the memory in use. If it is too
//! much, a hand goes around the table of inodes like that of a clock. An inode used since the
//! hand's last visit gets a second chance. Any other evictable inode is dropped, with its entries
//! and its content. An inode is evictable if the base version would give back exactly the same:
//!
//! - it has not changed since the last commit (no mark in the current layer nor in a frozen one),
//! - it has a name (an inode without one is in no version),
//! - no handle is open on it, nor one of a directory that an earlier server gave out (a reader goes
//!   on from cookies, and those of renamed entries are lost when it is loaded again).
//!
//! If an inode must stay, its extents and attributes still go if they are as the base version has
//! them. So neither handles nor changed modes keep large data in memory; attributes may take 1 MiB
//! a file.
//!
//! The kernel may still refer to an evicted inode by number: `Away` keeps the count, and a request
//! for it gets `Missing::Inode`. A directory whose entries are here may name inodes that are not.
//!
//! Rows must be loaded from the version that the engine stands on: rows read before a commit must
//! not be loaded after it (`cowfs/session/residency/residency.py`).
//!
//! Locks: the survey holds the state shared, the hand exclusively, both for a batch of slots at a
//! time.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use cowfs_base::sync::Mutex;
use cowfs_base::{Ino, ROOT_INO};

use crate::changes::{EXTENTS, ROW, XATTRS};
use crate::content::XattrPair;
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
    /// Measured by the last survey, less the bytes evicted since.
    surveyed_bytes: AtomicU64,
    /// Taken in since that survey.
    taken_in_bytes: AtomicU64,
    /// The hand's position. Held during an eviction.
    hand: Mutex<usize>,
}

impl Eviction {
    pub fn took_in_inodes(&self, inodes: usize, name_bytes: usize) {
        let bytes = inodes as u64 * INODE_BYTES + name_bytes as u64;
        self.taken_in_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Changes of a layer are evictable from now on.
    pub fn took_in_layer(&self, inodes: usize, extents: usize, xattr_bytes: usize) {
        let bytes = inodes as u64 * (INODE_BYTES + CONTENT_BYTES)
            + extents as u64 * EXTENT_BYTES
            + xattr_bytes as u64;
        self.taken_in_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn took_in_content(&self, rows: &[ExtentRow], xattrs: &[XattrPair]) {
        let xattrs = xattrs.iter().map(|(name, value)| name.len() + value.len());
        let bytes = CONTENT_BYTES + rows.len() as u64 * EXTENT_BYTES + xattrs.sum::<usize>() as u64;
        self.taken_in_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Engine {
    /// Forgets the least recently used inodes until inodes, entries and contents take at most about
    /// `max_bytes`, as far as they can be loaded again; returns the bytes freed. Cheap unless much
    /// was loaded since the last call. 0: evict all that can be loaded again.
    pub fn evict(&self, max_bytes: u64) -> Result<u64> {
        let eviction = &self.eviction;
        let mut hand = eviction.hand.lock();
        let taken_in_bytes = eviction.taken_in_bytes.load(Ordering::Relaxed);
        let surveyed_bytes = eviction.surveyed_bytes.load(Ordering::Relaxed);
        // If little came in since, the memory in use cannot be evicted, or was used just now.
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
        let listed = self.listed_directories();
        loop {
            let mut state = self.fill()?;
            let slots = state.inodes.slots();
            for _ in 0..SWEEP_BATCH {
                if freed_bytes >= wanted_bytes || seen >= 2 * slots {
                    return Ok(freed_bytes);
                }
                *hand = if *hand + 1 < slots { *hand + 1 } else { 0 };
                seen += 1;
                freed_bytes += state.evict_slot(*hand, &listed);
            }
        }
    }
}

impl State {
    /// Forgets the inode in a slot if it may go and was not used; returns the bytes it took.
    fn evict_slot(&mut self, slot: usize, listed: &HashSet<Ino>) -> u64 {
        let Some(inode) = self.inodes.at_slot(slot) else {
            return 0;
        };
        let is_kept = inode.nlink > 0 && !self.lost.contains(&inode.ino);
        if inode.take_use() || !is_kept {
            return 0;
        }
        let (ino, bytes) = (inode.ino, weight(inode));
        if inode.is_open() || listed.contains(&ino) || self.is_changed(ino) {
            return self.evict_content(ino);
        }
        let references = inode.references();
        let parent = inode.directory().map_or(0, |directory| directory.parent);
        self.forget_cookies(ino);
        if ino == ROOT_INO || !self.away.can_keep(ino, references) {
            self.strip(ino);
            return bytes - INODE_BYTES;
        }
        self.away.put(ino, references, parent);
        self.inodes.remove(ino);
        bytes
    }

    /// Forgets the content of an inode that has to stay, if that is as the base version has it;
    /// returns the bytes it took. Allocated holes are in no version.
    fn evict_content(&mut self, ino: Ino) -> u64 {
        let is_unchanged = !self.has_changed(ino, EXTENTS | XATTRS);
        let Some(inode) = self.inodes.get_mut(ino) else {
            return 0;
        };
        let bytes = content_weight(inode);
        if bytes <= CONTENT_BYTES || !is_unchanged || inode.has_allocated() {
            return 0;
        }
        inode.drop_content();
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

    /// As `Inode::lower_lookups`, also for an evicted inode.
    pub fn lower_references(&mut self, ino: Ino, count: u64) {
        match self.inodes.get(ino) {
            Some(inode) => {
                self.lower(inode, count);
                self.destroy(ino);
            }
            None => self.away.lower(ino, count),
        }
    }

    /// As `Inode::lower_lookups`, also where earlier references are unknown: the kernel gives back
    /// those to an inode without a name all at once.
    pub fn lower(&self, inode: &Inode, count: u64) {
        inode.lower_lookups(count);
        if inode.nlink == 0 && self.away.is_unknown(inode.ino) {
            inode.drop_lost_lookups();
        }
    }

    /// As `Inode::raise_lookups`, also for an evicted inode.
    pub fn raise_references(&mut self, ino: Ino) {
        match self.inodes.get(ino) {
            Some(inode) => inode.raise_lookups(),
            None => self.away.raise(ino),
        }
    }

    /// Whether an uncommitted layer has changed it: then memory is newer than the base version.
    pub fn is_changed(&self, ino: Ino) -> bool {
        self.has_changed(ino, ROW | EXTENTS | XATTRS)
    }

    fn has_changed(&self, ino: Ino, what: u8) -> bool {
        let frozen = self.frozen.as_ref();
        self.changes.has(ino, what) || frozen.is_some_and(|frozen| frozen.changes.has(ino, what))
    }
}

/// The approximate memory of an inode and all its data.
fn weight(inode: &Inode) -> u64 {
    let entries = inode.directory().map_or(0, |directory| directory.bytes());
    INODE_BYTES + content_weight(inode) + entries as u64
}

fn content_weight(inode: &Inode) -> u64 {
    inode.content.as_deref().map_or(0, |content| {
        let extents = content.extents.len() + content.extents.allocated().count();
        CONTENT_BYTES + extents as u64 * EXTENT_BYTES + content.xattrs.bytes() as u64
    })
}
