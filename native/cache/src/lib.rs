//! Decoded chunks, content-addressed, in memory and on disk, shared by all processes of a user.
//!
//! ```text
//! <dir>/<2 hex>/<64 hex>     the chunk's bytes, then crc32c of them (4 bytes, little-endian), then "cwc1"
//! <dir>/whole/…              files put together from chunks, for the kernel to read by itself (whole.rs)
//! ```
//!
//! Guarantees
//! - What is returned is what was inserted: a file is believed when its length is the expected one, and either this process
//!   wrote it, or its checksum is verified when this process first opens it. A damaged file is a miss and is deleted or replaced. (Against chance, not malice: the
//!   directory is the user's own. The chunk's hash was verified by whoever inserted it.)
//! - Files appear whole (temporary name, rename) and are never changed, so processes share them without locks. Nothing is
//!   fsynced: what a power loss tears fails its length or checksum.
//! - The directory may be deleted or trimmed at any time by anybody; a failing or unwritable disk makes misses, never errors.
//!
//! Memory holds whole chunks that are small, were asked for whole, or could not be written; of the others `read_into` keeps the
//! verified file open and reads ranges, which the kernel caches. A quarter of the process's descriptors may be spent on that,
//! 4,096 at most; which files have been verified is remembered beyond it, so that random reads of many chunks do not check
//! half a MiB for each 4 KiB. Ranges are read, not mapped: a mapped file that fails or shrinks would end the process. Use is noted in a file's modification time,
//! at most once a minute, so that `trim` of any process can tell what is old.
//!
//! No lock is held across file I/O. Not here: fetching, decoding, and deciding how much the disk may hold.

mod disk;
mod memory;
mod verified;
mod whole;

use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;

use disk::{ChunkFile, Disk};
use memory::Memory;
use verified::Verified;

pub use whole::{Part, Whole};

/// Chunks up to this length are held whole rather than as an open file.
const SMALL_BYTES: u64 = 64 << 10;
const OPEN_FILES_MAX: usize = 4096;
const TOUCH_EVERY: Duration = Duration::from_secs(60);

type Hash = [u8; 32];

/// A cache of decoded chunks. Every method may be called from any thread; a failing disk makes misses, not errors.
pub struct ChunkCache {
    disk: Disk,
    memory: Mutex<Memory>,
    open: Mutex<LruCache<Hash, OpenChunk>>,
    verified: Mutex<Verified>,
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
            verified: Mutex::default(),
        }
    }

    /// The whole chunk, if it is here undamaged with this length.
    pub fn get(&self, hash: &Hash, raw_len: u64) -> Option<Arc<[u8]>> {
        if let Some(data) = self.remembered(hash, raw_len) {
            return Some(data);
        }
        let (_, data) = self.disk.load(hash, raw_len)?;
        let data: Arc<[u8]> = data.into();
        self.lock_memory().insert(hash, data.clone());
        Some(data)
    }

    /// Fills `buffer` with the chunk's bytes from `skip` on; false (buffer undefined) when the chunk is not here or ends before.
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
        if let Some(file) = self.opened(hash, raw_len) {
            return file.file.read_exact_at(buffer, skip).is_ok();
        }
        if let Some(file) = self.reopened(hash, raw_len) {
            return file.file.read_exact_at(buffer, skip).is_ok();
        }
        let Some((file, data)) = self.disk.load(hash, raw_len) else {
            return false;
        };
        buffer.copy_from_slice(&data[skip as usize..][..buffer.len()]);
        if raw_len <= SMALL_BYTES {
            self.lock_memory().insert(hash, data.into());
        } else {
            self.lock_verified().insert(hash, file.inode);
            self.keep_open(hash, Arc::new(file));
        }
        true
    }

    /// Whether the chunk seems to be here; its bytes are not looked at, so a later `get` may still find it damaged.
    pub fn contains(&self, hash: &Hash, raw_len: u64) -> bool {
        self.lock_memory().contains(hash, raw_len) || self.disk.contains(hash, raw_len)
    }

    /// Keeps a chunk whose hash the caller has verified.
    pub fn insert(&self, hash: &Hash, data: &[u8]) {
        let inode = self.disk.store(hash, data);
        if let Some(inode) = inode {
            self.lock_verified().insert(hash, inode);
        }
        if inode.is_none() || data.len() as u64 <= SMALL_BYTES {
            self.lock_memory().insert(hash, data.into());
        }
    }

    /// Deletes the least recently used files until the directory holds at most `max_bytes`; returns the bytes freed.
    ///
    /// Reads every name and time of the directory (0.1 s in 100,000 files). Memory keeps what it has.
    pub fn trim(&self, max_bytes: u64) -> u64 {
        self.trim_excess(|held_bytes| held_bytes.saturating_sub(max_bytes))
    }

    /// Deletes the least recently used files until about `wanted_bytes` are freed; returns how many were. Costs as `trim`.
    pub fn free(&self, wanted_bytes: u64) -> u64 {
        self.trim_excess(|_| wanted_bytes)
    }

    fn trim_excess(&self, excess: impl FnOnce(u64) -> u64) -> u64 {
        self.disk.trim(excess, |hash| {
            self.lock_open().pop(hash);
        })
    }

    fn remembered(&self, hash: &Hash, raw_len: u64) -> Option<Arc<[u8]>> {
        let (data, is_due) = self.lock_memory().get(hash, raw_len, TOUCH_EVERY)?;
        if is_due {
            self.disk.touch(hash);
        }
        Some(data)
    }

    fn opened(&self, hash: &Hash, raw_len: u64) -> Option<Arc<ChunkFile>> {
        let (file, is_due) = {
            let mut open = self.lock_open();
            let chunk = open
                .get_mut(hash)
                .filter(|chunk| chunk.file.raw_len == raw_len)?;
            let is_due = chunk.touched.elapsed() >= TOUCH_EVERY;
            if is_due {
                chunk.touched = Instant::now();
            }
            (chunk.file.clone(), is_due)
        };
        if is_due {
            file.touch();
        }
        Some(file)
    }

    /// The file of a chunk that was verified, and closed since.
    fn reopened(&self, hash: &Hash, raw_len: u64) -> Option<Arc<ChunkFile>> {
        let inode = self.lock_verified().inode(hash)?;
        let file = self.disk.open(hash, raw_len)?;
        if file.inode != inode {
            return None;
        }
        let file = Arc::new(file);
        self.keep_open(hash, file.clone());
        Some(file)
    }

    fn keep_open(&self, hash: &Hash, file: Arc<ChunkFile>) {
        let opened = OpenChunk {
            file,
            touched: Instant::now(),
        };
        // Closed after the lock has been let go of.
        let _closed = self.lock_open().push(*hash, opened);
    }

    fn lock_verified(&self) -> MutexGuard<'_, Verified> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
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

    use super::*;

    #[test]
    fn what_was_verified_once_is_not_checked_again_when_its_file_was_closed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (hash, data) = ([7; 32], vec![1; 200_000]);
        ChunkCache::open(dir.path(), 0).insert(&hash, &data);
        let cache = ChunkCache::open(dir.path(), 0);
        let read = || {
            cache.lock_open().clear();
            let mut part = [0; 10];
            cache.read_into(&hash, 200_000, 50, &mut part) && part == [1; 10]
        };
        assert!(read());
        let file = cache.disk.path(&hash);
        let mut damaged = fs::read(&file).expect("the chunk's file");
        damaged[100_000] ^= 1;
        fs::write(&file, &damaged).expect("written in place");
        assert!(read(), "the same file is checked again");
        fs::write(file.with_extension("copy"), &damaged).expect("written");
        fs::rename(file.with_extension("copy"), &file).expect("renamed");
        assert!(!read(), "another file is believed");
    }
}
