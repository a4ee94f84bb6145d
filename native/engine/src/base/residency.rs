//! Taking in what the base version has: inodes, directories, contents, chunks. Memory always wins
//! over a row, since a row is of the past; loading twice changes nothing. Rows come from a store:
//! what breaks the engine's rules is refused with EIO.

use std::sync::Arc;

use cowfs_base::{ChunkHash, Errno, Ino, ROOT_INO};

use crate::content::{Content, ContentRows, XattrPair, Xattrs};
use crate::directory::Directory;
use crate::engine::Engine;
use crate::error::Result;
use crate::extents::ExtentMap;
use crate::inode::Inode;
use crate::row::{ExtentRow, InodeRow, check_name};
use crate::state::State;
use crate::xattr::XATTR_VALUE_MAX_BYTES;

impl Engine {
    /// Takes in one inode.
    pub fn load_inode(&self, row: &InodeRow) -> Result<()> {
        row.check()?;
        if row.nlink == 0 {
            return Err(Errno::EIO.into());
        }
        self.eviction.took_in_inodes(1, 0);
        let mut state = self.fill()?;
        add_if_absent(&mut state, row);
        Ok(())
    }

    /// Takes in which directory a directory is in; what memory knows wins.
    pub fn load_parent(&self, ino: Ino, parent: Ino) -> Result<()> {
        if parent == 0 || parent == ino {
            return Err(Errno::EIO.into());
        }
        let mut state = self.fill()?;
        if let Some(directory) = state.directory_of_mut(ino)
            && directory.parent == 0
        {
            directory.parent = parent;
        }
        Ok(())
    }

    /// Takes in all entries of a directory with their inodes; returns the directories among them
    /// whose own entries are not here. If the entries are here already, only inodes that were
    /// evicted come back.
    pub fn load_directory(&self, ino: Ino, entries: &[(Box<[u8]>, InodeRow)]) -> Result<Vec<Ino>> {
        for (name, row) in entries {
            row.check()?;
            let is_dots = **name == *b"." || **name == *b"..";
            if check_name(name).is_err()
                || is_dots
                || row.nlink == 0
                || row.ino == ROOT_INO
                || row.ino == ino
            {
                return Err(Errno::EIO.into());
            }
        }
        let mut state = self.fill()?;
        // Evicted or removed meanwhile: the call that wanted the entries says so when it is made
        // again.
        let Some(inode) = state.inodes.get(ino) else {
            return Ok(Vec::new());
        };
        inode.note_use();
        let directory = inode.directory().ok_or(Errno::ENOTDIR)?;
        self.reads.note_directory(ino);
        let mut unloaded = Vec::new();
        let name_bytes = entries.iter().map(|(name, _)| name.len()).sum();
        self.eviction.took_in_inodes(entries.len(), name_bytes);
        if directory.is_resident {
            for (name, row) in entries {
                let is_entry = |directory: &Directory| directory.get(name) == Some(row.ino);
                if state.directory(ino).is_ok_and(is_entry) {
                    add_if_absent(&mut state, row);
                }
            }
            return Ok(unloaded);
        }
        for (_, row) in entries {
            add_if_absent(&mut state, row);
            if let Some(child) = state.directory_of_mut(row.ino) {
                if child.parent == 0 {
                    child.parent = ino;
                }
                if !child.is_resident {
                    unloaded.push(row.ino);
                }
            }
        }
        let directory = state.directory_of_mut(ino).ok_or(Errno::ENOTDIR)?;
        directory.reserve(entries.len(), name_bytes);
        for (name, row) in entries {
            directory.put(name, row.ino);
        }
        directory.is_resident = true;
        Ok(unloaded)
    }

    /// Directories in memory whose entries are not. Looks at every inode.
    pub fn unloaded_directories(&self) -> Result<Vec<Ino>> {
        let state = self.read()?;
        let unloaded = state.inodes.iter().filter(|inode| {
            inode
                .directory()
                .is_some_and(|directory| !directory.is_resident)
        });
        Ok(unloaded.map(|inode| inode.ino).collect())
    }

    /// Inodes without a name whose content is not here, as far as their rows say that they have
    /// any. The version that the next commit makes does not know them: a commit loads them from the
    /// one before, between `freeze` and the end of it.
    pub fn nameless_without_content(&self) -> Result<Vec<Ino>> {
        let state = self.read()?;
        let lacks_content = |ino: &&Ino| {
            let inode = state.inodes.get(**ino);
            inode.is_some_and(|inode| {
                inode.content.is_none() && (inode.mapped_bytes() > 0 || inode.has_xattrs())
            })
        };
        Ok(state
            .orphans
            .iter()
            .filter(lacks_content)
            .copied()
            .collect())
    }

    /// Takes in extents and extended attributes of an inode. Nothing happens if it is gone, or has
    /// them. EIO if they are not as many bytes as its row says are mapped, or attributes are there
    /// although it says that there are none, or the other way round: rows of a version that has not
    /// got the inode, or that are damaged, would else be a file of zeros.
    pub fn load_content(
        &self,
        ino: Ino,
        extents: &[ExtentRow],
        xattrs: &[XattrPair],
    ) -> Result<()> {
        let taken_in = take_in_content(&mut *self.fill()?, ino, extents, xattrs)?;
        if taken_in {
            self.eviction.took_in_content(extents);
        }
        Ok(())
    }

    /// As `load_content`, of files that nobody has asked for. Whatever would be refused is left
    /// out: who asks for it hears why.
    pub fn load_contents(&self, contents: &[ContentRows]) -> Result<()> {
        let mut state = self.fill()?;
        for (ino, extents, xattrs) in contents {
            if let Ok(true) = take_in_content(&mut state, *ino, extents, xattrs) {
                self.eviction.took_in_content(extents);
            }
        }
        Ok(())
    }

    /// Takes in a chunk that the caller has verified and decoded.
    pub fn cache_chunk(&self, hash: &ChunkHash, data: &[u8]) {
        self.cache.insert(&hash.0, data);
    }

    /// As `cache_chunk`, of a chunk that was read from the store.
    pub fn cache_stored_chunk(&self, hash: &ChunkHash, data: &[u8]) {
        match self.is_store_near {
            true => self.cache.insert_from_near(&hash.0, data),
            false => self.cache.insert(&hash.0, data),
        }
    }

    /// A chunk that is here, undamaged.
    pub fn cached_chunk(&self, hash: &ChunkHash, raw_length: u64) -> Option<Arc<[u8]>> {
        self.cache.get(&hash.0, raw_length)
    }

    /// Puts chunks that are only in memory into the cache's directory.
    pub fn flush_cache(&self) {
        self.cache.flush();
    }

    /// Whether the chunk seems to be in the cache's directory, or will be; it counts as used then.
    pub fn keep_chunk(&self, hash: &ChunkHash, raw_length: u64) -> bool {
        self.cache.keep(&hash.0, raw_length)
    }

    /// Bytes of all files of the cache.
    pub fn cache_bytes(&self) -> u64 {
        self.cache.held_bytes()
    }

    /// What this process has put into the cache since it was trimmed.
    pub fn cache_grown_bytes(&self) -> u64 {
        self.cache.grown_bytes()
    }

    /// Removes what the cache has used least until they take at most `max_bytes`; returns
    /// the bytes freed.
    pub fn trim_cache(&self, max_bytes: u64) -> u64 {
        self.cache.trim(max_bytes)
    }

    /// Removes what the cache has used least, of about `wanted_bytes`; returns the bytes
    /// freed.
    pub fn free_cache(&self, wanted_bytes: u64) -> u64 {
        self.cache.free(wanted_bytes)
    }

    /// How many inodes are loaded, or were made here.
    pub fn inodes_in_memory(&self) -> Result<u64> {
        Ok(self.read()?.inodes.len() as u64)
    }

    /// Bytes of the volume's regular files, its inodes, bytes free for staging and by the quota.
    pub fn statfs(&self) -> Result<(u64, u64, u64)> {
        let (amount, quota_bytes, newest_seq) = {
            let state = self.read()?;
            (state.amount(), state.quota_bytes, state.newest_seq())
        };
        let file_bytes = amount.bytes.clamp(0, u64::MAX.into()) as u64;
        let inodes = u64::try_from(amount.inodes).unwrap_or(0);
        let free_bytes = self.disk.as_ref().map_or(0, |disk| {
            let free_bytes = disk.staging.free_bytes();
            disk.reclaim.hurry_for_room(free_bytes, newest_seq);
            free_bytes
        });
        let free_bytes = match quota_bytes {
            0 => free_bytes,
            _ => free_bytes.min(quota_bytes.saturating_sub(file_bytes)),
        };
        Ok((file_bytes, inodes, free_bytes))
    }
}

/// What a layer has changed and is not here was removed: it does not come back.
fn add_if_absent(state: &mut State, row: &InodeRow) {
    if !state.inodes.contains(row.ino) && !state.is_changed(row.ino) {
        state.add(Inode::loaded(row));
    }
}

/// Whether it was taken in: not if the inode is gone, or has its content.
fn take_in_content(
    state: &mut State,
    ino: Ino,
    extents: &[ExtentRow],
    xattrs: &[XattrPair],
) -> Result<bool> {
    if xattrs.iter().any(|(name, value)| {
        name.is_empty() || name.len() > 255 || value.len() > XATTR_VALUE_MAX_BYTES
    }) {
        return Err(Errno::EIO.into());
    }
    let version = state.next_data_version();
    let Some(inode) = state
        .inodes
        .get_mut(ino)
        .filter(|inode| inode.content.is_none())
    else {
        return Ok(false);
    };
    if !extents.is_empty() && !inode.is_file() {
        return Err(Errno::EIO.into());
    }
    let extents = ExtentMap::from_rows(extents, inode.size)?;
    if extents.mapped_bytes() != inode.mapped_bytes() || xattrs.is_empty() == inode.has_xattrs() {
        return Err(Errno::EIO.into());
    }
    inode.content = Some(Box::new(Content {
        extents,
        xattrs: Xattrs::from_pairs(xattrs),
        // Another than before it was evicted.
        version,
        ..Content::default()
    }));
    Ok(true)
}
