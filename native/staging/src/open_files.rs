//! The open files of segments: at most `open_files_max`, even if many segments were written without
//! an fsync, so that a mount never runs into the process's limit of descriptors. The least recently
//! used file is closed first and opened again on demand.
//!
//! The kernel reports a failed write-back at the next fsync, also on a descriptor that was opened
//! afterwards, but only while the inode is in memory. When a file with unsynced bytes is closed, a
//! mapping of one page is left behind: it keeps the inode in memory and takes no descriptor. The
//! mapping is never read or written.
//!
//! Locks: a segment's slot → `open`, or another slot if that is free at the moment.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Resource, getrlimit};

use crate::segment::Segment;

/// A guess: 128 × 64 MiB.
const OPEN_FILES_MAX: u64 = 128;
/// A mapping of any length keeps the inode.
const PIN_BYTES: usize = 4096;

/// A segment's file, as far as this process has it open.
#[derive(Default)]
pub enum Slot {
    #[default]
    Closed,
    Open(Arc<File>),
    /// Closed, its inode kept in memory.
    Pinned {
        _pin: Pin,
    },
}

/// A mapping of a file that is never accessed.
pub struct Pin(NonNull<std::ffi::c_void>);

// SAFETY: the address is only ever handed to munmap, once.
unsafe impl Send for Pin {}

impl Pin {
    fn new(file: &File) -> io::Result<Pin> {
        // SAFETY: the kernel chooses the place, and nothing refers to it: it allows no access.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                PIN_BYTES,
                ProtFlags::empty(),
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        NonNull::new(address).map(Pin).ok_or(Errno::NOMEM.into())
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and unmapped nowhere else.
        let _ = unsafe { munmap(self.0.as_ptr(), PIN_BYTES) };
    }
}

/// The segments whose files are open.
pub struct OpenFiles {
    open: Mutex<Vec<Arc<Segment>>>,
    open_files_max: usize,
    clock: AtomicU64,
}

impl OpenFiles {
    /// An eighth of what this process may have open is for segments.
    pub fn new() -> OpenFiles {
        let limit = getrlimit(Resource::Nofile).current;
        let eighth = limit.map_or(OPEN_FILES_MAX, |limit| limit / 8);
        OpenFiles {
            open: Mutex::default(),
            open_files_max: eighth.clamp(1, OPEN_FILES_MAX) as usize,
            clock: 0.into(),
        }
    }

    /// The segment's file, opened if need be.
    pub fn open(&self, segment: &Arc<Segment>) -> io::Result<Arc<File>> {
        self.note_use(segment);
        let mut slot = lock_slot(segment);
        if let Slot::Open(file) = &*slot {
            return Ok(file.clone());
        }
        let file = self.with_descriptor(|| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).open(&segment.path)
        })?;
        let file = Arc::new(file);
        // A pin goes only now: the inode was never without one of the two.
        *slot = Slot::Open(file.clone());
        drop(slot);
        self.opened(segment);
        Ok(file)
    }

    /// The result of `open`. If the process has no descriptor left, the files of all segments are
    /// closed first.
    pub fn with_descriptor<T>(&self, mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        match open() {
            Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
                self.set_aside_down_to(0);
                open()
            }
            outcome => outcome,
        }
    }

    /// Takes over the file a segment was created with.
    pub fn adopt(&self, segment: &Arc<Segment>, file: Arc<File>) {
        self.note_use(segment);
        *lock_slot(segment) = Slot::Open(file);
        self.opened(segment);
    }

    /// Closes the segment's file; a caller that is using it keeps it until done.
    pub fn close(&self, segment: &Segment) {
        *lock_slot(segment) = Slot::Closed;
        self.lock().retain(|open| open.number != segment.number);
    }

    /// Takes the segment's file away and gives it the name `to`. Returns None, and does nothing, if
    /// the file is in use or cannot be renamed. A later caller does not find the file under the old
    /// name: the lock is held over the renaming.
    pub fn take_over(&self, segment: &Segment, to: &Path) -> Option<Arc<File>> {
        let file = {
            let mut slot = lock_slot(segment);
            let Slot::Open(file) = &mut *slot else {
                return None;
            };
            Arc::get_mut(file)?;
            std::fs::rename(&segment.path, to).ok()?;
            let Slot::Open(file) = std::mem::take(&mut *slot) else {
                return None;
            };
            file
        };
        self.lock().retain(|open| open.number != segment.number);
        Some(file)
    }

    fn note_use(&self, segment: &Segment) {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        segment.last_used.store(now, Ordering::Relaxed);
    }

    /// Closes the least recently used files beyond the bound, after one more was opened.
    fn opened(&self, segment: &Arc<Segment>) {
        self.lock().push(segment.clone());
        self.set_aside_down_to(self.open_files_max);
    }

    fn set_aside_down_to(&self, left: usize) {
        let mut open = self.lock();
        let mut idle = Vec::new();
        while open.len() > left {
            let used = |at: &usize| open[*at].last_used.load(Ordering::Relaxed);
            let Some(oldest) = (0..open.len()).min_by_key(used) else {
                break;
            };
            idle.push(open.swap_remove(oldest));
        }
        drop(open);
        idle.iter().for_each(|segment| self.set_aside(segment));
    }

    /// Closes a file that may be opened again.
    fn set_aside(&self, segment: &Arc<Segment>) {
        if let Ok(mut slot) = segment.slot.try_lock() {
            let Slot::Open(file) = &*slot else {
                return;
            };
            if !segment.awaits_write_back() {
                *slot = Slot::Closed;
                return;
            }
            if let Ok(pin) = Pin::new(file) {
                *slot = Slot::Pinned { _pin: pin };
                return;
            }
        }
        // In use at this moment, or it cannot be pinned: rather one descriptor too many than a lost
        // error.
        self.lock().push(segment.clone());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Segment>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock_slot(segment: &Segment) -> MutexGuard<'_, Slot> {
    segment.slot.lock().unwrap_or_else(PoisonError::into_inner)
}
