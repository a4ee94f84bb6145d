//! Files of removed segments, kept for later ones: `<segment, 16 hex>.spare`.
//!
//! Overwriting a file's pages and blocks needs no new ones. Where memory has been used before that
//! is worth little (1.8 GB/s through a mount either way); where the host hands it out at the first
//! touch (virtual machines: 0.3–0.5 GB/s), or where a sync has to store a longer file's length and
//! blocks (0.13 instead of 0.08 ms), it is worth a factor.
//!
//! A file is taken over only when it is not open elsewhere, and by renaming it, so that no reader
//! of the removed segment ever meets the later one's bytes. A power loss between the two renames is
//! harmless: a record names its bytes by segment number *and* checksum, and a sync of the later
//! segment syncs the directory.
//!
//! Bound: `SPARES_MAX` files, counted in the limit, deleted before an append fails for want of
//! space. The bound on committed segments counts them, too (`Staging::shrink_spares`). They are not
//! kept over a restart. Everything here is called under the `reserving` lock.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::open_files::OpenFiles;
use crate::segment::Segment;

/// 256 MiB: what a writer fills between two looks for segments that can go.
pub const SPARES_MAX: usize = 4;

/// A file without a segment.
pub struct Spare {
    path: PathBuf,
    pub file: Arc<File>,
    /// Space it has on disk.
    pub allocated: u64,
}

#[derive(Default)]
pub struct Spares(Vec<Spare>);

impl Spares {
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|spare| spare.allocated).sum()
    }

    /// Takes the segment's file over; false: it stays the segment's.
    pub fn take_over(
        &mut self,
        segment: &Segment,
        segment_bytes: u64,
        open_files: &OpenFiles,
    ) -> bool {
        if self.0.len() >= SPARES_MAX || !segment.is_recyclable(segment_bytes) {
            return false;
        }
        let path = segment.path.with_extension("spare");
        let Some(file) = open_files.take_over(segment, &path) else {
            return false;
        };
        self.0.push(Spare {
            path,
            file,
            allocated: segment.allocated.load(Ordering::Acquire),
        });
        true
    }

    /// The spare used last, under its new name; None if no spare can be renamed.
    pub fn give(&mut self, name: &Path) -> Option<Spare> {
        let spare = self.0.last()?;
        std::fs::rename(&spare.path, name).ok()?;
        self.0.pop()
    }

    /// Deletes those kept longest until the others take at most `max_bytes`; returns the bytes
    /// freed. If one cannot be deleted now, the next open of the directory deletes it.
    pub fn shrink(&mut self, max_bytes: u64) -> u64 {
        let mut freed_bytes = 0;
        while !self.0.is_empty() && self.bytes() > max_bytes {
            let spare = self.0.remove(0);
            freed_bytes += spare.allocated;
            let _ = std::fs::remove_file(spare.path);
        }
        freed_bytes
    }
}

/// Deletes what an earlier process kept.
pub fn remove_all(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == "spare") {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}
