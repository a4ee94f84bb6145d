//! Layers: what a commit publishes.
//!
//! `freeze` moves the set of changes aside and bumps the layer number; from then on the first
//! change of a frozen thing saves its old value (`State::apply`). `layer_pages` reads the frozen
//! layer: saved values where there are any, live ones elsewhere. `layer_committed` gives the ranges
//! that are still as they were frozen their chunks; `layer_failed` joins the layer with the current
//! one.

pub(crate) mod checkpoint;
pub(crate) mod cookies;
pub(crate) mod effect;
pub(crate) mod file_rows;
pub(crate) mod layer_pages;
pub(crate) mod nameless;
pub(crate) mod recovery;
pub(crate) mod requests;
pub(crate) mod small_files;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cowfs_base::{Errno, Ino, Layer, Segment};
use cowfs_journal::Journal;
use cowfs_staging::Leaving;

use crate::changes::{Changes, EntryAt, Frozen, XATTRS};
use crate::content::XattrPair;
use crate::engine::{Disk, Engine};
use crate::error::Result;
use crate::extents::{Extent, ExtentMap};
use crate::file_rows::FileRows;
use crate::inode::Inode;
use crate::nameless::carry_over;
use crate::read::readable_staged;
use crate::row::{ExtentRow, InodeRow, LayerExtent};
use crate::state::State;

/// The most keys of a layer examined, or files substituted, while other threads wait.
pub(crate) const BATCH: usize = 512;

impl Engine {
    /// Whether there are uncommitted changes.
    pub fn is_dirty(&self) -> Result<bool> {
        let state = self.read()?;
        Ok(!state.changes.is_empty() || state.frozen.is_some())
    }

    /// Closes the current layer under its number and starts the next. None if nothing has changed.
    /// EBUSY while one is frozen.
    pub fn freeze(&self) -> Result<Option<Layer>> {
        let disk = self.disk()?;
        let _layers = disk.lock_layers();
        let journal = {
            let state = self.read()?;
            if state.frozen.is_some() {
                return Err(Errno::EBUSY.into());
            }
            if state.changes.is_empty() {
                return Ok(None);
            }
            state.journal.clone().ok_or(Errno::EINVAL)?
        };
        if let Some(layer) = self.freeze_older(disk, &journal)? {
            return Ok(Some(layer));
        }
        // This syncs files, so it comes before the lock: writers go on.
        let successor = disk.with_room(Leaving::Committing, || journal.successor())?;
        let mut state = self.change()?;
        let layer = state.layer;
        state.freeze_as(layer);
        state.layer = successor.layer();
        state.journal = Some(successor);
        carry_over(&mut state, disk, &self.listed_directories());
        Ok(Some(layer))
    }

    /// Freezes changes left by failed commits and a recovery, if nothing has changed since. All of
    /// them are in older journals, so the current one, still empty, continues, and commits that
    /// fail again and again make no new files.
    fn freeze_older(&self, disk: &Disk, journal: &Journal) -> Result<Option<Layer>> {
        if !journal.is_unused() {
            return Ok(None);
        }
        let mut state = self.change()?;
        if !journal.is_unused() {
            return Ok(None);
        }
        let layer = state.layer - 1;
        state.freeze_as(layer);
        carry_over(&mut state, disk, &self.listed_directories());
        Ok(Some(layer))
    }

    /// The layer is in the store and its head number on stable storage: its files' ranges get their
    /// chunks, its journal goes. EINVAL, and nothing done, unless `contents` names every file of
    /// `layer_contents` with rows that can be held.
    pub fn layer_committed(&self, layer: Layer, contents: &FileRows) -> Result<()> {
        let disk = self.disk()?;
        let _layers = disk.lock_layers();
        self.check_contents(layer, contents)?;
        let mut files = contents.iter().peekable();
        let mut extents = 0;
        while files.peek().is_some() {
            let mut state = self.fill()?;
            let frozen = state.frozen.take().ok_or(Errno::EINVAL)?;
            for (ino, _, rows) in files.by_ref().take(BATCH) {
                state.substitute(&frozen, ino, &rows);
                extents += rows.len();
            }
            state.frozen = Some(frozen);
        }
        let (frozen, journal, xattr_bytes) = {
            let mut state = self.fill()?;
            let frozen = state.frozen.take();
            let changed = frozen
                .iter()
                .flat_map(|frozen| frozen.changes.marked(XATTRS));
            let inodes = changed.filter_map(|ino| state.inodes.get(ino));
            let xattr_bytes: usize = inodes.map(Inode::xattr_bytes).sum();
            if let Some(frozen) = &frozen {
                state.base += frozen.changes.growth;
            }
            (frozen, state.journal.clone(), xattr_bytes)
        };
        let inodes = frozen
            .iter()
            .flat_map(|frozen| frozen.changes.inodes.iter());
        self.eviction
            .took_in_layer(inodes.count(), extents, xattr_bytes);
        // Large, and no other thread needs to wait until it is freed.
        drop(frozen);
        // Bytes that an earlier process could not make durable are in the store now.
        disk.is_journal_lost.store(false, Ordering::Release);
        disk.committed.store(layer, Ordering::Release);
        disk.checkpointing.made(0);
        // The commit holds even if removing the files fails: the next open removes the rest.
        let _ = journal.map(|journal| journal.remove_through(layer));
        Ok(())
    }

    /// Joins the layer with the current one.
    pub fn layer_failed(&self, layer: Layer) -> Result<()> {
        let disk = self.disk()?;
        let _layers = disk.lock_layers();
        let mut state = self.fill()?;
        state.frozen_layer(layer)?;
        let Some(frozen) = state.frozen.take() else {
            return Ok(());
        };
        state.older_bytes += frozen.logged_bytes;
        let mut joined = Arc::unwrap_or_clone(frozen.changes);
        let later = std::mem::take(&mut state.changes);
        joined.join(later, |key| {
            state
                .directory(key.parent)
                .is_ok_and(|directory| directory.get(key.name).is_some())
        });
        let inodes = joined
            .marked(XATTRS)
            .filter_map(|ino| state.inodes.get(ino));
        let named = inodes.filter(|inode| inode.nlink > 0);
        joined.xattr_bytes = named.map(|inode| inode.xattr_bytes() as u64).sum();
        state.changes = joined;
        Ok(())
    }

    /// Every file of the layer and no other, at its version, with rows that can be held.
    fn check_contents(&self, layer: Layer, contents: &FileRows) -> Result<()> {
        for (_, _, rows) in contents.iter() {
            for row in rows {
                row.check().map_err(|_| Errno::EINVAL)?;
            }
        }
        let (mut found, mut after) = (0, 0);
        loop {
            let wanted = self.layer_contents(layer, after, BATCH)?;
            let Some((last, _)) = wanted.last() else {
                break;
            };
            (found, after) = (found + wanted.len(), *last);
            let is_there = |(ino, version): &(Ino, u64)| contents.version(*ino) == Some(*version);
            if !wanted.iter().all(is_there) {
                return Err(Errno::EINVAL.into());
            }
        }
        if found == contents.len() {
            Ok(())
        } else {
            Err(Errno::EINVAL.into())
        }
    }
}

/// Extents as the rows of a layer.
pub(crate) fn layer_rows(state: &State, extents: &ExtentMap) -> Vec<LayerExtent> {
    let row = |extent: &Extent| LayerExtent {
        offset: extent.offset,
        length: extent.length,
        staged: readable_staged(state, extent),
        chunk: extent.chunk.clone(),
        skip: extent.skip,
    };
    extents.iter().map(row).collect()
}

impl State {
    /// Closes the changes so far as `layer`; the caller has checked that no layer is frozen.
    fn freeze_as(&mut self, layer: Layer) {
        let next = Changes::starting_at(self.next_ino);
        let changes = std::mem::replace(&mut self.changes, next);
        let logged_bytes = self.logged_bytes();
        self.older_bytes = 0;
        self.give_up_spare_numbers();
        self.frozen = Some(Frozen {
            logged_bytes,
            ..Frozen::new(layer, self.next_ino, Arc::new(changes))
        });
    }

    /// The frozen layer with this number; EINVAL if there is no such layer.
    pub fn frozen_layer(&self, layer: Layer) -> Result<&Frozen> {
        self.frozen
            .as_ref()
            .filter(|frozen| frozen.layer == layer)
            .ok_or(Errno::EINVAL.into())
    }

    /// The inode of an entry at the freeze; 0: there was none.
    pub fn frozen_entry(&self, frozen: &Frozen, at: EntryAt<'_>) -> Ino {
        match frozen.saved_entries.get(&at) {
            Some(ino) => *ino,
            None => self
                .directory(at.parent)
                .ok()
                .and_then(|entries| entries.get(at.name))
                .unwrap_or(0),
        }
    }

    /// The row at the freeze of an inode that had a name then.
    pub fn frozen_row(&self, frozen: &Frozen, ino: Ino) -> Option<InodeRow> {
        let saved = frozen.saved.get(&ino).and_then(|saved| saved.row.clone());
        saved
            .or_else(|| self.inodes.get(ino).map(|inode| inode.row()))
            .filter(|row| row.nlink > 0)
    }

    pub fn frozen_extents<'a>(
        &'a self,
        frozen: &'a Frozen,
        ino: Ino,
    ) -> Option<(u64, &'a ExtentMap)> {
        if let Some((version, extents)) = frozen
            .saved
            .get(&ino)
            .and_then(|saved| saved.extents.as_ref())
        {
            return Some((*version, extents));
        }
        let content = self.inodes.get(ino)?.content.as_deref()?;
        Some((content.version, &content.extents))
    }

    pub fn frozen_xattrs(&self, frozen: &Frozen, ino: Ino) -> Vec<XattrPair> {
        if let Some(xattrs) = frozen
            .saved
            .get(&ino)
            .and_then(|saved| saved.xattrs.as_ref())
        {
            return xattrs.pairs().to_vec();
        }
        let content = self
            .inodes
            .get(ino)
            .and_then(|inode| inode.content.as_deref());
        content.map_or(Vec::new(), |content| content.xattrs.pairs().to_vec())
    }

    /// Gives every range of a file that is still mapped as it was frozen what the commit made of
    /// it: its chunk, with the staged bytes as a cache, or a hole where the rows have none.
    ///
    /// A file that has changed since the freeze may have records behind this layer that name such a
    /// range in its segment: a checkpoint's, which tells the whole file, or a copy's that brought
    /// the bytes back. No record tells that it has a chunk now, and a replay maps the staged bytes
    /// again. So the segment is held; without it the range would be lost.
    fn substitute(&mut self, frozen: &Frozen, ino: Ino, rows: &[ExtentRow]) {
        let saved = frozen
            .saved
            .get(&ino)
            .and_then(|saved| saved.extents.as_ref())
            .map(|(_, extents)| extents);
        let Some(content) = self
            .inodes
            .get_mut(ino)
            .and_then(|inode| inode.content.as_deref_mut())
        else {
            return;
        };
        match saved {
            None => {
                let mut committed = committed_extents(&content.extents, rows, &self.segments);
                for (from, to) in content.extents.allocated() {
                    committed.allocate(from, to);
                }
                content.extents = committed;
            }
            Some(as_frozen) => {
                let committed = committed_extents(as_frozen, rows, &self.segments);
                let live: Vec<Extent> = content.extents.iter().cloned().collect();
                for extent in live {
                    for old in as_frozen.overlapping(extent.offset, extent.end()) {
                        if extent.is_backed_as(old) {
                            let staged = extent.staged.filter(|_| extent.chunk.is_none());
                            let segment = staged.map(|staged| staged.segment());
                            let is_named = |segment: &u64| self.changes.segments.contains(segment);
                            self.changes.held.extend(segment.filter(is_named));
                            let (from, to) =
                                (extent.offset.max(old.offset), extent.end().min(old.end()));
                            replace_range(&mut content.extents, &committed, from, to);
                        }
                    }
                }
            }
        }
    }
}

fn replace_range(extents: &mut ExtentMap, committed: &ExtentMap, from: u64, to: u64) {
    extents.unmap(from, to);
    for extent in committed.overlapping(from, to) {
        extents.map(extent.clip(from, to));
    }
}

/// The rows as extents, with the staged bytes that they were made of as long as those are here. A
/// row is split into as many extents as there were writes. References to removed segments are
/// dropped, so that a file does not gain extents the longer it is appended to.
fn committed_extents(
    as_frozen: &ExtentMap,
    rows: &[ExtentRow],
    readable: &HashSet<Segment>,
) -> ExtentMap {
    let mut committed = ExtentMap::default();
    for row in rows {
        let whole = Extent::from_row(row);
        committed.map(whole.clone());
        for old in as_frozen.overlapping(whole.offset, whole.end()) {
            let part = whole.clip(old.offset, old.end());
            let staged = old.clip(part.offset, part.end()).staged;
            if staged.is_some_and(|staged| readable.contains(&staged.segment())) {
                committed.map(Extent { staged, ..part });
            }
        }
    }
    committed
}
