//! One segment: its file, and when it was last synced. Open files: open_files.rs.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::open_files::{OpenFiles, Slot};
use crate::sums::{Sum, Sums};
use crate::write_back;

pub struct Segment {
    pub number: u64,
    pub path: PathBuf,
    /// Everything below is handed out (appends that have not finished included).
    end: AtomicU64,
    /// Space taken on disk: at least `end`, more while preallocated.
    pub allocated: AtomicU64,
    is_inherited: bool,
    /// Writes that have returned, and how many of them the last successful sync covered.
    writes: AtomicU64,
    synced: AtomicU64,
    /// Held over the fdatasync.
    syncing: Mutex<()>,
    /// Whether the kernel has lost bytes of it, as found by a failed sync or by asking.
    has_failed: Mutex<bool>,
    /// Bytes of it may be lost: each read is checked.
    is_doubted: AtomicBool,
    is_named_durably: AtomicBool,
    /// Its file has, or had, two numbers: no later segment may take it over.
    is_shared: AtomicBool,
    /// A caller relies, or is about to rely, on its bytes surviving a power loss.
    is_promised: AtomicBool,
    sums: Mutex<Sums>,
    pub slot: Mutex<Slot>,
    pub last_used: AtomicU64,
}

impl Segment {
    /// A segment of an earlier process: we do not know which of its bytes are durable.
    pub fn inherited(number: u64, path: PathBuf, bytes: u64, occupied_bytes: u64) -> Segment {
        let mut sums = Sums::default();
        sums.keep_apart();
        Segment {
            sums: Mutex::new(sums),
            end: bytes.into(),
            allocated: occupied_bytes.into(),
            is_inherited: true,
            writes: 1.into(),
            is_promised: true.into(),
            is_doubted: true.into(),
            ..Segment::new(number, path)
        }
    }

    /// Another number of a segment's file, whose bytes are on stable storage; that name is not.
    pub fn linked(number: u64, path: PathBuf, old: &Segment) -> Segment {
        old.is_shared.store(true, Ordering::Release);
        let mut sums = Sums::default();
        sums.keep_apart();
        Segment {
            sums: Mutex::new(sums),
            end: old.bytes().into(),
            allocated: old.occupied_bytes().into(),
            is_inherited: old.is_inherited,
            writes: 1.into(),
            is_doubted: old.is_doubted().into(),
            is_shared: true.into(),
            ..Segment::new(number, path)
        }
    }

    /// An empty segment in the file of a removed one, which has `allocated` bytes of space.
    pub fn recycled(number: u64, path: PathBuf, allocated: u64) -> Segment {
        Segment {
            allocated: allocated.into(),
            ..Segment::new(number, path)
        }
    }

    /// Creates the file of a new, empty segment.
    pub fn create(dir: &Path, number: u64, open_files: &OpenFiles) -> io::Result<(Segment, File)> {
        let path = path_of(dir, number);
        let file = open_files.with_descriptor(|| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true);
            options.mode(0o600).open(&path)
        })?;
        Ok((Segment::new(number, path), file))
    }

    fn new(number: u64, path: PathBuf) -> Segment {
        Segment {
            number,
            path,
            end: 0.into(),
            allocated: 0.into(),
            is_inherited: false,
            writes: 0.into(),
            synced: 0.into(),
            syncing: Mutex::default(),
            has_failed: Mutex::new(false),
            is_doubted: false.into(),
            is_named_durably: false.into(),
            is_shared: false.into(),
            is_promised: false.into(),
            sums: Mutex::default(),
            slot: Mutex::default(),
            last_used: 0.into(),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// The space of its bytes on the disk.
    pub fn occupied_bytes(&self) -> u64 {
        self.bytes().min(self.allocated.load(Ordering::Acquire))
    }

    /// Only under the `reserving` lock.
    pub fn set_end(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// Notes the checksums of appended bytes.
    pub fn note_sums(&self, sums: &[Sum]) {
        let mut known = self.sums();
        sums.iter().for_each(|sum| known.note(*sum));
    }

    pub fn sums(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write has returned: a sync that begins now covers it.
    pub fn note_write(&self) {
        self.writes.fetch_add(1, Ordering::AcqRel);
    }

    /// From now on it counts as durable, even if the sync that follows fails.
    pub fn promise(&self) {
        self.is_promised.store(true, Ordering::Release);
    }

    pub fn is_promised(&self) -> bool {
        self.is_promised.load(Ordering::Acquire)
    }

    /// Whether another segment may take its file over: it is this process's own, so that its pages
    /// are likely in memory, it is as long as segments are, and no sync of it has failed.
    pub fn is_recyclable(&self, segment_bytes: u64) -> bool {
        let allocated = self.allocated.load(Ordering::Acquire);
        !self.is_inherited
            && !self.is_shared.load(Ordering::Acquire)
            && !self.has_failed()
            && (segment_bytes / 4 * 3..=segment_bytes).contains(&allocated)
    }

    /// Makes all writes that have returned durable. A caller that waits for another's fdatasync
    /// usually finds that it covered its own writes.
    pub fn sync(
        &self,
        file: impl FnOnce() -> io::Result<Arc<File>>,
        sync_dir: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let wanted = self.writes.load(Ordering::Acquire);
        if self.synced.load(Ordering::Acquire) >= wanted {
            return Ok(());
        }
        let _one = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.synced.load(Ordering::Acquire) >= wanted {
            return Ok(());
        }
        if self.has_failed() {
            return Err(io::Error::other("an earlier sync of the segment failed"));
        }
        let covered = self.writes.load(Ordering::Acquire);
        self.sums().set_synced();
        let file = file()?;
        if let Err(error) = file.sync_data() {
            self.set_failed();
            return Err(error);
        }
        // A reader may have had the news from the same descriptor first.
        if self.has_failed() {
            return Err(io::Error::other("the kernel lost bytes of the segment"));
        }
        if !self.is_named_durably.load(Ordering::Acquire) {
            sync_dir()?;
            self.is_named_durably.store(true, Ordering::Release);
        }
        self.synced.fetch_max(covered, Ordering::AcqRel);
        Ok(())
    }

    /// Whether the kernel has lost bytes. Never reset: the kernel may have dropped the pages.
    pub fn has_failed(&self) -> bool {
        *self.lock_failed()
    }

    /// From now on no sync succeeds, and every read is checked.
    pub fn set_failed(&self) {
        *self.lock_failed() = true;
        self.is_doubted.store(true, Ordering::Release);
    }

    /// Asks the kernel whether it may have lost bytes; no I/O. If the answer is no, bytes read
    /// before the call are intact.
    pub fn may_have_lost(&self, file: &File) -> bool {
        // Under the lock: a sync that succeeds because the news were taken from it here must find
        // them.
        let mut failed = self.lock_failed();
        if !*failed && write_back::has_failed(file) {
            *failed = true;
            self.is_doubted.store(true, Ordering::Release);
        }
        let is_lost = *failed;
        drop(failed);
        // A sync may have taken the error, too, and not reported it yet. After it, it has.
        let is_syncing = self.syncing.try_lock().is_err();
        is_lost || is_syncing || self.has_failed()
    }

    pub fn is_doubted(&self) -> bool {
        self.is_doubted.load(Ordering::Acquire)
    }

    /// All of it was found on stable storage as it was appended.
    pub fn set_trusted(&self) {
        let failed = self.lock_failed();
        if !*failed {
            self.is_doubted.store(false, Ordering::Release);
        }
    }

    fn lock_failed(&self) -> MutexGuard<'_, bool> {
        self.has_failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire) == self.writes.load(Ordering::Acquire)
    }

    /// Whether the kernel may still report a failed write-back to us; it forgets the failure
    /// together with the file.
    pub fn awaits_write_back(&self) -> bool {
        !self.is_inherited && !self.is_synced()
    }
}

/// `<16 hex>.seg`
pub fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016x}.seg"))
}

/// The number in `<16 hex>.seg`; None for any other name.
pub fn number_of(path: &Path) -> Option<u64> {
    let digits = path.file_name()?.to_str()?.strip_suffix(".seg")?;
    let strict = digits.len() == 16
        && digits
            .bytes()
            .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    strict.then(|| u64::from_str_radix(digits, 16).ok())?
}
