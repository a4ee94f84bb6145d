//! Whole files: the decoded bytes of a file's chunks put together once, so that the kernel can read
//! them without asking.
//!
//! ```text
//! <dir>/whole/<2 hex>/<64 hex>.<16 hex>     the file's bytes and nothing else; the name is the BLAKE3 of the list of its
//!                                           parts, and the sum of its bytes
//! ```
//!
//! Such a file is assembled from checked reads, synced, and renamed into place, so neither a crash
//! nor a failing disk leaves an incomplete one. Before a process uses a file for the first time, it
//! reads the file and compares its sum; a damaged file is deleted and assembled anew. Afterwards
//! only the length is checked: a mapped file is read like any local file. It counts against the
//! cache's limit and is trimmed with the segments. A process that has it open keeps its bytes.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{MutexGuard, PoisonError};
use std::time::SystemTime;

use rustix::fs::OFlags;

use crate::blocks::BlockSums;
use crate::{ChunkCache, Hash};

/// Whole blocks of `BlockSums`.
const PIECE_BYTES: u64 = 1 << 20;
pub(crate) const DIRECTORY: &str = "whole";

/// One range of a file, and the chunk with its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its place in the file.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// The chunk's hash.
    pub hash: Hash,
    /// The chunk's length.
    pub raw_len: u64,
    /// Where the range begins in the chunk.
    pub skip: u64,
}

/// The content of a file; ranges that no part covers are zeros.
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

/// A file that this process has assembled or checked.
pub(crate) struct Checked {
    sum: Sum,
    inode: u64,
}

type Sum = [u8; 8];

impl ChunkCache {
    /// The file, if it has been assembled, and checked by this process.
    pub fn whole(&self, whole: &Whole) -> Option<File> {
        let (sum, inode) = {
            let known = self.lock_checked();
            let checked = known.get(&whole.name)?;
            (checked.sum, checked.inode)
        };
        let file = File::open(self.whole_path(whole, sum)).ok();
        let file = file.filter(|file| {
            let found = file.metadata();
            found.is_ok_and(|found| found.len() == whole.size && found.ino() == inode)
        });
        match &file {
            Some(file) => drop(file.set_modified(SystemTime::now())),
            None => drop(self.lock_checked().remove(&whole.name)),
        }
        file
    }

    /// Whether it seems to have been assembled, and `assemble` would check it first.
    pub fn is_unchecked(&self, whole: &Whole) -> bool {
        !self.lock_checked().contains_key(&whole.name) && !self.assembled(whole).is_empty()
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
    /// It is not begun unless all seem to be here. A file that is there is read once, and stays if
    /// it is undamaged.
    pub fn assemble(&self, whole: &Whole) -> bool {
        let is_here = |part: &Part| self.contains(&part.hash, part.raw_len);
        if self.whole(whole).is_some() || self.check(whole) {
            return true;
        }
        if !whole.parts.iter().all(is_here) {
            return false;
        }
        let temporary = temporary_in(&self.whole_directory(whole));
        let outcome = self.assemble_as(&temporary, whole).and_then(|checked| {
            fs::rename(&temporary, self.whole_path(whole, checked.sum))?;
            Ok(checked)
        });
        match outcome {
            Ok(checked) => {
                self.grown_bytes.fetch_add(whole.size, Ordering::Relaxed);
                self.lock_checked().insert(whole.name, checked);
            }
            Err(_) => {
                let _ = fs::remove_file(&temporary);
                return false;
            }
        }
        true
    }

    /// Whether the file is there undamaged; damaged ones are deleted.
    fn check(&self, whole: &Whole) -> bool {
        for (path, sum) in self.assembled(whole) {
            let mut options = OpenOptions::new();
            options
                .read(true)
                .custom_flags(OFlags::NONBLOCK.bits() as i32);
            let Ok(file) = options.open(&path) else {
                continue;
            };
            let found = sum_of(&file).and_then(|found| Ok((found, file.metadata()?)));
            match found {
                Ok((found, state)) if found == sum && state.len() == whole.size => {
                    let inode = state.ino();
                    let mut known = self.lock_checked();
                    known.insert(whole.name, Checked { sum, inode });
                    return true;
                }
                _ => drop(fs::remove_file(&path)),
            }
        }
        false
    }

    fn assemble_as(&self, path: &Path, whole: &Whole) -> io::Result<Checked> {
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
        let sum = sum_of(&file)?;
        file.sync_data()?;
        let inode = file.metadata()?.ino();
        Ok(Checked { sum, inode })
    }

    /// The assembled files for it, usually one, with the sum that each should have.
    fn assembled(&self, whole: &Whole) -> Vec<(PathBuf, Sum)> {
        let name = hex(&whole.name);
        let entries = fs::read_dir(self.whole_directory(whole));
        let sum_in = |found: &str| {
            let sum = found.strip_prefix(&name)?.strip_prefix('.')?;
            let sum = u64::from_str_radix(sum, 16).ok()?.to_be_bytes();
            (found == format!("{name}.{}", hex(&sum))).then_some(sum)
        };
        let found = entries.into_iter().flatten().flatten().filter_map(|entry| {
            let sum = sum_in(entry.file_name().to_str()?)?;
            Some((entry.path(), sum))
        });
        found.collect()
    }

    fn whole_path(&self, whole: &Whole, sum: Sum) -> PathBuf {
        let name = format!("{}.{}", hex(&whole.name), hex(&sum));
        self.whole_directory(whole).join(name)
    }

    fn whole_directory(&self, whole: &Whole) -> PathBuf {
        self.dir.join(DIRECTORY).join(hex(&whole.name[..1]))
    }

    fn lock_checked(&self) -> MutexGuard<'_, HashMap<Hash, Checked>> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sum of a file's blocks.
fn sum_of(file: &File) -> io::Result<Sum> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; PIECE_BYTES as usize];
    let mut offset = 0;
    loop {
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        hasher.update(&BlockSums::of(&buffer[..filled]).to_bytes());
        offset += filled as u64;
        if filled < buffer.len() {
            break;
        }
    }
    let mut sum = [0; 8];
    sum.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    Ok(sum)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether this is the name of a whole file, in the current or an earlier format.
pub(crate) fn is_name(name: &str) -> bool {
    let (hash, sum) = name.split_once('.').unwrap_or((name, "0123456789abcdef"));
    let is_hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    hash.len() == 64 && sum.len() == 16 && is_hex(hash) && is_hex(sum)
}

fn temporary_in(directory: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    directory.join(format!(".{}.{number}.new", std::process::id()))
}

/// A new file, its directory made if need be.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
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
