//! Local files with all bytes of a file of a read-only mount, which the kernel can read by itself.
//!
//! Such a file is assembled from chunks when a file is opened whose chunks are all here; nothing
//! is fetched for it. The caller asks with `backing_file`. If copying takes less than a second,
//! the caller is told `Missing::File`, has `assemble_file` called on a thread that may wait, and
//! asks again. For a larger file the caller does not wait, and a later open uses the assembled
//! file. So it is with one that another process has assembled, which is read and checked first, at
//! several times that speed: the caller waits for more of it.

use std::fs::File;

use cowfs_base::Ino;
use cowfs_base::sync::Mutex;
use cowfs_cache::{Part, Whole};
use hashbrown::HashSet;

use crate::engine::Engine;
use crate::error::{Error, Missing, Result};

/// Smaller files are read in a request or two: nothing to win.
const MIN_BYTES: u64 = 1 << 20;
/// Whoever opens a larger one does not wait for the copy: 0.6 s for this much on a busy machine.
const WAIT_BYTES: u64 = 256 << 20;
/// The same for one that is only checked.
const WAIT_CHECK_BYTES: u64 = 1 << 30;

#[derive(Default)]
pub(crate) struct Backing {
    /// Files that could not be put together, until they are asked for again: their opening goes on
    /// without.
    refused: Mutex<HashSet<Ino>>,
    /// Files being put together.
    assembling: Mutex<HashSet<Ino>>,
}

/// What there is besides the chunks of a file.
#[derive(Debug)]
pub enum LocalFile {
    /// A file with exactly its bytes.
    Whole(File),
    /// None yet; `assemble_file` makes one.
    Later,
    /// None, and none can be had without fetching.
    Absent,
}

impl Engine {
    /// Whether nothing can be changed.
    pub fn is_read_only(&self) -> bool {
        self.disk.is_none()
    }

    /// The local file with exactly the bytes of `ino`.
    pub fn backing_file(&self, ino: Ino) -> Result<LocalFile> {
        let Some(whole) = self.whole(ino)? else {
            return Ok(LocalFile::Absent);
        };
        if let Some(file) = self.cache.whole(&whole) {
            return Ok(LocalFile::Whole(file));
        }
        let is_unchecked = self.cache.is_unchecked(&whole);
        let can_be_had = is_unchecked || self.cache.may_assemble(&whole);
        if self.backing.refused.lock().remove(&ino) || !can_be_had {
            return Ok(LocalFile::Absent);
        }
        let most_bytes = match is_unchecked {
            false => WAIT_BYTES,
            true => WAIT_CHECK_BYTES,
        };
        if whole.size() > most_bytes {
            return Ok(LocalFile::Later);
        }
        Err(Error::NotResident(Missing::File(ino)))
    }

    /// Puts the file together: copies all of it once. When that cannot be done, the next
    /// `backing_file` says None.
    pub fn assemble_file(&self, ino: Ino) -> Result<()> {
        let Some(whole) = self.whole(ino)? else {
            return Ok(());
        };
        if !self.backing.assembling.lock().insert(ino) {
            self.backing.refused.lock().insert(ino);
            return Ok(());
        }
        let is_assembled = self.cache.assemble(&whole);
        self.backing.assembling.lock().remove(&ino);
        if !is_assembled {
            self.backing.refused.lock().insert(ino);
        }
        Ok(())
    }

    /// None for what is never put together.
    fn whole(&self, ino: Ino) -> Result<Option<Whole>> {
        let state = self.read()?;
        let inode = state.inode(ino)?;
        if !self.is_read_only() || !inode.is_file() || inode.size < MIN_BYTES {
            return Ok(None);
        }
        let extents = &state.content(ino)?.extents;
        let parts = extents.iter().map(|extent| {
            let chunk = extent.chunk.as_ref()?;
            Some(Part {
                offset: extent.offset,
                length: extent.length,
                hash: chunk.hash.0,
                raw_len: chunk.raw_length.into(),
                skip: extent.skip.into(),
            })
        });
        let parts: Option<Vec<Part>> = parts.collect();
        Ok(parts.map(|parts| Whole::new(inode.size, parts)))
    }
}
