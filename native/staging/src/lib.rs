//! Append-only local segments that hold written bytes until they are in packs:
//! `<segment, 16 hex>.seg` in one directory.
//!
//! A segment is the bytes appended to it and nothing else; the journal says what they mean and what
//! their checksum is. Many writes share a segment, so small files cost no local file each.
//! `docs/format/journal.md` has the rules of recovery.
//!
//! Guarantees
//! - Appended bytes have checksums in memory (`sums.rs`); `read_checked` and `checksum` detect
//!   bytes that the disk has lost.
//! - Staged bytes are never overwritten, so a frozen layer, an upload and a recovery read them
//!   without a copy or a lock.
//! - `append` returns when the bytes are in the kernel's page cache: they survive `kill -9`. `sync`
//!   makes them survive power loss, together with the segment's name.
//! - Space is reserved before bytes are accepted: a full disk or a reached limit is ENOSPC at the
//!   call, and the next call may succeed. The segment that ran full is closed then, so that it can
//!   be removed.
//! - A failed sync is final for its segment, also in the next process of this boot (`failures.rs`);
//!   appends go to another.
//! - Segment numbers rise and are never used twice in a directory's life (`numbers.rs`), so a stale
//!   reference can't find other bytes.
//! - The file of a removed segment may be taken over by a later one (`spares.rs`), unless it is
//!   still being read.
//!
//! Locks: `reserving` hands out space. It is held while a segment's file is created (0.1 ms in 64
//! MiB), allocated or removed; bytes are written outside any lock. `reserving` → `segments` → a
//! segment's own (segment.rs). Files of idle segments are closed beyond a bound (open_files.rs).
//!
//! Not here: which segments may go (the engine knows the references to them), and locking the
//! directory against another process.

mod ballast;
mod checked;
mod failures;
mod links;
mod numbers;
mod open_files;
mod reserve;
mod segment;
mod spares;
mod sums;
mod write_back;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

pub use ballast::{BALLAST_NAME, Ballast, Leaving, is_full};

use open_files::OpenFiles;
use reserve::Reserving;
use segment::Segment;

pub use failures::Failures;
pub use sums::{Sum, combine};

/// Size of a segment in earnest; a longer write gets one of its own.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// The place of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// Segment number; 1 or more, never used twice in a directory's life.
    pub segment: u64,
    /// Offset in the segment.
    pub offset: u64,
    /// crc32c of the bytes.
    pub crc: u32,
}

/// The segments of one working copy. Every method may be called from any thread.
pub struct Staging {
    dir: PathBuf,
    limit_bytes: u64,
    segment_bytes: u64,
    segments: RwLock<BTreeMap<u64, Arc<Segment>>>,
    reserving: Mutex<Reserving>,
    open_files: OpenFiles,
    failures: Arc<Failures>,
    /// Bytes appended by this process, including those of removed segments. Only rises.
    appended_bytes: AtomicU64,
}

impl Staging {
    /// Opens or creates `dir`. Existing segments can be read, synced, verified and removed, and are
    /// never appended to.
    ///
    /// `limit_bytes` bounds what all segments take together; 0: only the disk does. `segment_bytes`
    /// is SEGMENT_BYTES but in tests. The caller holds the working copy's lock. InvalidData: the
    /// record of used numbers is damaged. EFBIG: this process may not write a whole segment.
    pub fn open(dir: &Path, limit_bytes: u64, segment_bytes: u64) -> io::Result<Staging> {
        let most_bytes = getrlimit(Resource::Fsize).current;
        if most_bytes.is_some_and(|most_bytes| most_bytes < segment_bytes) {
            return Err(Errno::FBIG.into());
        }
        std::fs::create_dir_all(dir)?;
        spares::remove_all(dir)?;
        let mut segments = BTreeMap::new();
        let mut used_bytes = 0;
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            if let Some(number) = segment::number_of(&entry.path()) {
                let found = entry.metadata()?;
                links::give_back_what_is_behind(&entry.path(), &found);
                let (bytes, occupied_bytes) = (found.len(), links::occupied(&found));
                used_bytes += occupied_bytes;
                segments.insert(
                    number,
                    Arc::new(Segment::inherited(
                        number,
                        entry.path(),
                        bytes,
                        occupied_bytes,
                    )),
                );
            }
        }
        let newest = segments.keys().next_back().copied().unwrap_or(0);
        let numbers = numbers::Numbers::open(dir, newest)?;
        Ok(Staging {
            dir: dir.to_path_buf(),
            limit_bytes,
            segment_bytes,
            segments: RwLock::new(segments),
            reserving: Mutex::new(Reserving::new(numbers, used_bytes, segment_bytes)),
            open_files: OpenFiles::new(),
            failures: Arc::default(),
            appended_bytes: 0.into(),
        })
    }

    /// Remembers failed syncs there, and takes over those of an earlier process.
    pub fn remember_failures(mut self, failures: Arc<Failures>) -> Staging {
        for segment in self.map().values() {
            if failures.has_segment(segment.number) {
                segment.set_failed();
            }
        }
        self.failures = failures;
        self
    }

    /// Stores `data` as one contiguous run. ENOSPC when limit or disk is full; a later call may
    /// succeed.
    ///
    /// Appends of one thread that are multiples of 4 KiB lie one behind the other, on page
    /// boundaries, within a segment.
    pub fn append(&self, data: &[u8]) -> io::Result<Location> {
        let reserved = self.reserve(data.len() as u64)?;
        let (sums, crc) = sums::sums_of(reserved.offset, data);
        reserved.file.write_all_at(data, reserved.offset)?;
        // In this order: a sync that begins when a sum is known covers its bytes.
        reserved.segment.note_write();
        reserved.segment.note_sums(&sums);
        self.appended_bytes
            .fetch_add(data.len() as u64, Ordering::Relaxed);
        Ok(Location {
            segment: reserved.segment.number,
            offset: reserved.offset,
            crc,
        })
    }

    /// Fills `buffer` from the segment. EIO if the segment is absent or ends early, or the bytes
    /// fail their checksum.
    ///
    /// They are compared with their checksum only if the kernel may have lost some: for a segment
    /// of an earlier process until all of it was checked, and after a failed write-back. Otherwise
    /// the kernel is asked, after reading, whether a write-back has failed.
    pub fn read_at(&self, segment: u64, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let found = self.find(segment).ok_or(io::Error::from(Errno::IO))?;
        if !found.is_doubted() {
            let is_synced = found.is_synced();
            let file = self
                .file(&found)
                .map_err(|error| missing_is_eio(segment, error))?;
            file.read_exact_at(buffer, offset)
                .map_err(|error| ends_early_is_eio(segment, error))?;
            if is_synced || !found.may_have_lost(&file) {
                // Holes may have been punched into the file of a segment that is not there any
                // more.
                return match self.find(segment) {
                    Some(_) => Ok(()),
                    None => Err(Errno::IO.into()),
                };
            }
            if found.has_failed() {
                self.note_failure(&found);
            }
        }
        self.read_checked(segment, offset, buffer)
    }

    /// Returns when every byte appended to the segment before the call survives a power loss.
    /// Concurrent callers share one fdatasync. NotFound when there is no such segment.
    ///
    /// After a failed fdatasync every later call for the segment fails too: the kernel may have
    /// dropped the pages. The next append goes to another segment.
    pub fn sync(&self, segment: u64) -> io::Result<()> {
        let segment = self.find(segment).ok_or(io::Error::from(Errno::NOENT))?;
        self.sync_segment(&segment)
    }

    /// The segment's bytes count as durable from now on, because a sync of them is about to begin.
    /// Unknown segments are ignored.
    pub fn promise(&self, segment: u64) {
        if let Some(segment) = self.find(segment) {
            segment.promise();
        }
    }

    /// Whether bytes of the segment may count as durable: promised, or of an earlier process.
    pub fn is_promised(&self, segment: u64) -> bool {
        self.find(segment)
            .is_some_and(|segment| segment.is_promised())
    }

    /// Whether every append to the segment that has returned is on stable storage; false for
    /// unknown ones.
    pub fn is_synced(&self, segment: u64) -> bool {
        self.find(segment)
            .is_some_and(|segment| segment.is_synced())
    }

    /// How many bytes this process has appended.
    pub fn appended_bytes(&self) -> u64 {
        self.appended_bytes.load(Ordering::Relaxed)
    }

    /// (segment, bytes it takes), ascending.
    pub fn segments(&self) -> Vec<(u64, u64)> {
        self.map()
            .values()
            .map(|segment| (segment.number, segment.occupied_bytes()))
            .collect()
    }

    /// The segment that takes appends now, if there is one.
    pub fn current_segment(&self) -> Option<u64> {
        self.lock_reserving().current_number()
    }

    /// Deletes a segment, or keeps its file for a later one; reads that have begun finish. Unknown
    /// segments are ignored.
    ///
    /// The caller ensures that nothing refers to the segment and that no append to it is under way.
    pub fn remove(&self, segment: u64) -> io::Result<()> {
        let mut reserving = self.lock_reserving();
        let Some(found) = self.find(segment) else {
            return Ok(());
        };
        let is_kept = reserving.keep_file_of(&found, &self.open_files);
        if !is_kept {
            match std::fs::remove_file(&found.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => (),
            }
        }
        self.segments
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&segment);
        if !is_kept {
            self.open_files.close(&found);
            reserving.forget(&found);
        }
        drop(reserving);
        self.failures.forget_segment(segment);
        Ok(())
    }

    /// Deletes the files kept for later segments; returns their bytes.
    pub fn remove_spares(&self) -> u64 {
        self.lock_reserving().remove_spares()
    }

    /// Whether the bytes are there and have this crc32c; false also when the segment is missing or
    /// too short.
    pub fn verify(&self, segment: u64, offset: u64, len: u64, crc: u32) -> io::Result<bool> {
        let Some(segment) = self.find(segment) else {
            return Ok(false);
        };
        let file = match self.file(&segment) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            outcome => outcome?,
        };
        // A damaged record may claim any length: the file's own bounds the work.
        if offset
            .checked_add(len)
            .is_none_or(|end| end > file.metadata().map_or(0, |found| found.len()))
        {
            return Ok(false);
        }
        match checksum(&file, offset, len) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            found => Ok(found? == crc),
        }
    }

    /// How much more can be appended, by limit and disk; 0 when the disk can't be asked.
    pub fn free_bytes(&self) -> u64 {
        let on_disk = rustix::fs::statvfs(&self.dir)
            .map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize));
        let reserving = self.lock_reserving();
        let under_limit = match self.limit_bytes {
            0 => u64::MAX,
            limit => limit.saturating_sub(reserving.used_bytes()),
        };
        on_disk
            .min(under_limit)
            .saturating_add(reserving.unused_bytes())
    }

    /// Deletes files kept for later segments until they take at most `max_bytes`; returns the bytes
    /// freed.
    pub fn shrink_spares(&self, max_bytes: u64) -> u64 {
        self.lock_reserving().shrink_spares(max_bytes)
    }

    /// The size of the files kept for later segments.
    pub fn spare_bytes(&self) -> u64 {
        self.lock_reserving().spare_bytes()
    }

    /// The most that such files can take if they are to take at most `max_bytes`.
    pub fn spares_within(&self, max_bytes: u64) -> u64 {
        let files = (max_bytes / self.segment_bytes).min(spares::SPARES_MAX as u64);
        files * self.segment_bytes
    }

    fn sync_segment(&self, segment: &Arc<Segment>) -> io::Result<()> {
        let sync_dir = || {
            self.open_files
                .with_descriptor(|| File::open(&self.dir))?
                .sync_all()
        };
        let had_failed = segment.has_failed();
        let outcome = segment.sync(|| self.file(segment), sync_dir);
        if !had_failed && segment.has_failed() {
            self.note_failure(segment);
        }
        outcome
    }

    /// New bytes go elsewhere, and the next process knows.
    fn note_failure(&self, segment: &Segment) {
        self.lock_reserving().close_if_current(segment);
        self.failures.note_segment(segment.number);
    }

    fn file(&self, segment: &Arc<Segment>) -> io::Result<Arc<File>> {
        self.open_files.open(segment)
    }

    fn find(&self, number: u64) -> Option<Arc<Segment>> {
        self.map().get(&number).cloned()
    }

    fn map(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<u64, Arc<Segment>>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_reserving(&self) -> MutexGuard<'_, Reserving> {
        self.reserving
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// crc32c, as `Location` has it: over part of what one append stored, say.
pub fn crc_of(data: &[u8]) -> u32 {
    crc32c::crc32c(data)
}

fn checksum(file: &File, offset: u64, len: u64) -> io::Result<u32> {
    let mut buffer = vec![0; len.min(1 << 20) as usize];
    let (mut at, mut found) = (offset, 0);
    while at < offset + len {
        let piece = (offset + len - at).min(buffer.len() as u64) as usize;
        file.read_exact_at(&mut buffer[..piece], at)?;
        found = crc32c::crc32c_append(found, &buffer[..piece]);
        at += piece as u64;
    }
    Ok(found)
}

/// EIO, with the reason: these bytes are lost. (EIO without one: the segment was removed.)
fn lost(segment: u64, what: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("staging segment {segment:016x}: {what}"))
}

fn ends_early_is_eio(segment: u64, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => lost(segment, "the file is shorter than what was written"),
        _ => error,
    }
}

/// A segment that is known but whose file is gone is a loss, not a name that was mistyped.
fn missing_is_eio(segment: u64, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => lost(segment, "the file is missing"),
        _ => error,
    }
}
