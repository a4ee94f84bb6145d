//! Appends batches of chunks and their records to segments, past the page cache where possible.
//!
//! A process appends to one segment of each kind, which it has locked (`flock` on the index), until
//! the segment has `segment_bytes`. It continues with the newest unlocked segment that is less than
//! half full, or creates one. So processes never write to the same segment, and short-lived ones do
//! not leave a segment each. Bytes in an index behind its last whole record are cut off first.
//!
//! The bytes are written before their records, and neither is synced. If a crash destroys some of
//! either, a later read fails its checksum. A segment that another process has deleted is
//! abandoned; so is one that cannot be written.
//!
//! Writing past the page cache takes a third of the time where a virtual machine gets its memory
//! page by page, and no processor time to speak of. Where the disk is slow, the next batches go to
//! the page cache: readers must not wait for it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::record::{MAGIC, Record};
use crate::segments::{Kind, Name, Segments, list};
use crate::slab::PAGE;

pub const SEGMENT_BYTES: u64 = 64 << 20;
/// A batch that takes longer, for each 4 MiB of it, is of a slow disk: less than 130 MB/s.
const SLOW: Duration = Duration::from_millis(32);
/// Shorter batches do not wait for the disk.
const DIRECT_FROM: usize = 1 << 20;
/// The number of batches that go to the page cache after a slow write.
const BUFFERED_AFTER_SLOW: u32 = 16;

pub struct Writer {
    /// A child that was forked has the same segments open, and their locks; it must not append.
    process: u32,
    segment_bytes: AtomicU64,
    buffered: AtomicU32,
    once: Mutex<Option<Arc<Active>>>,
    kept: Mutex<Option<Arc<Active>>>,
    begun: AtomicU32,
}

/// A segment that this process appends to.
struct Active {
    number: u32,
    name: Name,
    /// For bytes that come from whole pages.
    direct: Option<File>,
    is_direct_refused: AtomicBool,
    data: File,
    /// Locked.
    index: File,
    /// Where the next bytes go; moved under the writer's lock for the kind.
    data_end: AtomicU64,
    /// Where the next records go; moved under `recording`.
    index_end: AtomicU64,
    /// Held while records are written, which may wait for the disk. Never taken while another lock
    /// is held.
    recording: Mutex<()>,
}

impl Writer {
    pub fn new() -> Writer {
        Writer {
            process: std::process::id(),
            segment_bytes: AtomicU64::new(SEGMENT_BYTES),
            buffered: AtomicU32::new(0),
            once: Mutex::new(None),
            kept: Mutex::new(None),
            begun: AtomicU32::new(0),
        }
    }

    /// Sets the approximate length of segments.
    pub fn set_segment_bytes(&self, bytes: u64) {
        self.segment_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Appends a batch: `bytes`, whole pages, and records whose offsets are from their start. After
    /// an error none of it is known. Unsupported in a child of the process that made the writer.
    pub fn append(
        &self,
        segments: &Segments,
        kind: Kind,
        bytes: &[u8],
        records: Vec<Record>,
    ) -> io::Result<()> {
        if std::process::id() != self.process {
            return Err(ErrorKind::Unsupported.into());
        }
        let (active, at) = self.reserve(segments, kind, bytes.len() as u64)?;
        let written = self.write(&active, bytes, at);
        let recorded = written.and_then(|()| active.record(at, records));
        match recorded {
            Ok(places) => {
                segments.add(active.number, &places);
                Ok(())
            }
            Err(error) => {
                self.leave(segments, &active);
                Err(error)
            }
        }
    }

    /// Abandons the current segments, so that other processes may continue them.
    pub fn release(&self, segments: &Segments) {
        for kind in [Kind::Once, Kind::Kept] {
            let active = self.lock(kind).take();
            if let Some(active) = active {
                active.disown(segments);
            }
        }
    }

    /// Whether this process appends to it.
    pub fn is_own(&self, name: &Name) -> bool {
        self.lock(name.kind)
            .as_ref()
            .is_some_and(|active| active.name == *name)
    }

    fn reserve(
        &self,
        segments: &Segments,
        kind: Kind,
        length: u64,
    ) -> io::Result<(Arc<Active>, u64)> {
        let mut place = self.lock(kind);
        let limit = self.segment_bytes.load(Ordering::Relaxed);
        let takes_more = |active: &Arc<Active>| {
            active.data_end.load(Ordering::Relaxed) < limit
                && active.index.metadata().is_ok_and(|found| found.nlink() > 0)
        };
        if !place.as_ref().is_some_and(takes_more) {
            if let Some(full) = place.take() {
                full.disown(segments);
            }
            *place = Some(Arc::new(self.begin(segments, kind, limit)?));
        }
        let active = place.clone().ok_or(ErrorKind::NotFound)?;
        let at = active.data_end.load(Ordering::Relaxed);
        if at + length > u32::MAX.into() {
            return Err(ErrorKind::FileTooLarge.into());
        }
        active.data_end.store(at + length, Ordering::Relaxed);
        Ok((active, at))
    }

    fn begin(&self, segments: &Segments, kind: Kind, limit: u64) -> io::Result<Active> {
        let mut begun = list(segments.dir());
        begun.retain(|found| found.name.kind == kind && found.data_bytes < limit / 2);
        begun.sort_by(|one, other| other.name.cmp(&one.name));
        let taken = begun
            .iter()
            .find_map(|found| Active::take_over(segments, &found.name));
        taken.map_or_else(|| Active::create(segments, self.new_name(kind)), Ok)
    }

    fn new_name(&self, kind: Kind) -> Name {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let number =
            std::process::id().wrapping_add(self.begun.fetch_add(1, Ordering::Relaxed) << 12);
        Name::new(
            format!("{:016x}{:04x}", now.as_nanos() as u64, number as u16),
            kind,
        )
    }

    fn write(&self, active: &Active, bytes: &[u8], at: u64) -> io::Result<()> {
        let is_quick = self
            .buffered
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            })
            .is_err();
        let is_large = bytes.len() >= DIRECT_FROM;
        if let Some(direct) = active.direct.as_ref().filter(|_| is_quick && is_large)
            && !active.is_direct_refused.load(Ordering::Relaxed)
        {
            let start = Instant::now();
            match direct.write_all_at(bytes, at) {
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    active.is_direct_refused.store(true, Ordering::Relaxed);
                }
                outcome => {
                    let shares = (bytes.len() as u32).div_ceil(4 << 20);
                    if start.elapsed() > SLOW * shares {
                        self.buffered.store(BUFFERED_AFTER_SLOW, Ordering::Relaxed);
                    }
                    return outcome;
                }
            }
        }
        active.data.write_all_at(bytes, at)
    }

    fn leave(&self, segments: &Segments, active: &Arc<Active>) {
        let mut place = self.lock(active.name.kind);
        if place.as_ref().is_some_and(|now| Arc::ptr_eq(now, active)) {
            *place = None;
            active.disown(segments);
        }
    }

    fn lock(&self, kind: Kind) -> MutexGuard<'_, Option<Arc<Active>>> {
        let place = match kind {
            Kind::Once => &self.once,
            Kind::Kept => &self.kept,
        };
        place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Active {
    fn create(segments: &Segments, name: Name) -> io::Result<Active> {
        let dir = segments.dir();
        let index = match new_file(&name.index(dir)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
                new_file(&name.index(dir))?
            }
            outcome => outcome?,
        };
        flock(&index, FlockOperation::NonBlockingLockExclusive)?;
        let active = index
            .write_all_at(MAGIC, 0)
            .and_then(|()| new_file(&name.data(dir)))
            .and_then(|data| Active::of(segments, name.clone(), data, index));
        if active.is_err() {
            name.remove(dir);
        }
        active
    }

    /// Takes over a segment of another process if no process writes to it.
    fn take_over(segments: &Segments, name: &Name) -> Option<Active> {
        let dir = segments.dir();
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let index = options.open(name.index(dir)).ok()?;
        flock(&index, FlockOperation::NonBlockingLockExclusive).ok()?;
        let data = options.open(name.data(dir)).ok()?;
        let active = Active::of(segments, name.clone(), data, index).ok()?;
        (active.index.metadata().ok()?.nlink() > 0).then_some(active)
    }

    fn of(segments: &Segments, name: Name, data: File, index: File) -> io::Result<Active> {
        let mut options = OpenOptions::new();
        options
            .write(true)
            .custom_flags(OFlags::DIRECT.bits() as i32);
        let direct = options.open(name.data(segments.dir())).ok();
        let (number, index_end) = segments.own(&name).ok_or(ErrorKind::InvalidData)?;
        index.set_len(index_end)?;
        let data_end = data.metadata()?.len().next_multiple_of(PAGE as u64);
        Ok(Active {
            number,
            name,
            direct,
            is_direct_refused: AtomicBool::new(false),
            data,
            index,
            data_end: AtomicU64::new(data_end),
            index_end: AtomicU64::new(index_end),
            recording: Mutex::default(),
        })
    }

    /// Appends the records of bytes that were written at `start`; each with where it is.
    fn record(&self, start: u64, records: Vec<Record>) -> io::Result<Vec<(Record, u32)>> {
        let _recording = self
            .recording
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let end = self.index_end.load(Ordering::Relaxed);
        let (mut bytes, mut places) = (Vec::new(), Vec::with_capacity(records.len()));
        for mut record in records {
            record.offset += start as u32;
            let at = u32::try_from(end + bytes.len() as u64).map_err(io::Error::other)?;
            record.append_to(&mut bytes);
            places.push((record, at));
        }
        self.index.write_all_at(&bytes, end)?;
        self.index_end
            .store(end + bytes.len() as u64, Ordering::Relaxed);
        Ok(places)
    }

    fn disown(&self, segments: &Segments) {
        // The lock goes with the last thread that still writes to it.
        segments.disown(self.number, self.index_end.load(Ordering::Relaxed));
    }
}

fn new_file(path: &std::path::Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    options.open(path)
}
