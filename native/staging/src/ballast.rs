//! Space of the local disk reserved for calls that free space on a full disk: a file `ballast` in
//! the working copy, really allocated.
//!
//! Removing, truncating, committing and discarding need a few KiB for the journal, for a new layer,
//! for the state. On a disk that writes have filled they would fail too, and no space could be
//! freed any more. So a call that frees space takes a step of the ballast when the disk is full. A
//! call that adds bytes is refused while any of the ballast is missing (`is_whole`), because the
//! free space is then for calls that free more. `restore` takes the ballast back when there is
//! room.
//!
//! At most 16 MiB, at most 1/32 of the disk, in 16 steps. A step only shrinks the file, so giving
//! it up needs no new space. Where a file system can't allocate in advance there is no ballast, and
//! it counts as whole.
//!
//! Locks: `held` over the system calls of one change.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

/// Its file in the working copy.
pub const BALLAST_NAME: &str = "ballast";

const MOST_BYTES: u64 = 16 << 20;
const LEAST_BYTES: u64 = 64 << 10;
const PART_OF_DISK: u64 = 32;
const STEPS: u64 = 16;

/// The kind of call that needs space on a full disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// A change that adds no bytes: the last quarter stays for commits.
    Changing,
    /// A commit, a checkpoint, the end of the mount or its beginning.
    Committing,
}

/// The ballast of one working copy.
pub struct Ballast {
    path: PathBuf,
    whole_bytes: u64,
    held: Mutex<Held>,
    is_whole: AtomicBool,
}

#[derive(Default)]
struct Held {
    /// Kept open, so that giving up needs no descriptor.
    file: Option<File>,
    bytes: u64,
}

impl Ballast {
    /// Nothing is held until `restore`.
    pub fn open(working_copy: &Path) -> Ballast {
        let disk_bytes =
            statvfs(working_copy).map_or(0, |found| found.f_blocks.saturating_mul(found.f_frsize));
        let wanted = (disk_bytes / PART_OF_DISK).clamp(LEAST_BYTES, MOST_BYTES);
        Ballast {
            path: working_copy.join(BALLAST_NAME),
            whole_bytes: wanted.next_multiple_of(STEPS * 4096),
            held: Mutex::default(),
            is_whole: false.into(),
        }
    }

    /// Whether bytes may be added. Costs nothing.
    pub fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Acquire)
    }

    /// Gives up a step; false if no step is left for this kind of call.
    pub fn give_up(&self, leaving: Leaving) -> bool {
        let mut held = self.lock();
        let kept = match leaving {
            Leaving::Changing => self.whole_bytes / 4,
            Leaving::Committing => 0,
        };
        let step = self.whole_bytes / STEPS;
        let Held { file, bytes } = &mut *held;
        let Some(file) = file.as_ref().filter(|_| *bytes >= kept + step) else {
            return false;
        };
        if file.set_len(*bytes - step).is_err() {
            return false;
        }
        *bytes -= step;
        self.is_whole.store(false, Ordering::Release);
        true
    }

    /// Takes back the missing part if the disk has room for all of it; returns whether the ballast
    /// is whole.
    pub fn restore(&self) -> bool {
        if self.is_whole() {
            return true;
        }
        let mut held = self.lock();
        let is_whole = match self.allocate(&mut held) {
            Ok(()) => true,
            Err(error) => Errno::from_io_error(&error).is_some_and(cannot_allocate),
        };
        self.is_whole.store(is_whole, Ordering::Release);
        is_whole
    }

    /// Deletes the file: the working copy has no work left that could need the space.
    pub fn remove(&self) {
        let mut held = self.lock();
        *held = Held::default();
        self.is_whole.store(false, Ordering::Release);
        let _ = std::fs::remove_file(&self.path);
    }

    fn allocate(&self, held: &mut Held) -> io::Result<()> {
        if held.file.is_none() {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            let file = options.open(&self.path)?;
            // The size held by an earlier process. It may not be allocated, but no space is
            // requested twice.
            held.bytes = file.metadata()?.len().min(self.whole_bytes);
            held.file = Some(file);
        }
        let Some(file) = &held.file else {
            return Ok(());
        };
        let found = statvfs(&self.path)?;
        let missing = self.whole_bytes - held.bytes;
        if found.f_bavail.saturating_mul(found.f_frsize) < missing {
            return Err(Errno::NOSPC.into());
        }
        let allocated = fallocate(file, FallocateFlags::empty(), 0, self.whole_bytes);
        held.bytes = match allocated {
            Ok(()) => self.whole_bytes,
            // A part may have been allocated: release it.
            Err(_) => file.set_len(held.bytes).map(|()| held.bytes)?,
        };
        Ok(allocated?)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a file system, or a sandbox, never allocates in advance.
pub fn cannot_allocate(error: Errno) -> bool {
    matches!(error, Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM)
}

/// Whether the call failed for want of space, on the disk or in a quota.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOSPC | Errno::DQUOT)
    )
}
