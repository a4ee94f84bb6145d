//! Writes through a shared mapping that could not be staged: which bytes of which files.
//!
//! The program is told nothing when the kernel writes such a page back and the server refuses it.
//! The kernel counts the page as clean from then on and drops it sooner or later. So the refusal
//! is remembered here, and a commit asks for it (`Engine::refused_stores`): a version must not
//! silently lack what was stored before it. A range is forgotten when it is overwritten, cut off,
//! punched or copied over, and with its inode. A remount forgets all ranges.

use std::collections::BTreeMap;

use cowfs_base::{Errno, Ino};

use crate::engine::Engine;
use crate::error::Result;
use crate::inode::Inode;

/// More ranges of one file than this are joined to one.
const RANGES_MAX: usize = 1024;

/// What was refused of one file: disjoint ranges by their start, and why.
#[derive(Debug, Clone)]
struct File {
    ranges: BTreeMap<u64, u64>,
    errno: Errno,
}

/// What was refused of all files.
#[derive(Debug, Default)]
pub(crate) struct Refused(BTreeMap<Ino, File>);

/// A file that lacks bytes that were stored through a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedStore {
    /// The file.
    pub ino: Ino,
    /// How many bytes.
    pub bytes: u64,
    /// Why they could not be staged, last.
    pub errno: Errno,
}

impl Refused {
    /// [from, to) was stored and could not be staged.
    pub fn add(&mut self, ino: Ino, from: u64, to: u64, errno: Errno) {
        if from >= to {
            return;
        }
        let file = self.0.entry(ino).or_insert_with(|| File {
            ranges: BTreeMap::new(),
            errno,
        });
        file.errno = errno;
        remove(&mut file.ranges, from, to);
        file.ranges.insert(from, to);
        if file.ranges.len() > RANGES_MAX {
            let first = file.ranges.keys().next().copied().unwrap_or(from);
            let end = file.ranges.values().next_back().copied().unwrap_or(to);
            file.ranges = BTreeMap::from([(first, end)]);
        }
    }

    /// What is in [from, to) now is what was meant to be there.
    pub fn store_again(&mut self, ino: Ino, from: u64, to: u64) {
        if self.0.is_empty() {
            return;
        }
        if let Some(file) = self.0.get_mut(&ino) {
            remove(&mut file.ranges, from, to);
            if file.ranges.is_empty() {
                self.0.remove(&ino);
            }
        }
    }

    /// The inode is gone.
    pub fn forget(&mut self, ino: Ino) {
        if !self.0.is_empty() {
            self.0.remove(&ino);
        }
    }
}

fn remove(ranges: &mut BTreeMap<u64, u64>, from: u64, to: u64) {
    if from >= to {
        return;
    }
    let touched: Vec<(u64, u64)> = ranges
        .range(..to)
        .rev()
        .take_while(|(_, end)| **end > from)
        .map(|(start, end)| (*start, *end))
        .collect();
    for (start, end) in touched {
        ranges.remove(&start);
        if start < from {
            ranges.insert(start, from);
        }
        if end > to {
            ranges.insert(to, end);
        }
    }
}

impl Engine {
    /// Bytes that were stored through a mapping could not be written. Unknown inodes are ignored.
    pub fn note_refused_store(
        &self,
        ino: Ino,
        offset: u64,
        length: u64,
        errno: Errno,
    ) -> Result<()> {
        let mut state = self.fill()?;
        if state.inodes.get(ino).is_some_and(Inode::is_file) {
            let end = offset.saturating_add(length);
            state.refused.add(ino, offset, end, errno);
        }
        Ok(())
    }

    /// As `note_refused_store`, where the server cannot tell a mapped store from another write:
    /// only what may be one counts, whole pages up to the file's end, through a handle by which the
    /// file may be mapped.
    pub fn note_failed_write(&self, fh: u64, offset: u64, length: u64, errno: Errno) -> Result<()> {
        const PAGE_BYTES: u64 = 4096;
        let handle = self.handles.get(fh)?;
        let end = offset.saturating_add(length);
        let size = self.read()?.inode(handle.ino)?.size;
        let is_paged = offset.is_multiple_of(PAGE_BYTES)
            && (end.is_multiple_of(PAGE_BYTES) || end == size)
            && end <= size.next_multiple_of(PAGE_BYTES);
        if is_paged && self.may_be_mapped(handle.ino) {
            self.note_refused_store(handle.ino, offset, length, errno)?;
        }
        Ok(())
    }

    /// Files with a name that lack bytes which were stored through a mapping.
    pub fn refused_stores(&self) -> Result<Vec<RefusedStore>> {
        let state = self.read()?;
        let named = state.refused.0.iter().filter(|(ino, _)| {
            let inode = state.inodes.get(**ino);
            inode.is_some_and(|inode| inode.nlink > 0)
        });
        Ok(named
            .map(|(ino, file)| RefusedStore {
                ino: *ino,
                bytes: file.ranges.iter().map(|(from, to)| to - from).sum(),
                errno: file.errno,
            })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(refused: &Refused) -> Vec<(u64, u64)> {
        let files = refused.0.values();
        files
            .flat_map(|file| file.ranges.iter().map(|(from, to)| (*from, *to)))
            .collect()
    }

    #[test]
    fn ranges_are_joined_cut_and_forgotten() {
        let mut refused = Refused::default();
        refused.add(7, 10, 20, Errno::ENOSPC);
        refused.add(7, 30, 40, Errno::ENOSPC);
        refused.add(7, 15, 35, Errno::EIO);
        assert_eq!(ranges(&refused), [(10, 15), (15, 35), (35, 40)]);
        refused.store_again(7, 12, 36);
        assert_eq!(ranges(&refused), [(10, 12), (36, 40)]);
        refused.store_again(8, 0, u64::MAX);
        refused.store_again(7, 11, 11);
        assert_eq!(ranges(&refused), [(10, 12), (36, 40)]);
        refused.store_again(7, 0, 39);
        assert_eq!(ranges(&refused), [(39, 40)]);
        refused.store_again(7, 39, 40);
        assert!(refused.0.is_empty());
    }
}
