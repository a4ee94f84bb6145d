//! Space on a full disk that nothing needs. The answer to `statfs` counts it as free, because
//! `relieve` frees it for the next write.
//!
//! It includes segments of committed bytes, dead segments, and dead blocks of segments that still
//! have live ones, but not segments kept by a frozen layer or a checkpoint. Nothing is counted
//! while much is free. Counting walks the extents of changed files, so it is repeated only after a
//! change, or after a second: bytes of an unlinked file die without a record when it is closed.

use std::time::{Duration, Instant};

use cowfs_base::Layer;
use cowfs_base::sync::Mutex;

use crate::engine::{Disk, Engine};
use crate::error::Result;
use crate::punching::Punching;

const STALE_AFTER: Duration = Duration::from_secs(1);

/// The newest record, the layer, whether one is frozen, and what staging takes.
type Seen = (u64, Layer, bool, u64);

#[derive(Debug, Clone, Copy)]
struct Count {
    seen: Seen,
    made: Instant,
    bytes: u64,
}

/// The last count.
#[derive(Debug, Default)]
pub(crate) struct Freeable(Mutex<Option<Count>>);

impl Engine {
    /// How much more can be written: the free space, and if that is little, also the space that
    /// `relieve` would free.
    pub(crate) fn writable_bytes(&self, disk: &Disk) -> Result<u64> {
        let free_bytes = disk.staging.free_bytes();
        if free_bytes >= disk.reclaim.pace_bytes() {
            return Ok(free_bytes);
        }
        Ok(free_bytes + self.freeable_bytes(disk)?)
    }

    fn freeable_bytes(&self, disk: &Disk) -> Result<u64> {
        let mut last = disk.freeable.0.lock();
        let seen = self.seen(disk)?;
        let is_fresh = |count: &Count| count.seen == seen && count.made.elapsed() < STALE_AFTER;
        if let Some(count) = last.filter(is_fresh) {
            return Ok(count.bytes);
        }
        // A pass is under way: the space that it frees is about to be free.
        let Some(_one) = disk.reclaim.try_lock() else {
            return Ok(last.map_or(0, |count| count.bytes));
        };
        let bytes = self.count_freeable(disk)?;
        *last = Some(Count {
            seen,
            made: Instant::now(),
            bytes,
        });
        Ok(bytes)
    }

    fn count_freeable(&self, disk: &Disk) -> Result<u64> {
        let survey = self.survey_all(disk)?;
        let dead_bytes: u64 = survey.dead().map(|segment| survey.sizes[&segment]).sum();
        let gains = survey.partly_dead();
        let punched_bytes: u64 = gains
            .filter_map(|found| Punching::Thorough.gain(&found))
            .sum();
        // Files kept for later segments count as free already.
        let committed_bytes = self
            .committed_staged_bytes()?
            .saturating_sub(disk.staging.spare_bytes());
        Ok(dead_bytes + punched_bytes + committed_bytes)
    }

    fn seen(&self, disk: &Disk) -> Result<Seen> {
        let state = self.read()?;
        let is_frozen = state.frozen.is_some();
        Ok((
            state.newest_seq(),
            state.layer,
            is_frozen,
            disk.staging.used_bytes(),
        ))
    }
}
