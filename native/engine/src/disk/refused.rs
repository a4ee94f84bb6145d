//! Writes through a shared mapping that could not be staged: which bytes of which files.
//!
//! The program gets no error when the kernel writes such a page back and the server refuses it. The
//! kernel counts the page as clean from then on and drops it sooner or later. So the refusal is
//! remembered here, and a commit asks for it (`Engine::refused_stores`): a version must not
//! silently lack bytes stored before it. A range is forgotten when it is overwritten, cut off,
//! punched or copied over, and with its inode. A remount forgets all ranges.

use std::collections::BTreeMap;

use cowfs_base::{Errno, Ino};

use crate::engine::Engine;
use crate::error::Result;
use crate::handle::HandleId;
use crate::inode::Inode;
use crate::ranges::Ranges;

/// More ranges of one file than this are joined to one.
const RANGES_MAX: usize = 1024;

/// The refused ranges of one file, and the error.
#[derive(Debug, Clone)]
struct File {
    ranges: Ranges,
    errno: Errno,
}

/// The refused ranges of all files.
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
            ranges: Ranges::default(),
            errno,
        });
        file.errno = errno;
        file.ranges.add(from, to);
        if file.ranges.len() > RANGES_MAX {
            let (first, end) = (file.ranges.iter().next(), file.ranges.iter().last());
            let (first, end) = (first.unwrap_or((from, to)), end.unwrap_or((from, to)));
            file.ranges.add(first.0, end.1);
        }
    }

    /// The bytes in [from, to) were stored successfully: forgets refusals there.
    pub fn store_again(&mut self, ino: Ino, from: u64, to: u64) {
        if self.0.is_empty() {
            return;
        }
        if let Some(file) = self.0.get_mut(&ino) {
            file.ranges.remove(from, to);
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

    /// As `note_refused_store`, where the server cannot tell a mapped store from another write.
    /// Only possible mapped stores count: whole pages up to the file's end, through a handle by
    /// which the file may be mapped.
    pub fn note_failed_write(
        &self,
        id: HandleId,
        offset: u64,
        length: u64,
        errno: Errno,
    ) -> Result<()> {
        const PAGE_BYTES: u64 = 4096;
        let handle = self.handle(id)?;
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
                bytes: file.ranges.bytes(),
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
        files.flat_map(|file| file.ranges.iter()).collect()
    }

    #[test]
    fn ranges_are_joined_cut_and_forgotten() {
        let mut refused = Refused::default();
        refused.add(7, 10, 20, Errno::ENOSPC);
        refused.add(7, 30, 40, Errno::ENOSPC);
        refused.add(7, 15, 35, Errno::EIO);
        assert_eq!(ranges(&refused), [(10, 40)]);
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
