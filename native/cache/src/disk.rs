//! Chunks as files: storing, verifying, and deleting the oldest. Formats and promises: lib.rs.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::account::{self, Account};
use crate::blocks::{BLOCK_BYTES, BlockSums};
use crate::{Hash, TOUCH_EVERY};

const MAGIC: &[u8; 4] = b"cwc2";
/// This part of the limit is freed beyond what is too much.
const TRIM_PART: u64 = 16;

pub struct Disk {
    dir: PathBuf,
    temporaries: AtomicU64,
    /// Of all that `dir` holds.
    account: Mutex<Account>,
}

/// The open file of a chunk. Every read of it is checked.
pub struct ChunkFile {
    file: File,
    pub raw_len: u64,
    sums: BlockSums,
}

impl ChunkFile {
    /// Fills `buffer` from `skip` on, which must lie in the chunk; false when the bytes are not
    /// what was stored.
    pub fn read_into(&self, skip: u64, buffer: &mut [u8]) -> bool {
        self.sums.read(&self.file, self.raw_len, skip, buffer)
    }

    /// Notes that the chunk is in use. Failing costs nothing but its place in the queue.
    pub fn touch(&self) {
        let _ = self.file.set_modified(SystemTime::now());
    }
}

impl Disk {
    pub fn new(dir: &Path) -> Disk {
        Disk {
            dir: dir.to_path_buf(),
            temporaries: AtomicU64::new(0),
            account: Mutex::default(),
        }
    }

    pub fn contains(&self, hash: &Hash, raw_len: u64) -> bool {
        fs::metadata(self.path(hash))
            .is_ok_and(|found| found.is_file() && Some(found.len()) == file_bytes(raw_len))
    }

    /// As `contains`, and what is here counts as used now.
    pub fn keep(&self, hash: &Hash, raw_len: u64) -> bool {
        let Ok(found) = fs::metadata(self.path(hash)) else {
            return false;
        };
        if !found.is_file() || Some(found.len()) != file_bytes(raw_len) {
            return false;
        }
        let age = found.modified().ok().and_then(|used| used.elapsed().ok());
        if age.is_none_or(|age| age >= TOUCH_EVERY) {
            self.touch(hash);
        }
        true
    }

    /// What all files take together.
    pub fn held_bytes(&self) -> u64 {
        self.account().held_bytes(&self.dir)
    }

    /// The chunk's bytes. A damaged file is deleted; one of another length is a miss (`store`
    /// replaces it): perhaps it is the caller who is wrong.
    pub fn load(&self, hash: &Hash, raw_len: u64) -> Option<Vec<u8>> {
        let chunk = self.open(hash, raw_len)?;
        let mut data = vec![0; usize::try_from(raw_len).ok()?];
        if !chunk.read_into(0, &mut data) {
            self.remove(hash);
            return None;
        }
        Some(data)
    }

    /// The chunk's file.
    pub fn open(&self, hash: &Hash, raw_len: u64) -> Option<ChunkFile> {
        let file = File::open(self.path(hash)).ok()?;
        let found = file.metadata().ok()?;
        if !found.is_file() || Some(found.len()) != file_bytes(raw_len) {
            return None;
        }
        let Some(sums) = read_sums(&file, raw_len) else {
            self.remove(hash);
            return None;
        };
        let chunk = ChunkFile {
            file,
            raw_len,
            sums,
        };
        if found
            .modified()
            .ok()
            .and_then(|at| at.elapsed().ok())
            .is_none_or(|age| age >= TOUCH_EVERY)
        {
            chunk.touch();
        }
        Some(chunk)
    }

    /// Deletes a damaged file.
    pub fn remove(&self, hash: &Hash) {
        let _ = fs::remove_file(self.path(hash));
    }

    /// Stores the chunk unless a file of its length is there; whether one is now. Failures are kept
    /// quiet: this is a cache.
    pub fn store(&self, hash: &Hash, data: &[u8]) -> bool {
        if self.contains(hash, data.len() as u64) {
            return false;
        }
        let path = self.path(hash);
        let temporary = self.temporary_beside(&path);
        let stored = write_new(&temporary, data).and_then(|()| fs::rename(&temporary, &path));
        if stored.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        stored.is_ok()
    }

    pub fn touch(&self, hash: &Hash) {
        if let Ok(file) = File::open(self.path(hash)) {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Deletes the oldest until at most `max_bytes` are held, and a little more, so that the next
    /// file does not ask for it again; `deleted` hears of each chunk. Looks at single files only
    /// where something has changed, or if there is too much.
    pub fn trim(&self, max_bytes: u64, deleted: impl Fn(&Hash)) -> u64 {
        let held_bytes = self.held_bytes();
        if held_bytes <= max_bytes {
            return 0;
        }
        self.free(held_bytes - (max_bytes - max_bytes / TRIM_PART), deleted)
    }

    /// Deletes the oldest until `wanted_bytes` are gone. Other processes may do the same at the
    /// same time: what they delete first counts as gone, not as freed here.
    pub fn free(&self, wanted_bytes: u64, deleted: impl Fn(&Hash)) -> u64 {
        let mut files = account::list_all(&self.dir);
        files.sort_by_key(|file| file.used);
        let (mut left_bytes, mut freed_bytes) = (wanted_bytes, 0);
        for file in &files {
            if left_bytes == 0 {
                break;
            }
            match fs::remove_file(&file.path) {
                Ok(()) => freed_bytes += file.bytes,
                Err(error) if error.kind() == ErrorKind::NotFound => (),
                Err(_) => continue,
            }
            left_bytes = left_bytes.saturating_sub(file.bytes);
            file.chunk.iter().for_each(&deleted);
        }
        freed_bytes
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn path(&self, hash: &Hash) -> PathBuf {
        self.path_in("", hash)
    }

    /// The place of this name in a directory of the same shape below ours.
    pub fn path_in(&self, directory: &str, name: &Hash) -> PathBuf {
        let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        self.dir.join(directory).join(&name[..2]).join(name)
    }

    pub fn temporary_beside(&self, path: &Path) -> PathBuf {
        let number = self.temporaries.fetch_add(1, Ordering::Relaxed);
        path.with_file_name(format!(".{}.{number}.new", std::process::id()))
    }
}

/// Length of a chunk's file.
fn file_bytes(raw_len: u64) -> Option<u64> {
    raw_len.checked_add(trailer_bytes(raw_len))
}

fn trailer_bytes(raw_len: u64) -> u64 {
    4 * raw_len.div_ceil(BLOCK_BYTES) + 8
}

/// None when the file, whose length has been checked, does not end as it should.
fn read_sums(file: &File, raw_len: u64) -> Option<BlockSums> {
    let mut trailer = vec![0; usize::try_from(trailer_bytes(raw_len)).ok()?];
    file.read_exact_at(&mut trailer, raw_len).ok()?;
    let (sums, end) = trailer.split_at(trailer.len() - 8);
    let is_whole = end[..4] == crc32c::crc32c(sums).to_le_bytes() && &end[4..] == MAGIC;
    is_whole.then(|| BlockSums::from_bytes(sums))
}

fn write_new(path: &Path, data: &[u8]) -> io::Result<()> {
    let mut file = create(path)?;
    file.write_all(data)?;
    let mut trailer = BlockSums::of(data).to_bytes();
    trailer.extend(crc32c::crc32c(&trailer).to_le_bytes());
    trailer.extend(MAGIC);
    file.write_all(&trailer)
}

/// A new file, its directory made if need be.
pub fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(path.parent().unwrap_or(path))?;
            options.open(path)
        }
        outcome => outcome,
    }
}
