//! Makes written data durable, and knows whether it is.
//!
//! A failed sync is reported to its caller; the kernel will not report it again. So staging
//! remembers which segments failed, across restarts too (`cowfs_staging::Failures`), and new bytes
//! go to another segment. A pass of `reclaim` soon moves the bytes that can still be read, so that
//! the next fsync can succeed. If an earlier process wrote a segment, we do not know which errors
//! the kernel has reported to it. A sync of such a segment therefore also reads the bytes and
//! compares them with their checksums.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use cowfs_base::{Ino, Segment};
use cowfs_journal::Journal;

use crate::content::{Content, Unsynced};
use crate::engine::{Disk, Engine};
use crate::error::{Error, Result};
use crate::handle::HandleId;
use crate::staged::needed_segments;

impl Engine {
    /// The segment bytes of the file, then the journal, are on stable storage when this returns.
    /// EIO if bytes of it are lost. Times cost no extra write here, so data-only and full are the
    /// same.
    pub fn fsync(&self, id: HandleId, _datasync: bool) -> Result<()> {
        let handle = self.handle(id)?;
        let Some(disk) = &self.disk else {
            return Ok(());
        };
        let (journal, segments, inherited, version) = {
            let state = self.read()?;
            let lost_bytes = state.lost_bytes(handle.ino);
            if lost_bytes > 0 {
                return Err(Error::fault(format_args!(
                    "fsync of inode {}: {lost_bytes} bytes of it are lost",
                    handle.ino
                )));
            }
            let content = state
                .inodes
                .get(handle.ino)
                .and_then(|inode| inode.content.as_deref());
            let (segments, version) = content.map_or((Vec::new(), 0), |content| {
                (content.unsynced.segments().to_vec(), content.version)
            });
            // Under the lock: from here on, overwritten bytes are released only once their
            // replacement is durable.
            segments
                .iter()
                .for_each(|segment| disk.staging.promise(*segment));
            let inherited = content.map_or(Vec::new(), |content| doubted(disk, content, &segments));
            (state.journal.clone(), segments, inherited, version)
        };
        let Some(journal) = journal else {
            return Ok(());
        };
        let upto_seq = journal.last_seq();
        let outcome = segments
            .iter()
            .try_for_each(|segment| self.sync_segment(disk, *segment));
        if outcome.is_err() {
            disk.reclaim.hurry();
        }
        outcome?;
        for (segment, offset, length) in inherited {
            let outcome = disk.staging.check(segment, offset, length);
            self.unless_unneeded(segment, outcome.map_err(Into::into))?;
        }
        self.sync_journal(disk, &journal, upto_seq)?;
        if !segments.is_empty() {
            self.forget_unsynced(handle.ino, version)?;
        }
        Ok(())
    }

    /// Makes everything written so far durable. Even after an error, all that could be synced is
    /// durable.
    pub fn sync(&self) -> Result<()> {
        self.sync_but_for(&BTreeSet::new(), true)
    }

    /// `sync` without reading what an earlier process wrote: the next one will look at it.
    pub(crate) fn sync_unchecked(&self) -> Result<()> {
        self.sync_but_for(&BTreeSet::new(), false)
    }

    /// As `sync`, except for segments that nothing maps any more.
    pub(crate) fn sync_but_for(&self, dead: &BTreeSet<Segment>, checks: bool) -> Result<()> {
        let Some(disk) = &self.disk else {
            return Ok(());
        };
        let (journal, mut segments) = {
            let state = self.read()?;
            let needed = needed_segments(&state);
            needed
                .iter()
                .for_each(|segment| disk.staging.promise(*segment));
            (state.journal.clone(), needed)
        };
        segments.retain(|segment| !dead.contains(segment));
        let Some(journal) = journal else {
            return Ok(());
        };
        let upto_seq = journal.last_seq();
        let mut outcome = Ok(());
        for segment in segments {
            let synced = self
                .sync_segment(disk, segment)
                .and_then(|()| match checks {
                    true => self.unless_unneeded(
                        segment,
                        disk.staging.check_segment(segment).map_err(Into::into),
                    ),
                    false => Ok(()),
                });
            outcome = outcome.and(synced);
        }
        outcome.and(self.sync_journal(disk, &journal, upto_seq))
    }

    /// A failed sync wakes the threads that write a checkpoint to replace the journal.
    fn sync_journal(&self, disk: &Disk, journal: &Journal, upto_seq: u64) -> Result<()> {
        if let Err(error) = journal.sync(upto_seq) {
            disk.failures.note_journal();
            self.activity.note_apart();
            return Err(error.into());
        }
        if disk.is_journal_lost.load(Ordering::Acquire) {
            return Err(Error::fault(
                "a sync: an earlier process lost part of the journal",
            ));
        }
        Ok(())
    }

    pub(crate) fn sync_segment(&self, disk: &Disk, segment: Segment) -> Result<()> {
        self.unless_unneeded(segment, disk.staging.sync(segment).map_err(Into::into))
    }

    /// A failure does not count if nothing uncommitted needs the segment: its bytes are in the
    /// store or unused, and it may have been removed in the meantime.
    fn unless_unneeded(&self, segment: Segment, outcome: Result<()>) -> Result<()> {
        match outcome {
            Err(_) if !needed_segments(&*self.read()?).contains(&segment) => Ok(()),
            outcome => outcome,
        }
    }

    /// If the file has not changed since, none of its bytes waits for an fsync any more.
    fn forget_unsynced(&self, ino: Ino, version: u64) -> Result<()> {
        let mut state = self.fill()?;
        if let Some(content) = state
            .inodes
            .get_mut(ino)
            .and_then(|inode| inode.content.as_deref_mut())
            && content.version == version
        {
            content.unsynced = Unsynced::default();
        }
        Ok(())
    }
}

/// (segment, offset in it, length) of what a file has in those of the segments whose bytes may be
/// lost.
fn doubted(disk: &Disk, content: &Content, segments: &[Segment]) -> Vec<(Segment, u64, u64)> {
    let is_doubted = |segment: &&Segment| disk.staging.is_doubted(**segment);
    let doubted: BTreeSet<Segment> = segments.iter().filter(is_doubted).copied().collect();
    if doubted.is_empty() {
        return Vec::new();
    }
    let uncommitted = content
        .extents
        .iter()
        .filter(|extent| extent.chunk.is_none());
    let ranges = uncommitted.filter_map(|extent| {
        let staged = extent.staged?;
        Some((staged.segment(), staged.offset, extent.length))
    });
    ranges
        .filter(|(segment, ..)| doubted.contains(segment))
        .collect()
}
