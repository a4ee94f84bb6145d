//! A second number for a segment's file, and holes in it: how the dead parts of a segment are given
//! back (the engine's `punching.rs` says when).
//!
//! Both numbers are names of one file, which no later segment may take over: `Segment::is_shared`.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use rustix::fs::{FallocateFlags, fallocate};

use crate::segment::{self, Segment};
use crate::{Staging, is_full};

const PAGE_BYTES: u64 = 4096;

impl Staging {
    /// Ends appends to the current segment, so that its dead parts can be freed, too.
    pub fn seal_current(&self) {
        self.lock_reserving().close_current();
    }

    /// Disk space of all segments and of the files kept for later ones.
    pub fn used_bytes(&self) -> u64 {
        self.lock_reserving().used_bytes()
    }

    /// Disk space of a segment; 0 for unknown ones.
    pub fn occupied_bytes(&self, segment: u64) -> u64 {
        self.find(segment)
            .map_or(0, |segment| segment.occupied_bytes())
    }

    /// Whether there is such a segment.
    pub fn contains(&self, segment: u64) -> bool {
        self.find(segment).is_some()
    }

    /// Syncs a sealed segment and gives its file another number, whose name is not durable yet.
    /// None if the file system has no hard links, or the sync fails.
    pub fn link_again(&self, segment: u64) -> io::Result<Option<u64>> {
        let Some(old) = self.find(segment) else {
            return Ok(None);
        };
        // The kernel tells of a lost write-back once a file: there must be none to come.
        if self.sync_segment(&old).is_err() || old.has_failed() {
            return Ok(None);
        }
        // Bytes mapped under another number would be punched along with bytes that are dead here.
        if self.file(&old)?.metadata()?.nlink() > 1 {
            return Ok(None);
        }
        let mut reserving = self.lock_reserving();
        let number = self
            .open_files
            .with_descriptor(|| reserving.take_number())?;
        let path = segment::path_of(&self.dir, number);
        match std::fs::hard_link(&old.path, &path) {
            Ok(()) => {}
            Err(error) if is_full(&error) => return Err(error),
            Err(_) => return Ok(None),
        }
        let new = Arc::new(Segment::linked(number, path, &old));
        reserving.add(&new);
        self.segments
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(number, new);
        Ok(Some(number))
    }

    /// Frees whole pages of the segment that lie in none of the ranges (from, to). They must not be
    /// read any more. Nothing is freed while the file has another number.
    pub fn punch_all_but(&self, segment: u64, kept: &[(u64, u64)]) -> io::Result<()> {
        let Some(segment) = self.find(segment) else {
            return Ok(());
        };
        let file = self.file(&segment)?;
        if file.metadata()?.nlink() > 1 {
            return Ok(());
        }
        let holes = holes(kept, segment.bytes());
        for (from, to) in &holes {
            fallocate(
                &*file,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                *from,
                to - from,
            )?;
        }
        let hole_bytes: u64 = holes.iter().map(|(from, to)| to - from).sum();
        // A file system may count blocks of its own as well, which no punching frees.
        let occupied_bytes = occupied(&file.metadata()?).min(segment.bytes() - hole_bytes);
        self.lock_reserving().shrink(&segment, occupied_bytes);
        Ok(())
    }
}

/// The space of a file on the disk, which is less than its length if it has holes. Some file
/// systems count blocks late.
pub fn occupied(found: &Metadata) -> u64 {
    match found.blocks() {
        0 => found.len(),
        blocks => found.len().min(blocks * 512),
    }
}

/// Frees space that a killed process had allocated for its next appends. A failure costs only
/// space.
pub fn give_back_what_is_behind(path: &Path, found: &Metadata) {
    if found.blocks() * 512 > found.len().next_multiple_of(found.blksize().max(1)) {
        let file = File::options().write(true).open(path);
        let _ = file.and_then(|file| file.set_len(found.len()));
    }
}

/// Whole pages below `end` outside of the ranges, which may overlap and come in any order.
fn holes(kept: &[(u64, u64)], end: u64) -> Vec<(u64, u64)> {
    let mut kept = kept.to_vec();
    kept.sort_unstable();
    kept.push((end, end));
    let (mut holes, mut at) = (Vec::new(), 0_u64);
    for (from, to) in kept {
        let hole = (
            at.next_multiple_of(PAGE_BYTES),
            from / PAGE_BYTES * PAGE_BYTES,
        );
        if hole.0 < hole.1 {
            holes.push(hole);
        }
        at = at.max(to);
    }
    holes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_whole_pages_outside_of_what_is_kept() {
        assert_eq!(holes(&[], 10_000), [(0, 8192)]);
        assert_eq!(holes(&[(0, 10_000)], 10_000), []);
        let kept = [(20_000, 30_000), (5000, 6000), (5500, 9000)];
        assert_eq!(
            holes(&kept, 65_536),
            [(0, 4096), (12_288, 16_384), (32_768, 65_536)]
        );
    }
}
