//! Decoded chunks, content-addressed, in memory and on disk, shared by all processes of a user.
//!
//! ```text
//! <dir>/<2 hex>/<64 hex>     the chunk's bytes, crc32c of each block of 4 KiB of them (4 bytes, little-endian, each), crc32c of
//!                            these sums, "cwc2"
//! <dir>/whole/…              files put together from chunks, for the kernel to read by itself (whole.rs)
//! <dir>/blocks/…             blocks of indexes (cowfs/index/cache.py); only counted and trimmed here, in one account (account.rs)
//! ```
//!
//! Guarantees
//! - What is returned is what was inserted: each read is checked, whoever wrote the file and
//!   whenever (`blocks.rs`). A damaged file is a miss and is deleted or replaced, and so is one of
//!   an older format, which has another length. (Against chance, not malice: the directory is the
//!   user's own. The chunk's hash was verified by whoever inserted it.)
//! - Files appear whole (temporary name, rename) and are never changed, so processes share them
//!   without locks. Nothing is fsynced: what a power loss or a failing disk takes fails its length
//!   or checksum.
//! - The directory may be deleted or trimmed at any time by anybody; a failing or unwritable disk
//!   makes misses, never errors.
//!
//! Memory holds whole chunks that are small, were asked for whole, or could not be written; of the
//! others `read_into` keeps the file open and reads ranges, which the kernel caches. A quarter of
//! the process's descriptors may be spent on that, 4,096 at most. Ranges are read, not mapped: a
//! mapped file that fails or shrinks would end the process. Use is noted in a file's modification
//! time, at most once a minute, so that `trim` of any process can tell what is old.
//!
//! No lock is held across file I/O, except that of the account, which only `trim` takes. Not here:
//! fetching, decoding, and deciding how much the disk may hold.

mod account;
mod blocks;
mod disk;
mod memory;
mod whole;

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;

use disk::{ChunkFile, Disk};
use memory::Memory;

pub use whole::{Part, Whole};

/// Chunks up to this length are held whole rather than as an open file.
const SMALL_BYTES: u64 = 64 << 10;
const OPEN_FILES_MAX: usize = 4096;
const TOUCH_EVERY: Duration = Duration::from_secs(60);

type Hash = [u8; 32];

/// A cache of decoded chunks. Every method may be called from any thread; a failing disk makes
/// misses, not errors.
pub struct ChunkCache {
    disk: Disk,
    memory: Mutex<Memory>,
    open: Mutex<LruCache<Hash, OpenChunk>>,
}

#[derive(Clone)]
struct OpenChunk {
    file: Arc<ChunkFile>,
    touched: Instant,
}

impl ChunkCache {
    /// `dir` is made when the first chunk is stored; if that fails, chunks live in memory only.
    pub fn open(dir: &Path, memory_bytes: u64) -> ChunkCache {
        ChunkCache {
            disk: Disk::new(dir),
            memory: Mutex::new(Memory::new(memory_bytes)),
            open: Mutex::new(LruCache::new(open_files())),
        }
    }

    /// The whole chunk, if it is here undamaged with this length.
    pub fn get(&self, hash: &Hash, raw_len: u64) -> Option<Arc<[u8]>> {
        if let Some(data) = self.remembered(hash, raw_len) {
            return Some(data);
        }
        let data = self.disk.load(hash, raw_len)?;
        let data: Arc<[u8]> = data.into();
        self.lock_memory().insert(hash, data.clone());
        Some(data)
    }

    /// Fills `buffer` with the chunk's bytes from `skip` on; false (buffer undefined) when the
    /// chunk is not here or ends before.
    pub fn read_into(&self, hash: &Hash, raw_len: u64, skip: u64, buffer: &mut [u8]) -> bool {
        if skip
            .checked_add(buffer.len() as u64)
            .is_none_or(|end| end > raw_len)
        {
            return false;
        }
        if let Some(data) = self.remembered(hash, raw_len) {
            buffer.copy_from_slice(&data[skip as usize..][..buffer.len()]);
            return true;
        }
        if raw_len <= SMALL_BYTES {
            let Some(data) = self.disk.load(hash, raw_len) else {
                return false;
            };
            buffer.copy_from_slice(&data[skip as usize..][..buffer.len()]);
            self.lock_memory().insert(hash, data.into());
            return true;
        }
        let Some(file) = self.opened(hash, raw_len) else {
            return false;
        };
        let is_read = file.read_into(skip, buffer);
        if !is_read {
            self.lock_open().pop(hash);
            self.disk.remove(hash);
        }
        is_read
    }

    /// Whether the chunk seems to be here; its bytes are not looked at, so a later `get` may still
    /// find it damaged.
    pub fn contains(&self, hash: &Hash, raw_len: u64) -> bool {
        self.lock_memory().contains(hash, raw_len) || self.disk.contains(hash, raw_len)
    }

    /// Whether the chunk's file seems to be here, which then counts as used now: it is among the last
    /// that `trim` deletes.
    pub fn keep(&self, hash: &Hash, raw_len: u64) -> bool {
        self.disk.keep(hash, raw_len)
    }

    /// What the directory holds, blocks of indexes and whole files among it. Costs what `trim` does.
    pub fn held_bytes(&self) -> u64 {
        self.disk.held_bytes()
    }

    /// Keeps a chunk whose hash the caller has verified.
    pub fn insert(&self, hash: &Hash, data: &[u8]) {
        let is_stored = self.disk.store(hash, data);
        if !is_stored || data.len() as u64 <= SMALL_BYTES {
            self.lock_memory().insert(hash, data.into());
        }
    }

    /// Deletes the least recently used files, blocks of indexes among them, until the directory
    /// holds at most `max_bytes`; returns the bytes freed. Memory keeps what it has.
    ///
    /// As long as nothing is too much, it reads the times of 768 directories and lists those that
    /// changed. Otherwise it reads every name and time (0.1 s in 100,000 files), and frees a
    /// sixteenth of `max_bytes` beyond.
    pub fn trim(&self, max_bytes: u64) -> u64 {
        self.disk.trim(max_bytes, |hash| self.close(hash))
    }

    /// Deletes the least recently used files until about `wanted_bytes` are freed; returns how many
    /// were. Reads every name and time.
    pub fn free(&self, wanted_bytes: u64) -> u64 {
        self.disk.free(wanted_bytes, |hash| self.close(hash))
    }

    fn close(&self, hash: &Hash) {
        self.lock_open().pop(hash);
    }

    fn remembered(&self, hash: &Hash, raw_len: u64) -> Option<Arc<[u8]>> {
        let (data, is_due) = self.lock_memory().get(hash, raw_len, TOUCH_EVERY)?;
        if is_due {
            self.disk.touch(hash);
        }
        Some(data)
    }

    /// The chunk's file, from now on kept open.
    fn opened(&self, hash: &Hash, raw_len: u64) -> Option<Arc<ChunkFile>> {
        if let Some((file, is_due)) = self.kept_open(hash, raw_len) {
            if is_due {
                file.touch();
            }
            return Some(file);
        }
        let file = Arc::new(self.disk.open(hash, raw_len)?);
        let opened = OpenChunk {
            file: file.clone(),
            touched: Instant::now(),
        };
        // Closed after the lock has been let go of.
        let _closed = self.lock_open().push(*hash, opened);
        Some(file)
    }

    /// With it, whether its use is to be noted.
    fn kept_open(&self, hash: &Hash, raw_len: u64) -> Option<(Arc<ChunkFile>, bool)> {
        let mut open = self.lock_open();
        let chunk = open
            .get_mut(hash)
            .filter(|chunk| chunk.file.raw_len == raw_len)?;
        let is_due = chunk.touched.elapsed() >= TOUCH_EVERY;
        if is_due {
            chunk.touched = Instant::now();
        }
        Some((chunk.file.clone(), is_due))
    }

    fn lock_memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_open(&self) -> MutexGuard<'_, LruCache<Hash, OpenChunk>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many chunk files may stay open: a quarter of what the process may have.
fn open_files() -> NonZeroUsize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let quarter = limit.map_or(usize::MAX, |limit| (limit / 4) as usize);
    NonZeroUsize::new(quarter.min(OPEN_FILES_MAX)).unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_file_that_lost_bytes_is_a_miss_whoever_wrote_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let (hash, data) = ([7; 32], vec![1; 200_000]);
        let cache = ChunkCache::open(dir.path(), 0);
        cache.insert(&hash, &data);
        let read = |skip: u64| {
            let mut part = [0; 10];
            let is_read = cache.read_into(&hash, 200_000, skip, &mut part);
            assert!(!is_read || part == [1; 10], "bytes that were lost");
            is_read
        };
        assert!(read(50) && read(100_000) && read(199_990));
        // In place, as a page that is read again from a disk that never got it.
        let file = cache.disk.path(&hash);
        let lost = fs::File::options().write(true).open(&file);
        lost.expect("the file")
            .write_all_at(&[0; 4096], 98_304)
            .expect("written");
        assert!(read(50), "another block is as good as before");
        assert!(!read(100_000));
        assert!(!file.exists() && !read(50), "it is fetched again");
        cache.insert(&hash, &data);
        assert!(read(100_000));
    }

    #[test]
    fn what_is_kept_outlasts_what_was_stored_after_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = ChunkCache::open(dir.path(), 0);
        for (number, age_s) in [(1, 300), (2, 200)] {
            cache.insert(&[number; 32], &[number; 1000]);
            let file = fs::File::open(cache.disk.path(&[number; 32])).expect("the file");
            let before = std::time::SystemTime::now() - Duration::from_secs(age_s);
            file.set_modified(before).expect("its time");
        }
        assert!(cache.keep(&[1; 32], 1000));
        assert!(!cache.keep(&[1; 32], 999) && !cache.keep(&[3; 32], 1000));
        let held_bytes = cache.held_bytes();
        assert!(held_bytes > 2000);
        assert_eq!(cache.free(1), held_bytes / 2);
        assert!(cache.contains(&[1; 32], 1000) && !cache.contains(&[2; 32], 1000));
    }
}
