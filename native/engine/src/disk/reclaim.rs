//! Reclaims staged bytes that were overwritten, or belong to removed files, without a commit. So a
//! mount whose files are overwritten again and again takes a bounded part of the local disk.
//!
//! A pass copies the live bytes of mostly dead segments to the current one, then removes the
//! segments that nothing maps any more. The rules for removing a segment:
//!
//! - It is not the current segment, and no frozen layer's record names it: the layer's commit
//!   removes those.
//! - A dead segment stays dead. Bytes get mapped when they are written (`Disk::appends` is held
//!   until then), or when they are copied from a place where they are mapped (a copy looks again
//!   before it is recorded).
//! - After a kill all records are replayed, also the one that covers a dead range. So the segment
//!   is not missed. Only a commit takes mappings away without a record. A record of a later layer,
//!   or a checkpoint of later layers, may still name such a range and counts in a replay. Those
//!   segments (`Changes::held`) stay until the next commit, or until the next checkpoint, which
//!   lists the mappings of that time.
//! - After a power loss the covering record, or its bytes, may be missing. Then the covered bytes
//!   count if they were promised, that is, if an fsync that named their segment had begun. Such a
//!   segment is removed only after everything mapped now, and the journal, are on stable storage. A
//!   segment that no fsync has named is removed at once, without being written to the disk.
//!
//! A pass is due when as many bytes were staged as were found in use, at least `PACE_SEGMENTS`. The
//! caller of `reclaim_when_due` makes it. Writers wait for it once twice as many were staged
//! (`is_reclaim_overdue`, `reclaim_overdue`). So staging holds at most four times the bytes in use
//! plus a gigabyte, however often bytes are overwritten. Checkpoints keep the journal short
//! (`checkpoint`).
//!
//! On a full disk, where copies do not fit, `punching` frees the dead parts instead. `survey`
//! counts the live bytes, a batch of extents at a time, while other threads go on.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cowfs_base::sync::{Condvar, Mutex, MutexGuard};
use cowfs_base::{Ino, Segment};
use cowfs_staging::crc_of;

use crate::effect::Effect;
use crate::engine::{Disk, Engine};
use crate::error::Result;
use crate::extents::{Extent, Staged};
use crate::state::State;
use crate::survey::{Survey, extents_of};

/// 256 MiB in earnest.
const PACE_SEGMENTS: u64 = 4;
/// The bytes copied at a time.
const BATCH_BYTES: u64 = 1 << 20;
const BATCH_EXTENTS: usize = 512;
/// 32 KiB of staged bytes; in practice 2,048 extents are counted under one lock.
const SURVEYED_BYTES: u64 = 32 << 10;
/// The most rounds of copying, if there is no room for all copies at once.
const ROUNDS_MAX: usize = 8;

/// When the next pass is due.
pub(crate) struct Reclaim {
    pace_bytes: u64,
    /// The number of extents examined while the state is locked.
    pub batch_extents: usize,
    /// One pass at a time.
    running: Mutex<()>,
    /// Staging's count of appended bytes at which the next pass is due.
    due: AtomicU64,
    is_wanted: Mutex<bool>,
    wanted: Condvar,
}

impl Reclaim {
    pub fn new(segment_bytes: u64) -> Reclaim {
        let pace_bytes = PACE_SEGMENTS * segment_bytes;
        Reclaim {
            pace_bytes,
            batch_extents: (segment_bytes / SURVEYED_BYTES).max(1) as usize,
            running: Mutex::default(),
            due: pace_bytes.into(),
            is_wanted: Mutex::default(),
            wanted: Condvar::default(),
        }
    }

    /// Held while segments are chosen and moved.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.running.lock()
    }

    /// None while a pass is under way.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        self.running.try_lock()
    }

    /// Fewer free bytes than this are few.
    pub fn pace_bytes(&self) -> u64 {
        self.pace_bytes
    }

    pub fn wake(&self) {
        *self.is_wanted.lock() = true;
        self.wanted.notify_all();
    }

    /// A pass is due now.
    pub fn hurry(&self) {
        self.due.store(0, Ordering::Relaxed);
        self.wake();
    }

    fn overdue_bytes(&self, disk: &Disk) -> Option<u64> {
        let due = self.due.load(Ordering::Relaxed);
        disk.staging.appended_bytes().checked_sub(due)
    }
}

/// A mapped range, and its bytes from `at` on in a batch.
struct Piece {
    ino: Ino,
    extent: Extent,
    at: usize,
}

impl Engine {
    /// Removes segments that nothing uncommitted maps any more, then moves the live bytes of mostly
    /// dead ones as far as there is room; returns the bytes freed. May sync. ENOSPC while moving
    /// ends the moving, not the rest.
    pub fn reclaim_staging(&self) -> Result<u64> {
        let disk = self.disk()?;
        let _one = disk.reclaim.running.lock();
        self.reclaim(disk)
    }

    /// Waits up to `timeout` until a pass is due and makes it; returns the bytes freed.
    pub fn reclaim_when_due(&self, timeout: Duration) -> Result<u64> {
        let disk = self.disk()?;
        {
            let mut is_wanted = disk.reclaim.is_wanted.lock();
            if !*is_wanted {
                disk.reclaim.wanted.wait_for(&mut is_wanted, timeout);
            }
            *is_wanted = false;
        }
        drop(self.read()?);
        self.reclaim_if_due(disk, 0)
    }

    /// Called by writers, without any lock.
    pub(crate) fn wake_reclaim_when_due(&self, disk: &Disk) {
        if disk.reclaim.overdue_bytes(disk).is_some() {
            disk.reclaim.wake();
        }
    }

    /// Whether so much was staged since a pass was due that writers must call `reclaim_overdue`
    /// first. Never waits.
    pub fn is_reclaim_overdue(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| {
            let overdue_bytes = disk.reclaim.overdue_bytes(disk);
            overdue_bytes.is_some_and(|bytes| bytes >= disk.reclaim.pace_bytes)
        })
    }

    /// Makes a pass if one is still overdue, or waits for the pass that is under way; returns the
    /// bytes freed. May sync.
    pub fn reclaim_overdue(&self) -> Result<u64> {
        let disk = self.disk()?;
        self.reclaim_if_due(disk, disk.reclaim.pace_bytes)
    }

    fn reclaim_if_due(&self, disk: &Disk, overdue_bytes: u64) -> Result<u64> {
        let _one = disk.reclaim.running.lock();
        match disk.reclaim.overdue_bytes(disk) {
            Some(bytes) if bytes >= overdue_bytes => self.reclaim(disk),
            _ => Ok(0),
        }
    }

    fn reclaim(&self, disk: &Disk) -> Result<u64> {
        let begun_bytes = disk.staging.appended_bytes();
        // Should it fail, not every write tries again.
        let pace_bytes = disk.reclaim.pace_bytes;
        disk.reclaim
            .due
            .store(begun_bytes + pace_bytes, Ordering::Relaxed);
        if self.read()?.changes.held.len() as u64 >= PACE_SEGMENTS {
            // Releases them. No checkpoint can be made while a commit is under way; if it fails,
            // they stay.
            let _ = self.checkpoint();
        }
        let (mut freed_bytes, survey) = self.remove_dead(disk)?;
        // Bytes that the kernel has not lost yet move to a place that can be synced.
        let failed = disk.staging.failed_segments().into_iter();
        let failed: BTreeSet<Segment> = failed
            .filter(|segment| survey.live.contains_key(segment))
            .collect();
        if !failed.is_empty() {
            let _ = self.move_live(disk, &failed);
        }
        let (dead_bytes, mut survey) = self.remove_all_dead(disk)?;
        freed_bytes += dead_bytes;
        for _ in 0..ROUNDS_MAX {
            // Wholly dead segments have gone by now: removing them needs no room, but copies do.
            let sparse = survey.sparse(disk.staging.free_bytes());
            if sparse.is_empty() || self.move_live(disk, &sparse).is_err() {
                break;
            }
            let moved_from_bytes;
            (moved_from_bytes, survey) = self.remove_all_dead(disk)?;
            freed_bytes += moved_from_bytes;
            if moved_from_bytes == 0 {
                break;
            }
        }
        let live_bytes: u64 = survey.live.values().map(|live| live.bytes).sum();
        disk.reclaim
            .due
            .store(begun_bytes + live_bytes.max(pace_bytes), Ordering::Relaxed);
        Ok(freed_bytes)
    }

    /// Removes dead segments, promised ones after a sync; returns their bytes, and a survey of the
    /// others.
    pub(crate) fn remove_all_dead(&self, disk: &Disk) -> Result<(u64, Survey)> {
        let (mut freed_bytes, survey) = self.remove_dead(disk)?;
        let promised: BTreeSet<Segment> = survey
            .dead()
            .filter(|segment| disk.staging.is_promised(*segment))
            .collect();
        if !promised.is_empty() {
            self.sync_but_for(&promised, true)?;
            freed_bytes += self.remove_synced(disk, &promised)?;
        }
        Ok((freed_bytes, survey))
    }

    /// Removes the dead segments that were never promised; returns their bytes, and a survey of the
    /// others.
    fn remove_dead(&self, disk: &Disk) -> Result<(u64, Survey)> {
        let (survey, dead) = self.survey_then(disk, |state, survey| {
            // An fsync promises segments under the state's lock.
            let dead: Vec<Segment> = survey
                .dead()
                .filter(|segment| !disk.staging.is_promised(*segment))
                .collect();
            for segment in &dead {
                state.forget_segment(*segment);
                survey.live.remove(segment);
            }
            dead
        })?;
        for segment in &dead {
            disk.staging.remove(*segment)?;
        }
        let freed_bytes = dead.iter().map(|segment| survey.sizes[segment]).sum();
        Ok((freed_bytes, survey))
    }

    /// Removes dead segments after a sync that began when they were dead, except those that a layer
    /// was frozen with since.
    fn remove_synced(&self, disk: &Disk, dead: &BTreeSet<Segment>) -> Result<u64> {
        let going: Vec<(Segment, u64)> = {
            let _no_reader = disk.forgetting.write();
            let mut state = self.fill()?;
            let segments = disk.staging.segments();
            let going: Vec<_> = segments
                .into_iter()
                .filter(|(segment, _)| dead.contains(segment) && !state.keeps(*segment))
                .collect();
            for (segment, _) in &going {
                state.forget_segment(*segment);
            }
            going
        };
        for (segment, _) in &going {
            disk.staging.remove(*segment)?;
        }
        Ok(going.iter().map(|(_, bytes)| bytes).sum())
    }

    /// Stages the live bytes of these segments once more, and maps the copies. Bytes that may count
    /// as durable are mapped only once the copy is durable: otherwise a failed write-back of the
    /// copy would lose bytes that an fsync had covered.
    fn move_live(&self, disk: &Disk, segments: &BTreeSet<Segment>) -> Result<()> {
        let extents = self.extents_in(disk, segments)?;
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        for (ino, extent) in extents {
            let mut from = extent.offset;
            while from < extent.end() {
                let part = extent.clip(from, from + (BATCH_BYTES - bytes));
                (from, bytes) = (part.end(), bytes + part.length);
                let at = (bytes - part.length) as usize;
                pieces.push(Piece {
                    ino,
                    extent: part,
                    at,
                });
                if bytes == BATCH_BYTES || pieces.len() == BATCH_EXTENTS {
                    self.move_batch(disk, &std::mem::take(&mut pieces), bytes)?;
                    bytes = 0;
                }
            }
        }
        self.move_batch(disk, &pieces, bytes)
    }

    fn move_batch(&self, disk: &Disk, pieces: &[Piece], bytes: u64) -> Result<()> {
        if pieces.is_empty() {
            return Ok(());
        }
        let mut data = vec![0; bytes as usize];
        // Lost bytes stay where they are, under their old checksum.
        let mut is_read = |piece: &&Piece| {
            let part = &mut data[piece.at..][..piece.extent.length as usize];
            piece.extent.staged.is_some_and(|staged| {
                let (segment, offset) = (staged.segment(), staged.offset);
                disk.staging.read_checked(segment, offset, part).is_ok()
            })
        };
        let pieces: Vec<&Piece> = pieces.iter().filter(&mut is_read).collect();
        if pieces.is_empty() {
            return Ok(());
        }
        let is_synced = is_promised(disk, &pieces);
        let unmapped = disk.appends.read();
        let location = disk.staging.append(&data)?;
        drop(unmapped);
        let synced = match is_synced {
            true => disk.staging.sync(location.segment),
            false => Ok(()),
        };
        let _unmapped = disk.appends.read();
        let mut state = self.change()?;
        // Nothing maps the copy yet, so it may have been removed like any other; and an fsync may
        // have come: the next pass then.
        let is_there = disk.staging.contains(location.segment);
        if !is_there || (is_promised(disk, &pieces) && !is_synced) {
            return Ok(());
        }
        synced?;
        let mut maps: Vec<Effect<'static>> = Vec::new();
        for (ino, offset, length, at) in unchanged_runs(&state, &pieces) {
            let place = Staged::appended(location.segment, location.offset + at as u64);
            let crc = crc_of(&data[at..at + length as usize]);
            maps.push(Effect::map(ino, offset, length, place, crc));
        }
        Engine::record(&mut state, &maps)
    }
}

/// Whether some of the bytes may count as durable.
fn is_promised(disk: &Disk, pieces: &[&Piece]) -> bool {
    let segments = pieces.iter().filter_map(|piece| piece.extent.staged);
    segments
        .into_iter()
        .any(|staged| disk.staging.is_promised(staged.segment()))
}

/// (inode, offset, length, place in the batch) of the pieces that are still mapped as they were,
/// neighbours joined.
fn unchanged_runs(state: &State, pieces: &[&Piece]) -> Vec<(Ino, u64, u64, usize)> {
    let mut runs: Vec<(Ino, u64, u64, usize)> = Vec::new();
    for piece in pieces {
        let Some(extents) = extents_of(state, piece.ino) else {
            continue;
        };
        let old = &piece.extent;
        for found in extents.overlapping(old.offset, old.end()) {
            if found.chunk.is_some() || !found.is_backed_as(old) {
                continue;
            }
            let part = found.clip(old.offset, old.end());
            let at = piece.at + (part.offset - old.offset) as usize;
            match runs.last_mut() {
                Some((ino, offset, length, begin))
                    if *ino == piece.ino
                        && *offset + *length == part.offset
                        && *begin + *length as usize == at =>
                {
                    *length += part.length;
                }
                _ => runs.push((piece.ino, part.offset, part.length, at)),
            }
        }
    }
    runs
}
