//! Loads data of the base version: inodes, directories, contents, chunks. Memory always wins over a
//! row, since a row may be older; loading twice changes nothing. Rows come from a store: rows that
//! break the engine's rules are refused with EIO.

use std::sync::Arc;

use cowfs_base::{ChunkHash, Errno, Ino, ROOT_INO};

use crate::content::{Content, ContentRows, XattrPair, Xattrs};
use crate::directory::Directory;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::extents::ExtentMap;
use crate::inode::Inode;
use crate::row::{ExtentRow, InodeRow, check_name};
use crate::state::State;
use crate::xattr::XATTR_VALUE_MAX_BYTES;

impl Engine {
    /// Takes in one inode.
    pub fn load_inode(&self, row: &InodeRow) -> Result<()> {
        if row.check().is_err() || row.nlink == 0 {
            return Err(impossible(row));
        }
        self.eviction.took_in_inodes(1, 0);
        let mut state = self.fill()?;
        add_if_absent(&mut state, row);
        Ok(())
    }

    /// Takes in which directory a directory is in; what memory knows wins.
    pub fn load_parent(&self, ino: Ino, parent: Ino) -> Result<()> {
        if parent == 0 || parent == ino {
            return Err(Error::fault(format_args!(
                "directory {ino} cannot be in directory {parent}"
            )));
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
    /// evicted come back. EIO: one of them is in another directory as well, so that a walk might
    /// never end, or the names are more than a directory may have.
    pub fn load_directory(&self, ino: Ino, entries: &[(Box<[u8]>, InodeRow)]) -> Result<Vec<Ino>> {
        for (name, row) in entries {
            let is_dots = **name == *b"." || **name == *b"..";
            if check_name(name).is_err() || is_dots || row.ino == ROOT_INO || row.ino == ino {
                let name = name.escape_ascii();
                return Err(Error::fault(format_args!(
                    "directory {ino} cannot have inode {} as {name}",
                    row.ino
                )));
            }
            if row.check().is_err() || row.nlink == 0 {
                return Err(impossible(row));
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
                if child.parent != ino {
                    return Err(Error::fault(format_args!(
                        "directory {} cannot be in directories {} and {ino}",
                        row.ino, child.parent
                    )));
                }
                if !child.is_resident {
                    unloaded.push(row.ino);
                }
            }
        }
        let directory = state.directory_of_mut(ino).ok_or(Errno::ENOTDIR)?;
        if !directory.has_room_for(name_bytes.saturating_add(entries.len())) {
            return Err(Error::fault(format_args!(
                "directory {ino} cannot have {} entries of {name_bytes} bytes",
                entries.len()
            )));
        }
        directory.fill(entries.iter().map(|(name, row)| (&**name, row.ino)));
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

    /// Loads the extents and extended attributes of an inode. Does nothing if the inode is gone or
    /// has them already. EIO if the extents do not map as many bytes as the inode's row says, or if
    /// the row and the attributes disagree on whether there are any. Such rows are damaged, or
    /// belong to a version without this inode, and would make it a file of zeros.
    pub fn load_content(
        &self,
        ino: Ino,
        extents: &[ExtentRow],
        xattrs: &[XattrPair],
    ) -> Result<()> {
        let taken_in = take_in_content(&mut *self.fill()?, ino, extents, xattrs)?;
        if taken_in {
            self.eviction.took_in_content(extents, xattrs);
        }
        Ok(())
    }

    /// As `load_content`, for files that were not requested. Invalid rows are left out; a request
    /// for such a file reports the error.
    pub fn load_contents(&self, contents: &[ContentRows]) -> Result<()> {
        let mut state = self.fill()?;
        for (ino, extents, xattrs) in contents {
            if let Ok(true) = take_in_content(&mut state, *ino, extents, xattrs) {
                self.eviction.took_in_content(extents, xattrs);
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

    /// The bytes that this process has put into the cache since the last trim.
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

    /// Bytes of the volume's regular files, the number of its inodes, and how many bytes more can
    /// be written: as the quota and the local disk allow, after unneeded bytes were freed.
    pub fn statfs(&self) -> Result<(u64, u64, u64)> {
        let (amount, quota_bytes) = {
            let state = self.read()?;
            (state.amount(), state.quota_bytes)
        };
        let file_bytes = amount.bytes.clamp(0, u64::MAX.into()) as u64;
        let inodes = u64::try_from(amount.inodes).unwrap_or(0);
        let free_bytes = match &self.disk {
            Some(disk) => self.writable_bytes(disk)?,
            None => 0,
        };
        let free_bytes = match quota_bytes {
            0 => free_bytes,
            _ => free_bytes.min(quota_bytes.saturating_sub(file_bytes)),
        };
        Ok((file_bytes, inodes, free_bytes))
    }
}

/// A row that breaks a rule of the engine.
fn impossible(row: &InodeRow) -> Error {
    Error::fault(format_args!(
        "inode {}: an impossible row (mode {:o}, {} links, {} bytes, {} mapped, target of {} bytes)",
        row.ino,
        row.mode,
        row.nlink,
        row.size,
        row.mapped_bytes,
        row.target.len()
    ))
}

/// If a layer has changed the inode and it is not here, it was removed and does not come back.
fn add_if_absent(state: &mut State, row: &InodeRow) {
    if !state.inodes.contains(row.ino) && !state.is_changed(row.ino) {
        state.add(Inode::loaded(row));
    }
}

/// Returns whether it was loaded: not if the inode is gone, or has its content.
fn take_in_content(
    state: &mut State,
    ino: Ino,
    extents: &[ExtentRow],
    xattrs: &[XattrPair],
) -> Result<bool> {
    if xattrs.iter().any(|(name, value)| {
        name.is_empty() || name.len() > 255 || value.len() > XATTR_VALUE_MAX_BYTES
    }) {
        return Err(Error::fault(format_args!(
            "inode {ino}: an impossible extended attribute"
        )));
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
        return Err(Error::fault(format_args!(
            "inode {ino} is no file, and has extents"
        )));
    }
    let extents = ExtentMap::from_rows(extents, inode.size)
        .map_err(|_| Error::fault(format_args!("inode {ino}: an impossible extent")))?;
    if extents.mapped_bytes() != inode.mapped_bytes() || xattrs.is_empty() == inode.has_xattrs() {
        return Err(Error::fault(format_args!(
            "inode {ino}: {} bytes and {} attributes are mapped, its row says {} bytes and {}",
            extents.mapped_bytes(),
            xattrs.len(),
            inode.mapped_bytes(),
            ["none", "some"][usize::from(inode.has_xattrs())],
        )));
    }
    inode.content = Some(Box::new(Content {
        extents,
        xattrs: Xattrs::from_pairs(xattrs),
        // Another than before it was evicted.
        version,
        ..Content::default()
    }));
    state.count_xattrs(ino);
    Ok(true)
}
