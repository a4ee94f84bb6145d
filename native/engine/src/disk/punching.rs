//! Frees the dead parts of segments that still have live ones, without room for a copy.
//!
//! A hole must not be punched into a range that a record covers in part: after a power loss the
//! record would fail its checksum, and its live bytes with it. So the segment gets a second number
//! first (a hard link), and its live extents are mapped there, each by a record of its own. The
//! first number is then dead and is removed like any dead segment: after a sync if bytes had been
//! promised. Only then are all bytes punched that those records do not name.
//!
//! - Readers that planned with the first number find it gone and plan again, as for every removed
//!   segment.
//! - Bytes overwritten meanwhile are dead in the second segment, and a later pass frees them.
//! - Bytes that the disk has lost, and extents that change meanwhile, stay with the first number,
//!   which then stays whole.
//! - Each run of bytes that has a checksum of its own gets a record of its own, so that bytes that
//!   were synced never share one with bytes that are lost later.
//!
//! Cost: a record of about 50 bytes an extent and a run. Before the disk is full, a segment is
//! taken only if a sixteenth of it is dead, and eight times the size of its records. Once a write
//! was refused, one block more than its records is enough. A pass takes the segments that gain
//! most, a few at a time; a caller that needs more makes another pass.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use cowfs_base::{Ino, Segment};
use cowfs_staging::{Leaving, Sum, is_full};

use crate::effect::Effect;
use crate::engine::{Disk, Engine};
use crate::error::Result;
use crate::extents::{Extent, Staged};
use crate::survey::{BLOCK_BYTES, PartlyDead, extents_of};

const BATCH_EXTENTS: usize = 512;
/// The most ranges in one record.
const RECORD_RANGES: usize = 4096;
const RECORD_BYTES: u64 = 50;
/// A segment with a smaller dead part is left alone while the disk is not full.
const PART_DEAD: u64 = 16;
/// A gigabyte in earnest: the extents of so many are in memory at once.
const SEGMENTS_AT_ONCE: usize = 16;

/// Which segments are worth it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Punching {
    /// Segments that gain much at little cost.
    Cheap,
    /// A write was refused: each that wins a block.
    Thorough,
}

impl Punching {
    /// The bytes that punching the segment frees, minus the room of its records; None if too few.
    pub(crate) fn gain(self, found: &PartlyDead) -> Option<u64> {
        let record_bytes = found.extents * RECORD_BYTES;
        let least_bytes = match self {
            Punching::Cheap => (found.size_bytes / PART_DEAD).max(record_bytes * 8),
            Punching::Thorough => record_bytes,
        };
        let is_worth_it = found.dead_bytes >= least_bytes + BLOCK_BYTES;
        is_worth_it.then(|| found.dead_bytes - record_bytes)
    }
}

/// A segment's second number, and what of its bytes was mapped there.
struct Renumbered {
    old: Segment,
    new: Segment,
    mapped: Vec<(u64, u64)>,
}

impl Engine {
    /// Gives back dead blocks of segments that no frozen layer refers to; returns the bytes freed.
    /// Syncs.
    pub fn punch_staging(&self, punching: Punching) -> Result<u64> {
        let disk = self.disk()?;
        let _one = disk.reclaim.lock();
        let before_bytes = disk.staging.used_bytes();
        disk.staging.seal_current();
        let segments = self.most_dead(disk, punching)?;
        let mut extents: BTreeMap<Segment, Vec<(Ino, Extent)>> = BTreeMap::new();
        for (ino, extent) in self.extents_in(disk, &segments)? {
            if let Some(staged) = extent.staged {
                extents
                    .entry(staged.segment())
                    .or_default()
                    .push((ino, extent));
            }
        }
        let mut renumbered = Vec::new();
        for (segment, extents) in extents {
            renumbered.extend(self.renumber(disk, segment, &extents)?);
        }
        if renumbered.is_empty() {
            return Ok(0);
        }
        self.remove_all_dead(disk)?;
        let is_old_gone = |done: &&Renumbered| !disk.staging.contains(done.old);
        for done in renumbered.iter().filter(is_old_gone) {
            disk.staging.punch_all_but(done.new, &done.mapped)?;
        }
        Ok(before_bytes.saturating_sub(disk.staging.used_bytes()))
    }

    /// The segments that gain most.
    fn most_dead(&self, disk: &Disk, punching: Punching) -> Result<BTreeSet<Segment>> {
        let survey = self.survey(disk)?;
        let gains = survey
            .partly_dead()
            .filter_map(|found| Some((Reverse(punching.gain(&found)?), found.segment)));
        let mut gains: Vec<_> = gains.collect();
        gains.sort_unstable();
        let most = gains.into_iter().take(SEGMENTS_AT_ONCE);
        Ok(most.map(|(_, segment)| segment).collect())
    }

    /// Maps the segment's live extents under a second number. None if no second number is possible,
    /// or if not even the ballast has room for one.
    fn renumber(
        &self,
        disk: &Disk,
        old: Segment,
        extents: &[(Ino, Extent)],
    ) -> Result<Option<Renumbered>> {
        let new = match disk.with_room(Leaving::Changing, || disk.staging.link_again(old)) {
            Ok(Some(new)) => new,
            Ok(None) => return Ok(None),
            Err(error) if is_full(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut mapped = Vec::new();
        for batch in extents.chunks(BATCH_EXTENTS) {
            self.map_again(disk, batch, new, &mut mapped)?;
        }
        Ok(Some(Renumbered { old, new, mapped }))
    }

    /// Maps those of the extents that are as they were in the segment `new`; `mapped` gets their
    /// ranges in it.
    fn map_again(
        &self,
        disk: &Disk,
        extents: &[(Ino, Extent)],
        new: Segment,
        mapped: &mut Vec<(u64, u64)>,
    ) -> Result<()> {
        let checked: Vec<(Ino, &Extent, u64, Vec<Sum>)> = extents
            .iter()
            .filter_map(|(ino, extent)| {
                let staged = extent.staged?;
                let runs = disk
                    .staging
                    .runs(staged.segment(), staged.offset, extent.length);
                Some((*ino, extent, staged.offset, runs.ok()?))
            })
            .collect();
        // While nothing maps it yet, it may have been removed like any other segment.
        let _unmapped = disk.appends.read();
        if !disk.staging.contains(new) {
            return Ok(());
        }
        let mut state = self.change()?;
        let mut effects = Vec::new();
        for (ino, extent, segment_offset, runs) in checked {
            let is_unchanged = extents_of(&state, ino).is_some_and(|extents| {
                let mut found = extents.overlapping(extent.offset, extent.end());
                found.next() == Some(extent) && found.next().is_none()
            });
            if !is_unchanged {
                continue;
            }
            mapped.push((segment_offset, segment_offset + extent.length));
            for run in runs {
                let length = run.length.into();
                disk.staging.note(new, run.offset, length, run.crc);
                let offset = extent.offset + (run.offset - segment_offset);
                let place = Staged::appended(new, run.offset);
                effects.push(Effect::map(ino, offset, length, place, run.crc));
            }
        }
        for effects in effects.chunks(RECORD_RANGES) {
            Engine::record(&mut state, effects)?;
        }
        Ok(())
    }
}
