//! The chunks in the segments of the directory, from all processes: a table in memory of all
//! records, and checked reads.
//!
//! ```text
//! <dir>/segments/<when it was begun, 16 hex, and 4 hex>.<once|kept>.data     chunks, one behind the other
//! <dir>/segments/<the same>.<once|kept>.index                                record.rs
//! ```
//!
//! `look` finds changes made by other processes: it lists the directory and reads the indexes that
//! have grown. The table has 16 bytes for each chunk: a number made of hash and length, and where
//! the record is. The record has the rest. It is read and checked at the chunk's first read, and
//! kept for the last `OPEN_CHUNKS` chunks.
//!
//! Entries of deleted segments are skipped, and removed together once they are half of the table.
//! So deleting a segment costs the same whatever its size.

use std::collections::HashMap;
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hashbrown::HashTable;
use lru::LruCache;

use crate::Hash;
use crate::record::{self, MAGIC, Record, USED_AT};

pub const DIRECTORY: &str = "segments";
const OPEN_CHUNKS: usize = 4096;
const OPEN_SEGMENTS_MAX: usize = 1024;
/// How long a reader that misses a chunk may overlook changes made by other processes.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub struct Segments {
    dir: PathBuf,
    /// Reading again counts from this long after storing.
    again_after: Duration,
    table: Mutex<Table>,
    /// Held while the directory is looked at.
    looking: Mutex<Option<Instant>>,
    files: Mutex<LruCache<u32, Arc<Files>>>,
    chunks: Mutex<LruCache<Hash, Arc<Stored>>>,
}

#[derive(Default)]
struct Table {
    entries: HashTable<Entry>,
    segments: HashMap<u32, Known>,
    numbers: HashMap<Name, u32>,
    next: u32,
    /// Entries of segments that are gone.
    stale: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    key: u64,
    segment: u32,
    /// Where the record is in the index.
    at: u32,
}

struct Known {
    name: Name,
    entries: usize,
    /// Up to here the index has been read.
    read_to: u64,
    /// This process appends to it, and tells of each record itself.
    is_own: bool,
}

/// The name of a segment's files, without the ending.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    stem: String,
    pub kind: Kind,
}

/// Chunks that were read again since they were stored outlive the segment that they came into, in
/// one of another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Once,
    Kept,
}

/// A segment as it lies on the disk.
pub struct Listed {
    pub name: Name,
    pub data_bytes: u64,
    pub index_bytes: u64,
    /// When it was last appended to.
    pub used: SystemTime,
}

/// A segment's open files.
pub struct Files {
    pub data: File,
    pub index: File,
}

/// A chunk whose record has been read.
struct Stored {
    segment: u32,
    record_at: u32,
    record: Record,
    is_used: AtomicBool,
}

impl Name {
    pub fn new(stem: String, kind: Kind) -> Name {
        Name { stem, kind }
    }

    fn parse(index: &str) -> Option<Name> {
        let (stem, kind) = index.strip_suffix(".index")?.split_once('.')?;
        let kind = match kind {
            "once" => Kind::Once,
            "kept" => Kind::Kept,
            _ => return None,
        };
        let is_ours = stem.len() == 20 && stem.bytes().all(|b| b.is_ascii_hexdigit());
        is_ours.then(|| Name::new(stem.to_owned(), kind))
    }

    fn file(&self, dir: &Path, what: &str) -> PathBuf {
        let kind = match self.kind {
            Kind::Once => "once",
            Kind::Kept => "kept",
        };
        dir.join(format!("{}.{kind}.{what}", self.stem))
    }

    pub fn data(&self, dir: &Path) -> PathBuf {
        self.file(dir, "data")
    }

    pub fn index(&self, dir: &Path) -> PathBuf {
        self.file(dir, "index")
    }

    /// Deletes the segment; returns whether this call did it. Processes that have it open read no
    /// more from it, and its space is released.
    pub fn remove(&self, dir: &Path) -> bool {
        let data = self.data(dir);
        if let Ok(file) = File::options().write(true).open(&data) {
            let _ = file.set_len(0);
        }
        let _ = fs::remove_file(&data);
        fs::remove_file(self.index(dir)).is_ok()
    }
}

impl Segments {
    pub fn new(dir: PathBuf, again_after: Duration) -> Segments {
        let some = |most: usize| NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN);
        Segments {
            dir,
            again_after,
            table: Mutex::default(),
            looking: Mutex::new(None),
            files: Mutex::new(LruCache::new(some(open_segments()))),
            chunks: Mutex::new(LruCache::new(some(OPEN_CHUNKS))),
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn contains(&self, hash: &Hash, raw_len: u64) -> bool {
        self.find(hash, raw_len).is_some()
    }

    /// Fills `buffer` with the chunk's bytes from `skip` on; the range must lie in the chunk.
    /// Returns false if the chunk is absent or damaged; a damaged chunk is dropped.
    pub fn read_into(&self, hash: &Hash, raw_len: u64, skip: u64, buffer: &mut [u8]) -> bool {
        let Some(chunk) = self.opened(hash, raw_len) else {
            return false;
        };
        let is_read = self.files(chunk.segment).is_some_and(|files| {
            let start = chunk.record.offset.into();
            let is_read = chunk
                .record
                .sums
                .read(&files.data, start, raw_len, skip, buffer);
            if is_read && self.is_again(&chunk) {
                note_used(&chunk, &files);
            }
            is_read
        });
        if !is_read {
            self.forget(hash, raw_len, &chunk);
        }
        is_read
    }

    /// Notes that the chunk is in use, unless it was stored just now; false when its record is not
    /// here.
    pub fn keep(&self, hash: &Hash, raw_len: u64) -> bool {
        let found = self.opened(hash, raw_len);
        let files = found.as_ref().and_then(|chunk| self.files(chunk.segment));
        if let (Some(chunk), Some(files)) = (&found, files)
            && self.is_again(chunk)
        {
            note_used(chunk, &files);
        }
        found.is_some()
    }

    /// Whether reads of the chunk use this record, and not another one.
    pub fn is_current(&self, name: &Name, record: &Record, at: u32) -> bool {
        let table = self.lock_table();
        let number = table.numbers.get(name).copied();
        number.is_some()
            && table.find(key(&record.hash, record.raw_len.into())) == number.map(|n| (n, at))
    }

    /// Takes in records that this process has appended to a segment of its own, and where each is.
    pub fn add(&self, number: u32, records: &[(Record, u32)]) {
        let mut table = self.lock_table();
        for (record, at) in records {
            table.insert(number, record, *at);
        }
    }

    /// Registers a segment to which only this process appends from now on. Returns its number and
    /// the end of its records; None if it has no index.
    pub fn own(&self, name: &Name) -> Option<(u32, u64)> {
        let length = fs::metadata(name.index(&self.dir)).ok()?.len();
        self.read_news(name, length);
        let mut table = self.lock_table();
        let number = table.numbers.get(name).copied()?;
        let known = table.segments.get_mut(&number)?;
        known.is_own = true;
        Some((number, known.read_to))
    }

    /// This process appends to the segment no more; others may.
    pub fn disown(&self, number: u32, index_bytes: u64) {
        if let Some(known) = self.lock_table().segments.get_mut(&number) {
            known.is_own = false;
            known.read_to = index_bytes;
        }
    }

    /// Its files are gone.
    pub fn gone(&self, name: &Name) {
        let mut table = self.lock_table();
        let Some(number) = table.numbers.get(name).copied() else {
            return;
        };
        table.drop_segment(number);
        drop(table);
        let _closed = self.lock_files().pop(&number);
    }

    /// Finds the segments and records that were added to the directory or deleted from it.
    pub fn look(&self) {
        let mut looked = lock(&self.looking);
        self.look_locked(&mut looked);
    }

    /// As `look`, unless that was done a moment ago or is being done.
    fn look_for_news(&self) -> bool {
        let Ok(mut looked) = self.looking.try_lock() else {
            return false;
        };
        let is_due = looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY);
        if is_due {
            self.look_locked(&mut looked);
        }
        is_due
    }

    fn look_locked(&self, looked: &mut Option<Instant>) {
        *looked = Some(Instant::now());
        let mut found = HashMap::new();
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if let Some(name) = entry.file_name().to_str().and_then(Name::parse)
                && let Ok(metadata) = entry.metadata()
            {
                found.insert(name, metadata.len());
            }
        }
        let known: Vec<Name> = self.lock_table().numbers.keys().cloned().collect();
        for name in known.iter().filter(|name| !found.contains_key(name)) {
            self.gone(name);
        }
        for (name, length) in found {
            self.read_news(&name, length);
        }
    }

    fn read_news(&self, name: &Name, length: u64) {
        let from = {
            let table = self.lock_table();
            let known = table
                .numbers
                .get(name)
                .and_then(|number| table.segments.get(number));
            match known {
                Some(known) if known.is_own || known.read_to >= length => return,
                Some(known) => known.read_to,
                None => 0,
            }
        };
        let Some((records, read_to)) = read_index(&name.index(&self.dir), from) else {
            return;
        };
        let mut table = self.lock_table();
        let number = table.number(name);
        for (record, at) in &records {
            table.insert(number, record, *at);
        }
        if let Some(known) = table.segments.get_mut(&number) {
            known.read_to = read_to;
        }
    }

    /// The place of the chunk's record.
    fn find(&self, hash: &Hash, raw_len: u64) -> Option<(u32, u32)> {
        let key = key(hash, raw_len);
        let found = self.lock_table().find(key);
        if found.is_none() && self.look_for_news() {
            return self.lock_table().find(key);
        }
        found
    }

    fn opened(&self, hash: &Hash, raw_len: u64) -> Option<Arc<Stored>> {
        let known = self.lock_chunks().get(hash).cloned();
        if let Some(chunk) = known
            && u64::from(chunk.record.raw_len) == raw_len
            && self.lock_table().segments.contains_key(&chunk.segment)
        {
            return Some(chunk);
        }
        let (segment, at) = self.find(hash, raw_len)?;
        let record = self.read_record(segment, at, raw_len);
        let Some(record) = record.filter(|record| record.hash == *hash) else {
            self.lock_table().remove(key(hash, raw_len), segment, at);
            return None;
        };
        let chunk = Arc::new(Stored {
            segment,
            record_at: at,
            is_used: AtomicBool::new(record.is_used),
            record,
        });
        self.lock_chunks().put(*hash, chunk.clone());
        Some(chunk)
    }

    fn read_record(&self, segment: u32, at: u32, raw_len: u64) -> Option<Record> {
        let mut bytes = vec![0; record::bytes_of(raw_len)?];
        let files = self.files(segment)?;
        files.index.read_exact_at(&mut bytes, at.into()).ok()?;
        let (record, _) = Record::parse(&bytes)?;
        (u64::from(record.raw_len) == raw_len).then_some(record)
    }

    fn forget(&self, hash: &Hash, raw_len: u64, chunk: &Stored) {
        self.lock_chunks().pop(hash);
        self.lock_table()
            .remove(key(hash, raw_len), chunk.segment, chunk.record_at);
    }

    /// The open files of a segment; None if they are gone.
    fn files(&self, number: u32) -> Option<Arc<Files>> {
        if let Some(files) = self.lock_files().get(&number) {
            return Some(files.clone());
        }
        let name = self.lock_table().segments.get(&number)?.name.clone();
        let opened = Files::open(&name, &self.dir);
        let Some(files) = opened else {
            self.gone(&name);
            return None;
        };
        let files = Arc::new(files);
        let _closed = self.lock_files().push(number, files.clone());
        Some(files)
    }

    fn is_again(&self, chunk: &Stored) -> bool {
        if chunk.is_used.load(Ordering::Relaxed) {
            return false;
        }
        let stored = UNIX_EPOCH + Duration::from_secs(chunk.record.stored_s.into());
        stored.elapsed().is_ok_and(|age| age >= self.again_after)
    }

    fn lock_table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    fn lock_files(&self) -> MutexGuard<'_, LruCache<u32, Arc<Files>>> {
        lock(&self.files)
    }

    fn lock_chunks(&self) -> MutexGuard<'_, LruCache<Hash, Arc<Stored>>> {
        lock(&self.chunks)
    }
}

impl Table {
    fn number(&mut self, name: &Name) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.next;
        self.next += 1;
        self.numbers.insert(name.clone(), number);
        let known = Known {
            name: name.clone(),
            entries: 0,
            read_to: 0,
            is_own: false,
        };
        self.segments.insert(number, known);
        number
    }

    fn find(&self, key: u64) -> Option<(u32, u32)> {
        let entry = self.entries.find(key, |entry| entry.key == key)?;
        let is_here = self.segments.contains_key(&entry.segment);
        is_here.then_some((entry.segment, entry.at))
    }

    /// The newest record of a chunk counts.
    fn insert(&mut self, segment: u32, record: &Record, at: u32) {
        let Some(known) = self.segments.get_mut(&segment) else {
            return;
        };
        known.entries += 1;
        let key = key(&record.hash, record.raw_len.into());
        let entry = Entry { key, segment, at };
        match self
            .entries
            .entry(key, |entry| entry.key == key, |entry| entry.key)
        {
            hashbrown::hash_table::Entry::Occupied(mut old) => *old.get_mut() = entry,
            hashbrown::hash_table::Entry::Vacant(place) => {
                place.insert(entry);
            }
        }
    }

    fn remove(&mut self, key: u64, segment: u32, at: u32) {
        let is_it = |entry: &Entry| (entry.key, entry.segment, entry.at) == (key, segment, at);
        if let Ok(found) = self.entries.find_entry(key, is_it) {
            found.remove();
        }
    }

    fn drop_segment(&mut self, number: u32) {
        let Some(known) = self.segments.remove(&number) else {
            return;
        };
        self.numbers.remove(&known.name);
        self.stale += known.entries;
        if self.stale > self.entries.len() / 2 {
            let segments = &self.segments;
            self.entries
                .retain(|entry| segments.contains_key(&entry.segment));
            self.stale = 0;
        }
    }
}

/// The segments of a directory.
pub fn list(dir: &Path) -> Vec<Listed> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let Some(name) = entry.file_name().to_str().and_then(Name::parse) else {
            continue;
        };
        let Ok(index) = entry.metadata() else {
            continue;
        };
        let data = fs::metadata(name.data(dir)).ok();
        found.push(Listed {
            used: data
                .as_ref()
                .unwrap_or(&index)
                .modified()
                .unwrap_or(UNIX_EPOCH),
            data_bytes: data.map_or(0, |data| data.len()),
            index_bytes: index.len(),
            name,
        });
    }
    found
}

impl Files {
    pub fn open(name: &Name, dir: &Path) -> Option<Files> {
        let index = File::options().read(true).write(true).open(name.index(dir));
        Some(Files {
            data: File::open(name.data(dir)).ok()?,
            index: index.ok()?,
        })
    }
}

/// The records of an index from a place on, each with where it is, and where the next one will be.
pub fn read_index(path: &Path, from: u64) -> Option<(Vec<(Record, u32)>, u64)> {
    let file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len().min(u32::MAX.into());
    let mut bytes = vec![0; usize::try_from(length.checked_sub(from)?).ok()?];
    file.read_exact_at(&mut bytes, from).ok()?;
    let mut at = 0;
    if from == 0 {
        if !bytes.starts_with(MAGIC) {
            return None;
        }
        at = MAGIC.len();
    }
    let mut records = Vec::new();
    while let Some((record, length)) = Record::parse(&bytes[at..]) {
        records.push((record, from as u32 + at as u32));
        at += length;
    }
    Some((records, from + at as u64))
}

/// Seconds since 1970.
pub fn now_s() -> u32 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

fn note_used(chunk: &Stored, files: &Files) {
    if !chunk.is_used.swap(true, Ordering::Relaxed) {
        // A failure costs only the chunk's place in the queue.
        let _ = files
            .index
            .write_all_at(&[1], u64::from(chunk.record_at) + USED_AT);
    }
}

fn key(hash: &Hash, raw_len: u64) -> u64 {
    let first = u64::from_le_bytes(hash[..8].try_into().unwrap_or_default());
    first ^ raw_len.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many segments may be open: two descriptors each, a quarter of what the process may have.
fn open_segments() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let eighth = limit.map_or(usize::MAX, |limit| (limit / 8) as usize);
    eighth.min(OPEN_SEGMENTS_MAX)
}
