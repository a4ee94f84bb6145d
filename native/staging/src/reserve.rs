//! Handing out space: which segment an append goes to, and where in it.
//!
//! The disk's space is taken before the bytes are accepted, 4 MiB at a time (`fallocate` with KEEP_SIZE, 10 µs; a file's
//! length stays what was written). Where a file system can't, its own ENOSPC at the write does. What a closed segment has
//! too much is given back.

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::numbers::Numbers;
use crate::segment::Segment;
use crate::{SEGMENT_BYTES, Staging};

const STEP_BYTES: u64 = 4 << 20;
const PAGE_BYTES: u64 = 4096;

/// From here on every write begins on a page, whatever its length: what that wastes is little beside it.
const ALIGN_FROM_BYTES: u64 = 64 << 10;

/// Space for one append.
pub struct Reserved {
    pub segment: Arc<Segment>,
    pub file: Arc<File>,
    pub offset: u64,
}

/// What the `reserving` lock protects.
pub struct Reserving {
    numbers: Numbers,
    current: Option<Current>,
    /// Taken by all segments together.
    used_bytes: u64,
    can_allocate: bool,
}

struct Current {
    segment: Arc<Segment>,
    file: Arc<File>,
}

impl Reserving {
    pub fn new(numbers: Numbers, used_bytes: u64) -> Reserving {
        Reserving {
            numbers,
            current: None,
            used_bytes,
            can_allocate: true,
        }
    }

    pub fn current_number(&self) -> Option<u64> {
        self.current.as_ref().map(|current| current.segment.number)
    }

    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Allocated to the current segment and not handed out.
    pub fn unused_bytes(&self) -> u64 {
        self.current.as_ref().map_or(0, |Current { segment, .. }| {
            segment.allocated.load(Ordering::Acquire) - segment.bytes()
        })
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

    /// The current segment takes no more appends; what was allocated too much is given back.
    fn close_current(&mut self) {
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

    /// Takes space so that the segment reaches `end`: a whole step if there is room, else what is needed, else ENOSPC.
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
        let room = if limit_bytes == 0 {
            u64::MAX
        } else {
            limit_bytes.saturating_sub(self.used_bytes)
        };
        let needed = end - allocated;
        if needed > room {
            return Err(Errno::NOSPC.into());
        }
        let step = needed
            .max(STEP_BYTES)
            .min(room)
            .min(SEGMENT_BYTES.saturating_sub(allocated).max(needed));
        let taken = match self.allocate_on_disk(file, allocated, step) {
            Ok(()) => step,
            Err(Errno::NOSPC) if step > needed => {
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

    fn allocate_on_disk(&mut self, file: &File, offset: u64, length: u64) -> Result<(), Errno> {
        while self.can_allocate {
            match fallocate(file, FallocateFlags::KEEP_SIZE, offset, length) {
                Err(Errno::INTR) => (),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.can_allocate = false,
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
            if length <= SEGMENT_BYTES && offset + length <= SEGMENT_BYTES {
                if let Err(error) =
                    reserving.allocate(&segment, &file, offset + length, self.limit_bytes)
                {
                    // Closed, so that it can be removed once its bytes are committed: perhaps it is all there is to remove.
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
        if length <= SEGMENT_BYTES {
            reserving.close_current();
        }
        let number = reserving.numbers.take()?;
        let (segment, file) = Segment::create(&self.dir, number)?;
        if let Err(error) = reserving.allocate(&segment, &file, length, self.limit_bytes) {
            let _ = std::fs::remove_file(&segment.path);
            return Err(error);
        }
        segment.set_end(length);
        let (segment, file) = (Arc::new(segment), Arc::new(file));
        self.segments
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(number, segment.clone());
        self.open_files.adopt(&segment, file.clone(), || {
            self.map().values().cloned().collect()
        });
        if length <= SEGMENT_BYTES {
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
