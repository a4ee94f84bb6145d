//! Staged bytes: the removable segments, and the files that are quiet enough to upload early.

use std::collections::{BTreeSet, BinaryHeap};

use cowfs_base::{Ino, Segment, monotonic_ns};

use crate::changes::EXTENTS;
use crate::engine::{Disk, Engine};
use crate::error::Result;
use crate::extents::Extent;
use crate::layers::layer_rows;
use crate::row::LayerExtent;
use crate::state::State;

/// How many committed bytes are removed.
#[derive(Clone, Copy)]
pub(crate) enum Amount {
    /// So many that at most this is left.
    Kept(u64),
    /// At least this, if there is as much.
    Freed(u64),
    /// All, including the current segment: no more appends follow.
    EverythingCommitted,
}

/// (time of a file's last write by the monotonic clock, inode).
pub type Written = (u64, Ino);

/// A file to upload early, and the data version that was seen.
pub type QuietFile = (Written, u64);

impl Engine {
    /// Removes segments that nothing uncommitted needs, oldest first, until such segments and the
    /// files kept for later ones hold at most `max_bytes`, those files at most half of it; returns
    /// the bytes freed. Bytes that were committed are read from their chunks from then on.
    pub fn trim_staging(&self, max_bytes: u64) -> Result<u64> {
        self.trim(self.disk()?, Amount::Kept(max_bytes))
    }

    /// Bytes of segments that nothing uncommitted needs, which cache recent writes, and of files
    /// kept for later segments.
    pub fn committed_staged_bytes(&self) -> Result<u64> {
        let disk = self.disk()?;
        let needed = needed_segments(&*self.read()?);
        let current = disk.staging.current_segment();
        let segments = disk.staging.segments().into_iter();
        let clean =
            segments.filter(|(segment, _)| !needed.contains(segment) && Some(*segment) != current);
        let clean_bytes: u64 = clean.map(|(_, bytes)| bytes).sum();
        Ok(clean_bytes + disk.staging.spare_bytes())
    }

    pub(crate) fn trim(&self, disk: &Disk, amount: Amount) -> Result<u64> {
        let spares_max_bytes = match amount {
            Amount::Kept(most) => disk.staging.spares_within(most / 2),
            _ => 0,
        };
        let spare_bytes = disk.staging.shrink_spares(spares_max_bytes);
        let removed = {
            let _no_reader = disk.forgetting.write();
            // No thread is between staging bytes and mapping them while the choice is made.
            let _no_unmapped = disk.appends.write();
            let mut state = self.change()?;
            let needed = needed_segments(&state);
            let current = disk
                .staging
                .current_segment()
                .filter(|_| !matches!(amount, Amount::EverythingCommitted));
            let is_clean =
                |segment: &Segment| !needed.contains(segment) && Some(*segment) != current;
            let clean: Vec<_> = disk
                .staging
                .segments()
                .into_iter()
                .filter(|(segment, _)| is_clean(segment))
                .collect();
            let clean_bytes: u64 = clean.iter().map(|(_, bytes)| bytes).sum();
            let mut wanted_bytes = match amount {
                Amount::Kept(most) => clean_bytes.saturating_sub(most - spares_max_bytes),
                Amount::Freed(least) => least.saturating_sub(spare_bytes),
                Amount::EverythingCommitted => u64::MAX,
            };
            let mut removed = Vec::new();
            for (segment, bytes) in clean {
                if wanted_bytes == 0 {
                    break;
                }
                wanted_bytes = wanted_bytes.saturating_sub(bytes);
                state.segments.remove(&segment);
                state.nameless_segments.remove(&segment);
                removed.push((segment, bytes));
            }
            removed
        };
        for (segment, _) in &removed {
            disk.staging.remove(*segment)?;
        }
        // Segments whose files have just become spare are among the removed.
        disk.staging.shrink_spares(spares_max_bytes);
        let removed_bytes: u64 = removed.iter().map(|(_, bytes)| bytes).sum();
        Ok(removed_bytes + spare_bytes)
    }

    /// (inode, data version) of up to `limit` files with staged, uncommitted bytes that were not
    /// written for `idle_ns` and have lost no bytes.
    ///
    /// Oldest write first, and only those behind `after` in that order. A caller that continues
    /// where it stopped sees every file once, and again if it was written again. Memory: `limit`
    /// files, whatever the number of changed ones.
    pub fn quiet_files(
        &self,
        idle_ns: u64,
        after: Written,
        limit: usize,
    ) -> Result<Vec<QuietFile>> {
        let state = self.read()?;
        let now_ns = monotonic_ns();
        let quiet = state.changes.marked(EXTENTS).filter_map(|ino| {
            let inode = state.inodes.get(ino).filter(|inode| inode.nlink > 0)?;
            if state.lost_bytes(ino) > 0 {
                return None;
            }
            let content = inode.content.as_deref()?;
            let is_quiet = now_ns.saturating_sub(content.written_ns) >= idle_ns;
            let is_staged = |extent: &Extent| extent.chunk.is_none() && extent.staged.is_some();
            let has_staged = is_quiet && content.extents.iter().any(is_staged);
            has_staged.then_some(((content.written_ns, ino), content.version))
        });
        let mut oldest = BinaryHeap::new();
        for file in quiet.filter(|(written, _)| *written > after) {
            oldest.push(file);
            if oldest.len() > limit {
                oldest.pop();
            }
        }
        Ok(oldest.into_sorted_vec())
    }

    /// Bytes that were staged since the mount, including bytes no longer needed.
    pub fn staged_bytes(&self) -> Result<u64> {
        Ok(self.disk()?.staging.appended_bytes())
    }

    /// Up to `limit` named files of at least `least_bytes` that were written within `recent_ns`,
    /// have no chunk at their beginning, `most_extents` at most, and no lost bytes; in no order.
    pub fn growing_files(
        &self,
        least_bytes: u64,
        recent_ns: u64,
        most_extents: usize,
        limit: usize,
    ) -> Result<Vec<Ino>> {
        let state = self.read()?;
        let now_ns = monotonic_ns();
        let is_growing = |ino: &Ino| {
            let Some(inode) = state.inodes.get(*ino) else {
                return false;
            };
            let Some(content) = inode.content.as_deref() else {
                return false;
            };
            inode.nlink > 0
                && inode.row().size >= least_bytes
                && now_ns.saturating_sub(content.written_ns) < recent_ns
                && content
                    .extents
                    .iter()
                    .next()
                    .is_some_and(|first| first.chunk.is_none())
                && content.extents.len() <= most_extents
                && state.lost_bytes(*ino) == 0
        };
        let growing = state.changes.marked(EXTENTS).filter(is_growing);
        Ok(growing.take(limit).collect())
    }

    /// (data version, extents) of a file as it is now.
    pub fn live_extents(&self, ino: Ino) -> Result<(u64, Vec<LayerExtent>)> {
        let state = self.read()?;
        let content = state.content(ino)?;
        Ok((content.version, layer_rows(&state, &content.extents)))
    }
}

/// Segments that records of uncommitted layers refer to, even where a later record covers them:
/// after a power loss the later bytes may be missing, and then the earlier ones count (`reclaim`
/// knows when not). And those of unlinked files that are still open.
pub(crate) fn needed_segments(state: &State) -> BTreeSet<Segment> {
    let mut needed = state.changes.segments.clone();
    needed.extend(
        state
            .frozen
            .iter()
            .flat_map(|frozen| &frozen.changes.segments),
    );
    for ino in &state.orphans {
        if let Some(content) = state
            .inodes
            .get(*ino)
            .and_then(|inode| inode.content.as_deref())
        {
            let uncommitted = content
                .extents
                .iter()
                .filter(|extent| extent.chunk.is_none());
            needed.extend(
                uncommitted
                    .filter_map(|extent| extent.staged)
                    .map(|staged| staged.segment()),
            );
        }
    }
    needed
}
