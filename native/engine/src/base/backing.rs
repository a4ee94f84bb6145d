//! Local files with all bytes of a file of a read-only mount, which the kernel can read by itself.
//!
//! Such a file is assembled when a file is opened whose chunks are all here; nothing is fetched for
//! it. The caller asks with `backing_file`. If copying takes less than a second, the answer is
//! `Missing::File`: the caller has `assemble_file` called on a thread that may wait, and asks
//! again. For a larger file the caller does not wait, and a later open uses the assembled file. A
//! file that another process has assembled is read and checked first. That is several times faster
//! than copying, so callers wait for larger files.

use std::fs::File;

use cowfs_base::Ino;
use cowfs_base::sync::Mutex;
use cowfs_cache::{Part, Whole};
use hashbrown::HashSet;

use crate::engine::Engine;
use crate::error::{Error, Missing, Result};

/// Smaller files are read in a request or two, so there is no gain.
const MIN_BYTES: u64 = 1 << 20;
/// The largest file whose copy an open waits for: copying takes 0.6 s on a busy machine.
const WAIT_BYTES: u64 = 256 << 20;
/// The largest file whose check an open waits for.
const WAIT_CHECK_BYTES: u64 = 1 << 30;

#[derive(Default)]
pub(crate) struct Backing {
    /// Files that could not be assembled, until the next request: their opening continues without
    /// one.
    refused: Mutex<HashSet<Ino>>,
    /// Files being put together.
    assembling: Mutex<HashSet<Ino>>,
}

/// The whole file for a file of the mount.
#[derive(Debug)]
pub enum LocalFile {
    /// A file with exactly its bytes.
    Whole(File),
    /// Not there yet; `assemble_file` makes it.
    Later,
    /// Not there, and it cannot be made without fetching.
    Absent,
}

impl Engine {
    /// Whether the mount is read-only.
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

    /// None for an inode that is never assembled.
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
