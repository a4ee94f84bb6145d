//! Decoded chunks, content-addressed, in memory and on disk, shared by all processes of a user.
//!
//! ```text
//! <dir>/segments/…   chunks, in files of some 64 MiB with an index each (segments.rs, record.rs)
//! <dir>/whole/…      files put together from chunks, for the kernel to read by itself (whole.rs)
//! <dir>/blocks/…     blocks of indexes (cowfs/index/cache.py); only counted and trimmed here (account.rs)
//! <dir>/seen         which chunks came recently (seen.rs)
//!
//! insert ─▶ fresh.rs: slabs in memory ─▶ writer.rs: appends them to a segment of this process
//! insert_from_near ─▶ the same, but a slab is written only if half of it came before
//! read   ─▶ memory, or segments.rs: any process' segments, checked
//! trim   ─▶ evict.rs: deletes whole segments; what was read again stays
//! ```
//!
//! Guarantees
//! - A read returns exactly the inserted bytes: each read of a segment is checked, including
//!   segments of other processes (`blocks.rs`). A damaged chunk is a miss, and fetched again.
//!   (Against chance, not malice: the directory is the user's own. The process that inserted a
//!   chunk has verified its hash.)
//! - Each process appends to segments of its own, so processes share the directory without waiting
//!   for one another. Nothing is synced: bytes that a crash or a failing disk destroys fail their
//!   checksum.
//! - Any process may delete or trim the directory at any time; a failing or unwritable disk makes
//!   misses, never errors.
//!
//! A chunk reaches the disk, where other processes find it, when its slab is full or at a `flush`;
//! `trim` and `close` flush, too. Memory holds the chunks inserted last, and small chunks that were
//! read from disk. Segments are read, not mapped: a mapped file that fails or shrinks would end the
//! process.
//!
//! Three locks are held across file I/O: the account's, which only `trim` takes; `looking`, for
//! which only other look-ups of the directory wait; and that of a writer's place while it begins a
//! segment. Not here: fetching, decoding, and deciding how much the disk may hold.

mod account;
mod blocks;
mod evict;
mod fresh;
mod memory;
mod record;
mod seen;
mod segments;
mod slab;
mod whole;
mod writer;

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use account::Account;
use blocks::BlockSums;
pub use fresh::Lent;
use fresh::{Batch, Chunk, Fresh};
use memory::Memory;
use record::{MAX_RAW_BYTES, Record};
use seen::Seen;
use segments::{Kind, Segments};
use writer::{SEGMENT_BYTES, Writer};

use whole::Checked;
pub use whole::{Part, Whole};

/// Chunks up to this length are kept in memory when they were read from disk.
const SMALL_BYTES: u64 = 64 << 10;
/// A chunk read this long after it was stored counts as used again.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Longer than a reader lags behind the chunks fetched ahead of it.
const FRESH_FOR: Duration = Duration::from_secs(20);
const SLAB_BYTES_MIN: u64 = 256 << 10;
const SLAB_BYTES_MAX: u64 = 4 << 20;
/// The part of the memory for small chunks that were read from disk.
const SMALL_PART: u64 = 8;
/// A trim frees this part of the limit in addition to the excess.
const TRIM_PART: u64 = 16;
/// A segment takes about this part of the limit, if that is less than `SEGMENT_BYTES`.
const SEGMENT_PART: u64 = 64;
const SEGMENT_BYTES_MIN: u64 = 256 << 10;

type Hash = [u8; 32];

/// A cache of decoded chunks. Every method may be called from any thread; a failing disk makes
/// misses, not errors.
pub struct ChunkCache {
    dir: PathBuf,
    fresh: Fresh,
    small: Mutex<Memory>,
    segments: Segments,
    writer: Writer,
    seen: Seen,
    again_after: Duration,
    /// The sizes of the files beside the segments.
    account: Mutex<Account>,
    /// Whole files that need not be checked again, by name.
    checked: Mutex<HashMap<Hash, Checked>>,
    has_removed_earlier: AtomicBool,
    grown_bytes: AtomicU64,
}

impl ChunkCache {
    /// `dir` is created when the first chunks are stored; if that fails, chunks live in memory
    /// only. `memory_bytes`: the memory for chunks, including those being written.
    pub fn open(dir: &Path, memory_bytes: u64) -> ChunkCache {
        ChunkCache::with(dir, memory_bytes, AGAIN_AFTER)
    }

    fn with(dir: &Path, memory_bytes: u64, again_after: Duration) -> ChunkCache {
        let slab_bytes = match memory_bytes {
            0 => SLAB_BYTES_MAX,
            _ => (memory_bytes / SMALL_PART).clamp(SLAB_BYTES_MIN, SLAB_BYTES_MAX),
        };
        let small_bytes = memory_bytes / SMALL_PART;
        ChunkCache {
            dir: dir.to_path_buf(),
            fresh: Fresh::new(slab_bytes as usize, (memory_bytes - small_bytes) as usize),
            small: Mutex::new(Memory::new(small_bytes)),
            segments: Segments::new(dir.join(segments::DIRECTORY), again_after),
            writer: Writer::new(),
            seen: Seen::new(dir),
            again_after,
            account: Mutex::default(),
            checked: Mutex::default(),
            has_removed_earlier: AtomicBool::new(false),
            grown_bytes: AtomicU64::new(0),
        }
    }

    /// The whole chunk, if it is here undamaged with this length.
    pub fn get(&self, hash: &Hash, raw_len: u64) -> Option<Arc<[u8]>> {
        if raw_len > MAX_RAW_BYTES {
            return None;
        }
        let mut data = vec![0; raw_len as usize];
        self.read_into(hash, raw_len, 0, &mut data)
            .then(|| data.into())
    }

    /// Fills `buffer` with the chunk's bytes from `skip` on; false (buffer undefined) when the
    /// chunk is not here or ends before.
    pub fn read_into(&self, hash: &Hash, raw_len: u64, skip: u64, buffer: &mut [u8]) -> bool {
        let Some(end) = skip.checked_add(buffer.len() as u64) else {
            return false;
        };
        if end > raw_len {
            return false;
        }
        if let Some(chunk) = self.fresh(hash, raw_len) {
            buffer.copy_from_slice(&chunk.bytes()[skip as usize..end as usize]);
            return true;
        }
        if raw_len > SMALL_BYTES {
            return self.segments.read_into(hash, raw_len, skip, buffer);
        }
        let known = self.lock_small().get(hash, raw_len, self.again_after);
        if let Some((data, is_again)) = known {
            buffer.copy_from_slice(&data[skip as usize..][..buffer.len()]);
            if is_again {
                self.segments.keep(hash, raw_len);
            }
            return true;
        }
        let mut data = vec![0; raw_len as usize];
        if !self.segments.read_into(hash, raw_len, 0, &mut data) {
            return false;
        }
        buffer.copy_from_slice(&data[skip as usize..][..buffer.len()]);
        self.lock_small().insert(hash, data.into());
        true
    }

    /// The chunk's bytes in this range, if the chunk was inserted recently and is still in memory.
    /// Also None while much is lent, because lent chunks take room from new ones.
    pub fn lend(&self, hash: &Hash, raw_len: u64, range: Range<u64>) -> Option<Lent> {
        let chunk = self.fresh(hash, raw_len)?;
        self.fresh
            .lend(chunk, range.start as usize..range.end as usize)
    }

    /// A chunk that is read from memory.
    fn fresh(&self, hash: &Hash, raw_len: u64) -> Option<Chunk> {
        let chunk = self.fresh.get(hash, raw_len)?;
        if chunk.since.elapsed() >= self.again_after {
            self.segments.keep(hash, raw_len);
        }
        Some(chunk)
    }

    /// Whether the chunk seems to be here; its bytes are not looked at, so a later `get` may still
    /// find it damaged.
    pub fn contains(&self, hash: &Hash, raw_len: u64) -> bool {
        self.fresh.get(hash, raw_len).is_some() || self.segments.contains(hash, raw_len)
    }

    /// Whether the chunk seems to be on the disk, or will be. It then counts as read again, unless
    /// it was stored just now: `trim` spares it.
    pub fn keep(&self, hash: &Hash, raw_len: u64) -> bool {
        let fresh = self.fresh.get(hash, raw_len);
        fresh.is_some_and(|chunk| !chunk.is_refused) || self.segments.keep(hash, raw_len)
    }

    /// The size of the directory, including blocks of indexes and whole files. Costs as much as
    /// `trim`.
    pub fn held_bytes(&self) -> u64 {
        let beside_bytes = self.lock_account().held_bytes(&self.dir) + self.seen.held_bytes();
        evict::segment_bytes(self.segments.dir()) + beside_bytes
    }

    /// Bytes of chunks and whole files that this process has added to the disk since its last
    /// `trim`, or will add. Chunks from a near store count about half.
    pub fn grown_bytes(&self) -> u64 {
        self.grown_bytes.load(Ordering::Relaxed)
    }

    /// Keeps a chunk whose hash the caller has verified.
    pub fn insert(&self, hash: &Hash, data: &[u8]) {
        self.take_in(hash, data, || true);
    }

    /// As `insert`, of a chunk that was read from this cache's own disk: a copy there is worth its
    /// while once the chunk is read again. Until it comes for the second time it is in memory only.
    pub fn insert_from_near(&self, hash: &Hash, data: &[u8]) {
        self.take_in(hash, data, || self.seen.note(hash));
    }

    fn take_in(&self, hash: &Hash, data: &[u8], is_for_disk: impl FnOnce() -> bool) {
        let raw_len = data.len() as u64;
        if raw_len > MAX_RAW_BYTES || self.contains(hash, raw_len) {
            return;
        }
        let is_for_disk = is_for_disk();
        let sums = match is_for_disk {
            true => BlockSums::of(data), // while the bytes are near
            false => BlockSums::default(),
        };
        let record = Record {
            hash: *hash,
            offset: 0,
            raw_len: data.len() as u32,
            stored_s: segments::now_s(),
            is_used: false,
            sums,
        };
        if is_for_disk {
            self.grown_bytes.fetch_add(raw_len, Ordering::Relaxed);
        }
        for batch in self.fresh.insert(record, data, is_for_disk) {
            self.write(batch);
        }
    }

    /// Writes the chunks that are only in memory to the disk.
    pub fn flush(&self) {
        let end = self.write_begun();
        self.fresh.wait(end);
    }

    /// As `flush`, and releases the segments of this process, so that any process may append to
    /// them.
    pub fn close(&self) {
        self.flush();
        self.writer.release(&self.segments);
    }

    fn write_begun(&self) -> u64 {
        let (batch, end) = self.fresh.seal();
        if let Some(batch) = batch {
            self.write(batch);
        }
        end
    }

    /// Deletes the least recently used data, including blocks of indexes, until the directory holds
    /// at most `max_bytes`; returns the bytes freed. Memory keeps recent chunks.
    ///
    /// While the directory is within the limit, this reads the times of 512 directories, lists
    /// those that changed, and reads the lengths of the segments.
    pub fn trim(&self, max_bytes: u64) -> u64 {
        self.grown_bytes.store(0, Ordering::Relaxed);
        let segment_bytes = (max_bytes / SEGMENT_PART).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES);
        self.writer.set_segment_bytes(segment_bytes);
        self.fresh.set_batch_bytes(segment_bytes as usize);
        if !self.has_removed_earlier.swap(true, Ordering::Relaxed) {
            account::remove_earlier(&self.dir);
        }
        self.close();
        self.fresh.release(FRESH_FOR);
        self.segments.look();
        let held_bytes = self.held_bytes();
        if held_bytes <= max_bytes {
            return 0;
        }
        self.make_room(held_bytes - (max_bytes - max_bytes / TRIM_PART), true)
    }

    /// Deletes the least recently used data until about `wanted_bytes` are freed; returns how many
    /// were. For a full disk: nothing is written.
    pub fn free(&self, wanted_bytes: u64) -> u64 {
        self.make_room(wanted_bytes, false)
    }

    fn make_room(&self, wanted_bytes: u64, moves: bool) -> u64 {
        evict::make_room(&self.dir, &self.segments, &self.writer, wanted_bytes, moves)
    }

    /// A batch that cannot be written stays in memory while there is room. So does a batch with
    /// little that the disk should have.
    fn write(&self, batch: Batch) {
        self.fresh.hold_after(batch, |batch| {
            let mut records = batch.take_records();
            if !batch.is_for_disk() {
                return false;
            }
            for record in records.iter_mut().filter(|record| record.sums.is_empty()) {
                let chunk = &batch.bytes()[record.offset as usize..][..record.raw_len as usize];
                record.sums = BlockSums::of(chunk);
            }
            let (segments, bytes) = (&self.segments, batch.bytes());
            let written = self.writer.append(segments, Kind::Once, bytes, records);
            written.is_ok()
        });
    }

    fn lock_small(&self) -> MutexGuard<'_, Memory> {
        self.small.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ChunkCache {
    /// Waits for no other thread: in a process that was forked there may be none.
    fn drop(&mut self) {
        self.write_begun();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> Hash {
        let mut hash = [7; 32];
        hash[..8].copy_from_slice(&number.to_le_bytes());
        hash
    }

    /// Fills segments of 256 KiB, each with four chunks.
    fn fill(dir: &Path, numbers: impl Iterator<Item = u64>) {
        let cache = ChunkCache::open(dir, 0);
        cache.trim(1 << 20); // says how long segments are
        for number in numbers {
            cache.insert(&hash(number), &vec![number as u8; 65_536]);
            if number % 4 == 3 {
                cache.flush();
            }
        }
    }

    fn left(cache: &ChunkCache, numbers: impl Iterator<Item = u64>) -> Vec<u64> {
        numbers
            .filter(|number| {
                let mut buffer = vec![0; 65_536];
                let is_here = cache.read_into(&hash(*number), 65_536, 0, &mut buffer);
                assert!(!is_here || buffer == vec![*number as u8; 65_536]);
                is_here
            })
            .collect()
    }

    #[test]
    fn what_was_read_again_outlives_a_scan() {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path(), 0..8);
        let cache = ChunkCache::with(dir.path(), 0, Duration::ZERO);
        for number in [1, 6] {
            assert!(cache.keep(&hash(number), 65_536));
        }
        assert!(!cache.keep(&hash(1), 65_535) && !cache.keep(&hash(99), 65_536));
        // Read ten times the limit once, and trim now and then, as mounts do.
        for at in (100..260).step_by(8) {
            fill(dir.path(), at..at + 8);
            cache.trim(1 << 20);
            assert!(cache.held_bytes() <= 1 << 20);
        }
        assert_eq!(left(&cache, 0..8), [1, 6]);
        let newest = left(&cache, 100..260);
        assert!(newest.contains(&259) && !newest.contains(&100));
    }

    #[test]
    fn if_everything_was_read_again_room_is_made_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        for at in (0..80).step_by(8) {
            fill(dir.path(), at..at + 8);
            let cache = ChunkCache::with(dir.path(), 0, Duration::ZERO);
            for number in 0..80 {
                cache.keep(&hash(number), 65_536);
            }
            cache.trim(1 << 20);
            assert!(cache.held_bytes() <= 1 << 20);
        }
    }

    #[test]
    fn what_is_read_soon_after_it_came_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path(), 0..8);
        let cache = ChunkCache::open(dir.path(), 0);
        for number in 0..8 {
            assert!(cache.keep(&hash(number), 65_536));
        }
        assert_eq!(left(&cache, 0..8).len(), 8);
        cache.trim(1 << 17);
        assert!(left(&cache, 0..8).is_empty());
    }

    #[test]
    fn what_comes_from_near_goes_to_the_disk_when_it_comes_again() {
        let dir = tempfile::tempdir().unwrap();
        let memory_bytes = 4 << 20;
        let come = |numbers: std::ops::Range<u64>| {
            let cache = ChunkCache::open(dir.path(), memory_bytes);
            for number in numbers {
                cache.insert_from_near(&hash(number), &vec![number as u8; 65_536]);
                assert!(cache.contains(&hash(number), 65_536)); // a caller that waits for it gets it
            }
            cache.close();
        };
        let on_disk = || left(&ChunkCache::open(dir.path(), 0), 0..500).len();

        come(0..200);
        assert_eq!(on_disk(), 0);
        come(0..100);
        assert!((90..=110).contains(&on_disk()));
        come(0..100); // they are there
        come(300..500);
        assert!((90..=110).contains(&on_disk()));
    }

    #[test]
    fn what_comes_for_the_first_time_among_what_comes_again_is_written_whole() {
        let dir = tempfile::tempdir().unwrap();
        let data = |number: u64| vec![number as u8; 70_000];
        let come = |numbers: &[u64]| {
            let cache = ChunkCache::open(dir.path(), 4 << 20);
            for &number in numbers {
                cache.insert_from_near(&hash(number), &data(number));
            }
            cache.close();
        };
        come(&[1, 2, 3]);
        come(&[1, 7, 2, 8, 3]);
        let cache = ChunkCache::open(dir.path(), 0);
        for number in [1, 7, 2, 8, 3] {
            let found = cache.get(&hash(number), 70_000);
            assert_eq!(found.as_deref(), Some(&data(number)[..]));
        }
    }

    #[test]
    fn who_has_no_memory_finds_what_came_twice() {
        let dir = tempfile::tempdir().unwrap();
        let cache = ChunkCache::open(dir.path(), 0);
        let data = vec![3; 65_536];
        for _ in 0..2 {
            cache.insert_from_near(&hash(1), &data);
            cache.flush();
        }
        assert_eq!(cache.get(&hash(1), 65_536).as_deref(), Some(&data[..]));
    }
}
