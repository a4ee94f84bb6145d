//! The chunks that came recently, whether or not they were kept.
//!
//! ```text
//! <dir>/seen     2^18 marks of 4 bytes: a part of the hash of the chunk that came last for this place
//! ```
//!
//! All processes share the file, without a lock. It is a hint: a mark that is lost, torn or damaged
//! makes a chunk seem new, or, once in 2^32, known. It may be deleted at any time.
//!
//! Other users may be allowed to write to the directory (`cowfs/base/private_directories.py`), so a
//! file is used only if it is a regular file of this user or root that has no other name.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::OFlags;

use crate::Hash;

const FILE: &str = "seen";
const MARKS: u64 = 1 << 18;
const MARK_BYTES: usize = 4;

pub struct Seen {
    path: PathBuf,
    file: OnceLock<Option<File>>,
}

impl Seen {
    pub fn new(dir: &Path) -> Seen {
        Seen {
            path: dir.join(FILE),
            file: OnceLock::new(),
        }
    }

    /// Whether the chunk came before; notes it. If the disk refuses the file, no chunk ever came
    /// before.
    pub fn note(&self, hash: &Hash) -> bool {
        let file = self.file.get_or_init(|| open(&self.path).ok());
        let Some(file) = file else {
            return false;
        };
        let (place, mark) = place_and_mark(hash);
        let mut found = [0; MARK_BYTES];
        if file.read_exact_at(&mut found, place).is_ok() && found == mark {
            return true;
        }
        drop(file.write_all_at(&mark, place));
        false
    }

    /// The file's size.
    pub fn held_bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |found| found.len())
    }
}

/// The place of the chunk's mark, and its value; zeros mean that the place is empty.
fn place_and_mark(hash: &Hash) -> (u64, [u8; MARK_BYTES]) {
    let number =
        |at: usize| u32::from_le_bytes([hash[at], hash[at + 1], hash[at + 2], hash[at + 3]]);
    let place = u64::from(number(0)) % MARKS * MARK_BYTES as u64;
    (place, number(4).max(1).to_le_bytes())
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
    let file = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let dir = path.parent().ok_or(ErrorKind::NotFound)?;
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            options.open(path)
        }
        outcome => outcome,
    }?;
    let found = file.metadata()?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw() || found.uid() == 0;
    if found.is_file() && found.nlink() == 1 && is_own {
        return Ok(file);
    }
    Err(ErrorKind::PermissionDenied.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_is_known_to_all_even_if_some_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let hash = |number: u32| *blake3::hash(&number.to_le_bytes()).as_bytes();
        let one = Seen::new(&dir.path().join("cache"));
        assert!((0..1000).all(|number| !one.note(&hash(number))));
        let other = Seen::new(&dir.path().join("cache"));
        let known = (0..1000).filter(|number| other.note(&hash(*number)));
        assert!(known.count() > 970); // a few have the same place
        assert!((1000..1100).all(|number| !other.note(&hash(number))));
        assert!(other.held_bytes() <= MARKS * MARK_BYTES as u64);

        std::fs::write(dir.path().join("cache/seen"), b"cut").unwrap();
        assert!(!one.note(&hash(1)) && one.note(&hash(1)));
    }

    #[test]
    fn what_others_have_put_in_its_place_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let (path, canary) = (dir.path().join(FILE), dir.path().join("canary"));
        std::fs::write(&canary, b"mine").unwrap();
        let is_left = || {
            let seen = Seen::new(dir.path());
            let is_known = (0..2).any(|_| seen.note(&[7; 32]));
            std::fs::remove_file(&path).unwrap();
            !is_known && std::fs::read(&canary).unwrap() == b"mine"
        };
        std::os::unix::fs::symlink(&canary, &path).unwrap();
        assert!(is_left());
        std::fs::hard_link(&canary, &path).unwrap();
        assert!(is_left());
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &path, fifo, 0o600.into(), 0).unwrap();
        assert!(is_left());
        assert!(!Seen::new(dir.path()).note(&[7; 32]) && Seen::new(dir.path()).note(&[7; 32]));
    }

    #[test]
    fn a_disk_that_refuses_it_has_seen_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), b"").unwrap();
        let seen = Seen::new(&dir.path().join("file"));
        assert!(!seen.note(&[7; 32]) && !seen.note(&[7; 32]));
    }
}
