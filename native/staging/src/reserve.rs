//! Handing out space: which segment an append goes to, and where in it.
//!
//! The disk's space is taken before the bytes are accepted, 4 MiB at a time (`fallocate` with
//! KEEP_SIZE, 10 µs; a file's length stays that of its bytes). Where a file system can't do that, a
//! write fails with the file system's own ENOSPC. Surplus space of a closed segment is given back.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::Staging;
use crate::ballast::cannot_allocate;
use crate::numbers::Numbers;
use crate::open_files::OpenFiles;
use crate::segment::{self, Segment};
use crate::spares::Spares;

const STEP_BYTES: u64 = 4 << 20;
const PAGE_BYTES: u64 = 4096;

/// From this length on every write begins on a page: the waste is small beside it.
const ALIGN_FROM_BYTES: u64 = 64 << 10;

/// Space for one append.
pub struct Reserved {
    pub segment: Arc<Segment>,
    pub file: Arc<File>,
    pub offset: u64,
}

/// The data that the `reserving` lock protects.
pub struct Reserving {
    numbers: Numbers,
    current: Option<Current>,
    spares: Spares,
    /// Taken by all segments and spares together.
    used_bytes: u64,
    segment_bytes: u64,
    can_allocate: bool,
}

struct Current {
    segment: Arc<Segment>,
    file: Arc<File>,
}

impl Reserving {
    pub fn new(numbers: Numbers, used_bytes: u64, segment_bytes: u64) -> Reserving {
        Reserving {
            numbers,
            current: None,
            spares: Spares::default(),
            used_bytes,
            segment_bytes,
            can_allocate: true,
        }
    }

    pub fn current_number(&self) -> Option<u64> {
        self.current.as_ref().map(|current| current.segment.number)
    }

    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Allocated, to the current segment or to spares, and not handed out.
    pub fn unused_bytes(&self) -> u64 {
        let in_current = self.current.as_ref().map_or(0, |Current { segment, .. }| {
            segment.allocated.load(Ordering::Acquire) - segment.bytes()
        });
        in_current + self.spares.bytes()
    }

    /// Keeps the file of a segment that is being removed for a later one. Returns false, and does
    /// nothing, if that is not possible.
    pub fn keep_file_of(&mut self, segment: &Segment, open_files: &OpenFiles) -> bool {
        self.current_number() != Some(segment.number)
            && self
                .spares
                .take_over(segment, self.segment_bytes, open_files)
    }

    pub fn spare_bytes(&self) -> u64 {
        self.spares.bytes()
    }

    /// Deletes the spares; returns their bytes.
    pub fn remove_spares(&mut self) -> u64 {
        self.shrink_spares(0)
    }

    /// Deletes spares until they take at most `max_bytes`; returns the bytes freed.
    pub fn shrink_spares(&mut self, max_bytes: u64) -> u64 {
        let bytes = self.spares.shrink(max_bytes);
        self.used_bytes -= bytes;
        bytes
    }

    /// A new segment number.
    pub fn take_number(&mut self) -> io::Result<u64> {
        self.numbers.take()
    }

    /// A segment that takes space has come.
    pub fn add(&mut self, segment: &Segment) {
        self.used_bytes += segment.allocated.load(Ordering::Acquire);
    }

    /// The segment takes less space than it did.
    pub fn shrink(&mut self, segment: &Segment, occupied_bytes: u64) {
        let before = segment.allocated.load(Ordering::Acquire);
        segment
            .allocated
            .store(occupied_bytes.min(before), Ordering::Release);
        self.used_bytes = self
            .used_bytes
            .saturating_sub(before.saturating_sub(occupied_bytes));
    }

    /// The segment has been removed.
    pub fn forget(&mut self, segment: &Segment) {
        if self.current_number() == Some(segment.number) {
            self.current = None;
        }
        self.used_bytes = self
            .used_bytes
            .saturating_sub(segment.allocated.load(Ordering::Acquire));
    }

    /// A new segment in a spare file; None if there is no spare, or the segment would be too short.
    fn recycle(&mut self, dir: &Path, number: u64, length: u64) -> Option<(Segment, Arc<File>)> {
        if length > self.segment_bytes {
            return None;
        }
        let path = segment::path_of(dir, number);
        let spare = self.spares.give(&path)?;
        Some((Segment::recycled(number, path, spare.allocated), spare.file))
    }

    /// Ends appends to the segment.
    pub fn close_if_current(&mut self, segment: &Segment) {
        if self.current_number() == Some(segment.number) {
            self.close_current();
        }
    }

    /// Ends appends to the current segment; its surplus space is given back.
    pub fn close_current(&mut self) {
        let Some(Current { segment, file }) = self.current.take() else {
            return;
        };
        let end = segment.bytes();
        let allocated = segment.allocated.load(Ordering::Acquire);
        // Up to `end`, not to the file's length: the last appends may still be under way.
        if allocated > end && file.set_len(end).is_ok() {
            segment.allocated.store(end, Ordering::Release);
            self.used_bytes -= allocated - end;
        }
    }

    /// Takes space so that the segment reaches `end`: a whole step if there is room, else only the
    /// bytes needed, else ENOSPC.
    fn allocate(
        &mut self,
        segment: &Segment,
        file: &File,
        end: u64,
        limit_bytes: u64,
    ) -> io::Result<()> {
        let allocated = segment.allocated.load(Ordering::Acquire);
        if end <= allocated {
            return Ok(());
        }
        let needed = end - allocated;
        let mut room = self.room(limit_bytes);
        if needed > room && self.remove_spares() > 0 {
            room = self.room(limit_bytes);
        }
        if needed > room {
            return Err(Errno::NOSPC.into());
        }
        let step = needed
            .max(STEP_BYTES)
            .min(room)
            .min(self.segment_bytes.saturating_sub(allocated).max(needed));
        let taken = match self.allocate_on_disk(file, allocated, step) {
            Ok(()) => step,
            Err(Errno::NOSPC) if self.remove_spares() > 0 || step > needed => {
                self.allocate_on_disk(file, allocated, needed)?;
                needed
            }
            Err(error) => return Err(error.into()),
        };
        segment
            .allocated
            .store(allocated + taken, Ordering::Release);
        self.used_bytes += taken;
        Ok(())
    }

    fn room(&self, limit_bytes: u64) -> u64 {
        match limit_bytes {
            0 => u64::MAX,
            limit => limit.saturating_sub(self.used_bytes),
        }
    }

    fn allocate_on_disk(&mut self, file: &File, offset: u64, length: u64) -> Result<(), Errno> {
        while self.can_allocate {
            match fallocate(file, FallocateFlags::KEEP_SIZE, offset, length) {
                Err(Errno::INTR) => (),
                Err(error) if cannot_allocate(error) => self.can_allocate = false,
                outcome => return outcome,
            }
        }
        Ok(())
    }
}

impl Staging {
    pub(crate) fn reserve(&self, length: u64) -> io::Result<Reserved> {
        let mut reserving = self.lock_reserving();
        if let Some(Current { segment, file }) = &reserving.current {
            let (segment, file) = (segment.clone(), file.clone());
            let offset = start_of(segment.bytes(), length);
            if length <= self.segment_bytes && offset + length <= self.segment_bytes {
                if let Err(error) =
                    reserving.allocate(&segment, &file, offset + length, self.limit_bytes)
                {
                    // Closed, so that it can be removed once its bytes are committed: perhaps it is
                    // all there is to remove.
                    reserving.close_current();
                    return Err(error);
                }
                segment.set_end(offset + length);
                return Ok(Reserved {
                    segment,
                    file,
                    offset,
                });
            }
        }
        self.reserve_in_new_segment(&mut reserving, length)
    }

    /// A write longer than a segment gets one of its own and leaves the current one in place.
    fn reserve_in_new_segment(
        &self,
        reserving: &mut Reserving,
        length: u64,
    ) -> io::Result<Reserved> {
        if length <= self.segment_bytes {
            reserving.close_current();
        }
        let number = self
            .open_files
            .with_descriptor(|| reserving.numbers.take())?;
        let (segment, file) = match reserving.recycle(&self.dir, number, length) {
            Some(recycled) => recycled,
            None => {
                let (segment, file) = Segment::create(&self.dir, number, &self.open_files)?;
                (segment, Arc::new(file))
            }
        };
        if let Err(error) = reserving.allocate(&segment, &file, length, self.limit_bytes) {
            let _ = std::fs::remove_file(&segment.path);
            reserving.forget(&segment);
            return Err(error);
        }
        segment.set_end(length);
        let segment = Arc::new(segment);
        self.segments
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(number, segment.clone());
        self.open_files.adopt(&segment, file.clone());
        if length <= self.segment_bytes {
            reserving.current = Some(Current {
                segment: segment.clone(),
                file: file.clone(),
            });
        }
        Ok(Reserved {
            segment,
            file,
            offset: 0,
        })
    }
}

/// Whole pages and long writes start on a page: a 4 KiB write across two pages costs 15–35 % more.
fn start_of(end: u64, length: u64) -> u64 {
    if length >= ALIGN_FROM_BYTES || (length > 0 && length.is_multiple_of(PAGE_BYTES)) {
        end.next_multiple_of(PAGE_BYTES)
    } else {
        end
    }
}
