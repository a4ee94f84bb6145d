//! The size of the files beside the segments, known without looking at every file each time.
//!
//! ```text
//! <dir>/whole/<2 hex>/    files put together from chunks
//! <dir>/blocks/<2 hex>/   blocks of indexes, as cowfs/index/cache.py stores them
//! ```
//!
//! A directory's modification time moves when any process adds or removes a file in it. So a count
//! stays valid until that time moves: looking again costs one status for each of the 512
//! directories, and a listing of the changed ones. A time less than `SETTLED_AFTER` old when the
//! directory was listed proves nothing, since clocks of file systems tick in milliseconds.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::whole;

const SETTLED_AFTER: Duration = Duration::from_secs(2);
/// A temporary file this old has been left by a process that died.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);
const BLOCKS: &str = "blocks";

/// A whole file, or a block.
pub struct Listed {
    pub path: PathBuf,
    pub bytes: u64,
    pub used: SystemTime,
}

/// The counts, by directory.
#[derive(Default)]
pub struct Account {
    known: HashMap<PathBuf, Counted>,
    /// How many directories were listed; rises only.
    pub listings: u64,
}

struct Counted {
    bytes: u64,
    /// None: the directory had changed too shortly before.
    modified: Option<SystemTime>,
}

impl Account {
    /// The total size of all files.
    pub fn held_bytes(&mut self, dir: &Path) -> u64 {
        let mut held_bytes = 0;
        for directory in directories(dir) {
            let modified = fs::metadata(&directory).and_then(|found| found.modified());
            let Ok(modified) = modified else {
                self.known.remove(&directory);
                continue;
            };
            let known = self.known.get(&directory);
            let is_as_counted = known.is_some_and(|known| known.modified == Some(modified));
            if !is_as_counted {
                self.count(&directory, modified);
            }
            held_bytes += self.known.get(&directory).map_or(0, |known| known.bytes);
        }
        held_bytes
    }

    fn count(&mut self, directory: &Path, modified: SystemTime) {
        let is_settled = modified.elapsed().is_ok_and(|age| age >= SETTLED_AFTER);
        let counted = Counted {
            bytes: list(directory).iter().map(|file| file.bytes).sum(),
            modified: is_settled.then_some(modified),
        };
        self.known.insert(directory.to_path_buf(), counted);
        self.listings += 1;
    }
}

/// Every file that counts.
pub fn list_all(dir: &Path) -> Vec<Listed> {
    directories(dir)
        .flat_map(|directory| list(&directory))
        .collect()
}

/// Deletes the chunks of an earlier format, which had a file each. Not where others may write: what
/// has these names there may lead elsewhere.
pub fn remove_earlier(dir: &Path) {
    let is_private = |found: Metadata| found.mode() & 0o022 == 0;
    if !fs::metadata(dir).is_ok_and(is_private) {
        return;
    }
    for directory in hexadecimal(dir.to_path_buf()) {
        for file in list(&directory) {
            let _ = fs::remove_file(file.path);
        }
        let _ = fs::remove_dir(directory);
    }
}

/// Each directory that may have files.
fn directories(dir: &Path) -> impl Iterator<Item = PathBuf> {
    [whole::DIRECTORY, BLOCKS]
        .map(|place| dir.join(place))
        .into_iter()
        .flat_map(hexadecimal)
}

fn hexadecimal(place: PathBuf) -> impl Iterator<Item = PathBuf> {
    (0..=255u8).map(move |first| place.join(format!("{first:02x}")))
}

/// The files of one directory. Leftovers of processes that died are deleted.
fn list(directory: &Path) -> Vec<Listed> {
    let mut files = Vec::new();
    let entries = fs::read_dir(directory).into_iter().flatten();
    for entry in entries.flatten() {
        let Ok(found) = entry.metadata() else {
            continue;
        };
        let Ok(used) = found.modified() else { continue };
        let name = entry.file_name();
        if name.to_str().is_some_and(whole::is_name) {
            files.push(Listed {
                path: entry.path(),
                bytes: found.len(),
                used,
            });
        } else if is_abandoned(&name.to_string_lossy(), used) {
            let _ = fs::remove_file(entry.path());
        }
    }
    files
}

fn is_abandoned(name: &str, written: SystemTime) -> bool {
    name.starts_with('.') && written.elapsed().is_ok_and(|age| age > ABANDONED_AFTER)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn put(dir: &Path, place: &str, first: u8, bytes: usize) {
        let name = format!("{first:02x}").repeat(32);
        let directory = dir.join(place).join(&name[..2]);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(name), vec![0; bytes]).unwrap();
        settle(&directory);
    }

    /// Sets the directory's modification time into the past, so that its count becomes valid.
    fn settle(directory: &Path) {
        let opened = File::open(directory).unwrap();
        let before = opened.metadata().unwrap().modified().unwrap();
        opened.set_modified(before - SETTLED_AFTER * 2).unwrap();
    }

    #[test]
    fn only_what_changed_is_listed_again() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path();
        let mut account = Account::default();
        assert_eq!((account.held_bytes(dir), account.listings), (0, 0));
        for first in 0..100 {
            put(dir, whole::DIRECTORY, first, 100);
            put(dir, BLOCKS, first, 1000);
        }
        assert_eq!(account.held_bytes(dir), 110_000);
        assert_eq!(account.listings, 200);
        assert_eq!((account.held_bytes(dir), account.listings), (110_000, 200));
        // Another process may have done so.
        put(dir, BLOCKS, 200, 5);
        let seventh = dir.join(whole::DIRECTORY).join("07");
        fs::remove_file(seventh.join("07".repeat(32))).unwrap();
        settle(&seventh);
        assert_eq!((account.held_bytes(dir), account.listings), (109_905, 202));
        fs::remove_dir_all(dir.join(BLOCKS)).unwrap();
        assert_eq!((account.held_bytes(dir), account.listings), (9_900, 202));
    }

    #[test]
    fn what_changed_a_moment_ago_is_listed_until_it_has_settled() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path();
        put(dir, BLOCKS, 1, 10);
        let now = SystemTime::now();
        let directory = File::open(dir.join(BLOCKS).join("01")).unwrap();
        directory.set_modified(now + SETTLED_AFTER).unwrap();
        let mut account = Account::default();
        for looks in 1..4 {
            assert_eq!((account.held_bytes(dir), account.listings), (10, looks));
        }
    }
}
