//! Whole files: the decoded bytes of a file's chunks put together once, so that the kernel can read
//! them without asking.
//!
//! ```text
//! <dir>/whole/<2 hex>/<64 hex>     the file's bytes and nothing else; the name is the BLAKE3 of the list of its parts
//! ```
//!
//! Assembled from checked reads, synced, and renamed into place, so neither a crash nor a disk that
//! fails to write leaves one that is not whole. Afterwards only the length is checked: whoever maps
//! it reads it as any local file. It counts against the cache's limit and is trimmed with the
//! segments; who has it open keeps its bytes.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::{ChunkCache, Hash};

const PIECE_BYTES: u64 = 1 << 20;
pub(crate) const DIRECTORY: &str = "whole";

/// One range of a file, and the chunk its bytes are in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Where in the file.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// The chunk's hash.
    pub hash: Hash,
    /// The chunk's length.
    pub raw_len: u64,
    /// Where in the chunk the range begins.
    pub skip: u64,
}

/// What a file is made of; ranges that no part covers are zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    size: u64,
    parts: Vec<Part>,
    name: Hash,
}

impl Whole {
    /// `parts` in order of their offsets.
    pub fn new(size: u64, parts: Vec<Part>) -> Whole {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&size.to_be_bytes());
        for part in &parts {
            hasher.update(&part.hash);
            for number in [part.offset, part.length, part.skip] {
                hasher.update(&number.to_be_bytes());
            }
        }
        let name = *hasher.finalize().as_bytes();
        Whole { size, parts, name }
    }

    /// Length of the file.
    pub fn size(&self) -> u64 {
        self.size
    }
}

impl ChunkCache {
    /// The file, if it has been assembled.
    pub fn whole(&self, whole: &Whole) -> Option<File> {
        let file = File::open(self.whole_path(whole)).ok()?;
        if file.metadata().ok()?.len() != whole.size {
            return None;
        }
        let _ = file.set_modified(SystemTime::now());
        Some(file)
    }

    /// Whether a few of its chunks are here: a cheap look that spares most files `assemble`.
    pub fn may_assemble(&self, whole: &Whole) -> bool {
        let parts = &whole.parts;
        let some = [parts.last(), parts.get(parts.len() / 2), parts.first()];
        some.into_iter()
            .flatten()
            .all(|part| self.contains(&part.hash, part.raw_len))
    }

    /// Puts the file together from chunks that are here; false when one is not, or the disk fails.
    /// It is not begun unless all seem to be here.
    pub fn assemble(&self, whole: &Whole) -> bool {
        let is_here = |part: &Part| self.contains(&part.hash, part.raw_len);
        if self.whole(whole).is_some() {
            return true;
        }
        if !whole.parts.iter().all(is_here) {
            return false;
        }
        let path = self.whole_path(whole);
        let temporary = temporary_beside(&path);
        let outcome = self
            .assemble_as(&temporary, whole)
            .and_then(|()| fs::rename(&temporary, &path));
        match outcome {
            Ok(()) => _ = self.grown_bytes.fetch_add(whole.size, Ordering::Relaxed),
            Err(_) => _ = fs::remove_file(&temporary),
        }
        outcome.is_ok()
    }

    fn assemble_as(&self, path: &Path, whole: &Whole) -> io::Result<()> {
        let file = create(path)?;
        file.set_len(whole.size)?;
        let mut buffer = vec![0; PIECE_BYTES as usize];
        for part in &whole.parts {
            let mut done = 0;
            while done < part.length {
                let piece = &mut buffer[..(part.length - done).min(PIECE_BYTES) as usize];
                if !self.read_into(&part.hash, part.raw_len, part.skip + done, piece) {
                    return Err(ErrorKind::NotFound.into());
                }
                file.write_all_at(piece, part.offset + done)?;
                done += piece.len() as u64;
            }
        }
        file.sync_data()
    }

    fn whole_path(&self, whole: &Whole) -> PathBuf {
        let name: String = whole
            .name
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        self.dir.join(DIRECTORY).join(&name[..2]).join(name)
    }
}

fn temporary_beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!(".{}.{number}.new", std::process::id()))
}

/// A new file, its directory made if need be.
fn create(path: &Path) -> io::Result<File> {
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
