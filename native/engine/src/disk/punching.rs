//! Giving back the dead parts of segments that still have live ones, without room for a copy.
//!
//! A hole must not be punched into a range that a record covers in part: after a power loss the
//! record would fail its checksum, and its live bytes with it. So the segment gets a second number
//! first (a hard link), and what is mapped of it is mapped there, each extent by a record of its
//! own. The first number is then dead and goes as any dead segment does: behind a sync where bytes
//! had been promised. Only when it has gone is everything punched that those records do not name.
//!
//! - Readers that planned with the first number find it gone and plan again, as for every removed
//!   segment.
//! - What is overwritten meanwhile is dead in the second segment, until it is given back by a later
//!   pass.
//! - Bytes that the disk has lost, and extents that change meanwhile, stay with the first number,
//!   which then stays whole.
//! - Each run of bytes that has a checksum of its own gets a record of its own, so that bytes that
//!   were synced never share one with bytes that are lost later.
//!
//! Cost: a record of about 50 bytes an extent and a run; segments that would win less than eight
//! times that are left alone.

use std::collections::BTreeSet;

use cowfs_base::{Ino, Segment};
use cowfs_staging::{Leaving, Sum, is_full};

use crate::effect::Effect;
use crate::engine::{Disk, Engine};
use crate::error::Result;
use crate::extents::{Extent, Staged};
use crate::survey::extents_of;

const BATCH_EXTENTS: usize = 512;
/// So many are named by one record.
const RECORD_RANGES: usize = 4096;
const RECORD_BYTES: u64 = 50;
/// A segment of which a smaller part is dead is left alone.
const PART_DEAD: u64 = 16;

/// A segment's second number, and what of its bytes was mapped there.
struct Renumbered {
    old: Segment,
    new: Segment,
    mapped: Vec<(u64, u64)>,
}

impl Engine {
    /// Gives back dead parts of all segments that no frozen layer refers to; returns the bytes
    /// freed. Syncs.
    pub fn punch_staging(&self) -> Result<u64> {
        let disk = self.disk()?;
        let _one = disk.reclaim.lock();
        let before_bytes = disk.staging.used_bytes();
        disk.staging.seal_current();
        let mut renumbered = Vec::new();
        for segment in self.partly_dead(disk)? {
            renumbered.extend(self.renumber(disk, segment)?);
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

    fn partly_dead(&self, disk: &Disk) -> Result<Vec<Segment>> {
        let survey = self.survey(disk)?;
        let is_worth_it = |(segment, live): &(&Segment, &u64)| {
            let dead_bytes = survey.sizes[*segment].saturating_sub(**live);
            **live > 0 && dead_bytes * PART_DEAD >= survey.sizes[*segment]
        };
        let found = survey.live.iter().filter(is_worth_it);
        Ok(found.map(|(segment, _)| *segment).collect())
    }

    /// Maps what is mapped of the segment under a second number. None: it has no other, not even
    /// the ballast has room for one, or it would not pay.
    fn renumber(&self, disk: &Disk, old: Segment) -> Result<Option<Renumbered>> {
        let extents = self.extents_in(disk, &BTreeSet::from([old]))?;
        let live_bytes: u64 = extents.iter().map(|(_, extent)| extent.length).sum();
        let dead_bytes = disk.staging.occupied_bytes(old).saturating_sub(live_bytes);
        if extents.len() as u64 * RECORD_BYTES * 8 > dead_bytes {
            return Ok(None);
        }
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
        // As nothing maps it yet, it may have been removed like any other.
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
