//! Calls about files, each to the engine that its number belongs to. A call that is not here is one
//! that only the volume's own engine answers: `own`, `own_parent`.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use cowfs_base::sync::Mutex;
use cowfs_base::{Attr, Errno, Ino, ROOT_INO};
use cowfs_engine::{DirectoryEntry, Engine, ReadBytes};

use crate::error::Result;
use crate::folder::{Entry, Folder, Target};
use crate::number::{
    FOLDER, HIDDEN_INO, HIDDEN_NAME, VERSIONS_INO, Version, inner, is_own, is_version, outer,
};
use crate::versions::Versions;

/// Behind every cookie of a directory, because `.cowfs` is the last entry of the root.
const HIDDEN_COOKIE: u64 = i64::MAX as u64;

/// The files of one mount. Every method may be called from any thread.
pub struct Mounted {
    engine: Arc<Engine>,
    beside: Option<Beside>,
}

struct Beside {
    versions: Versions,
    folder: Folder,
    /// Whether a listing of the root includes `.cowfs`.
    is_listed: bool,
    /// The generation of the links, whose numbers differ in another mount.
    generation: u64,
    /// Handles of the root directory, where that matters.
    roots: Mutex<HashSet<u64>>,
}

impl Mounted {
    /// The volume alone.
    pub fn new(engine: Arc<Engine>) -> Mounted {
        Mounted {
            engine,
            beside: None,
        }
    }

    /// The volume, with versions beside it. is_listed: not only who names `.cowfs` finds it.
    pub fn with_versions(engine: Arc<Engine>, is_listed: bool) -> Mounted {
        Mounted {
            engine,
            beside: Some(Beside {
                versions: Versions::default(),
                folder: Folder::default(),
                is_listed,
                generation: RandomState::new().build_hasher().finish() & u64::from(u32::MAX),
                roots: Mutex::default(),
            }),
        }
    }

    /// The volume's own.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    // -- versions beside the volume

    /// Answers `Missing::Name`.
    pub fn name_version(&self, name: Vec<u8>, target: Target) {
        if let Some(beside) = &self.beside {
            beside.folder.name_version(name, target);
        }
    }

    /// Answers `Missing::Names`.
    pub fn list_versions(&self, names: Vec<(Vec<u8>, Target)>) {
        if let Some(beside) = &self.beside {
            beside.folder.list_versions(names);
        }
    }

    /// Answers `Missing::Closed`. The engine is read-only.
    pub fn open_version(&self, version: Version, engine: Arc<Engine>) {
        if let Some(beside) = &self.beside {
            beside.versions.open(version, engine);
        }
    }

    /// Drops the engine of a version, unless it has an open handle; returns whether it did.
    pub fn close_version(&self, version: Version) -> bool {
        self.beside
            .as_ref()
            .is_none_or(|beside| beside.versions.close(version))
    }

    /// The open versions, least recently used first.
    pub fn open_versions(&self) -> Vec<Version> {
        let beside = self.beside.as_ref();
        beside.map_or_else(Vec::new, |beside| beside.versions.by_use())
    }

    // -- changes

    /// The engine that may change this inode or handle; EROFS if there is none.
    pub fn own(&self, number: u64) -> Result<&Engine> {
        match is_own(number) {
            true => Ok(&self.engine),
            false => Err(Errno::EROFS.into()),
        }
    }

    /// The inode or handle from which the volume is to share a part. EXDEV if it is not the
    /// volume's, so that the caller copies the bytes.
    pub fn own_source(&self, number: u64) -> Result<u64> {
        match is_own(number) {
            true => Ok(number),
            false => Err(Errno::EXDEV.into()),
        }
    }

    /// As `own`, for a directory in which `name` is made, replaced or removed; EROFS if it is the
    /// `.cowfs` of this mount.
    pub fn own_parent(&self, parent: Ino, name: &[u8]) -> Result<&Engine> {
        let engine = self.own(parent)?;
        let is_cowfs = self.beside.is_some() && parent == ROOT_INO && name == HIDDEN_NAME;
        match is_cowfs && !self.has_own_cowfs()? {
            true => Err(Errno::EROFS.into()),
            false => Ok(engine),
        }
    }

    /// Whether the volume has an entry `.cowfs` in its root.
    fn has_own_cowfs(&self) -> Result<bool> {
        match self.engine.lookup(ROOT_INO, HIDDEN_NAME) {
            Ok(attr) => {
                self.engine.forget(attr.ino, 1)?;
                Ok(true)
            }
            Err(cowfs_engine::Error::Os(Errno::ENOENT)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    // -- names and attributes

    /// The attributes of what a name leads to, which is referred to from now on.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let Some(beside) = &self.beside else {
            return Ok(self.engine.lookup(parent, name)?);
        };
        match inner(parent) {
            (0, ROOT_INO) => match self.engine.lookup(parent, name) {
                Err(cowfs_engine::Error::Os(Errno::ENOENT)) if name == HIDDEN_NAME => {
                    self.getattr(HIDDEN_INO)
                }
                outcome => Ok(outcome?),
            },
            (0, _) => Ok(self.engine.lookup(parent, name)?),
            (FOLDER, _) => match inner(beside.folder.find(parent, name)?) {
                (version, ROOT_INO) if version != 0 && version != FOLDER => self.root(version),
                (version, ino) => self.getattr(outer(version, ino)),
            },
            (_, ROOT_INO) if name == b".." => self.getattr(VERSIONS_INO),
            (version, ino) => beside
                .versions
                .ask(version, |engine| engine.lookup(ino, name))
                .map(|attr| seen(version, attr)),
        }
    }

    /// The root directory of a version, which is referred to from now on.
    fn root(&self, version: Version) -> Result<Attr> {
        self.at(outer(version, ROOT_INO), |engine, ino| {
            engine.lookup(ino, b".")
        })
        .map(|attr| seen(version, attr))
    }

    /// Attributes of an inode.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        match (inner(ino), &self.beside) {
            ((FOLDER, _), Some(beside)) => {
                let like = self.engine.getattr(ROOT_INO)?;
                beside.folder.attributes(ino, &like)
            }
            ((version, _), _) => self
                .at(ino, Engine::getattr)
                .map(|attr| seen(version, attr)),
        }
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        match (inner(ino), &self.beside) {
            ((FOLDER, _), Some(beside)) => beside.folder.readlink(ino),
            _ => self.at(ino, Engine::readlink),
        }
    }

    /// As `Engine::get_xattr`.
    pub fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        match inner(ino) {
            (FOLDER, _) => Err(Errno::ENODATA.into()),
            _ => self.at(ino, |engine, ino| engine.get_xattr(ino, name)),
        }
    }

    /// As `Engine::list_xattrs`.
    pub fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        match inner(ino) {
            (FOLDER, _) => Ok(Vec::new()),
            _ => self.at(ino, Engine::list_xattrs),
        }
    }

    /// As `Engine::forget`. Counts of a version are kept while it is open; a closed one has no
    /// inodes in memory.
    pub fn forget(&self, ino: Ino, count: u64) -> Result<()> {
        self.if_open(ino, |engine, ino| engine.forget(ino, count))
    }

    /// As `Engine::entry_delivered`.
    pub fn entry_delivered(&self, ino: Ino) -> Result<()> {
        self.if_open(ino, Engine::entry_delivered)
    }

    /// Whether names of this inode, or in it, may soon lead elsewhere, so that they must not be
    /// cached.
    pub fn may_move(&self, ino: Ino) -> bool {
        inner(ino).0 == FOLDER
    }

    /// A number that distinguishes the inode from others with the same number in another mount,
    /// where a version has another number.
    pub fn generation(&self, ino: Ino) -> u64 {
        match (inner(ino), &self.beside) {
            ((0, _), _) | (_, None) => 0,
            ((FOLDER, _), Some(beside)) => beside.generation,
            ((version, _), Some(beside)) => beside.folder.generation(version),
        }
    }

    /// Whether an entry of this inode says no more than that it is a directory: the root of a
    /// version, which need not be open to be listed.
    pub fn is_only_named(&self, ino: Ino) -> bool {
        is_version(ino)
    }

    // -- files

    /// Opens a file; for changes only the volume's.
    pub fn open_file(&self, ino: Ino, flags: i32) -> Result<u64> {
        if is_own(ino) {
            return Ok(self.engine.open_file(ino, flags)?);
        }
        if flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0 {
            return Err(Errno::EROFS.into());
        }
        self.handle(ino, |engine, ino| engine.open_file(ino, flags))
    }

    /// As `Engine::read_file`.
    pub fn read_file(&self, fh: u64, offset: u64, size: usize) -> Result<Vec<u8>> {
        self.at(fh, |engine, fh| engine.read_file(fh, offset, size))
    }

    /// As `Engine::read_or_lend`.
    pub fn read_or_lend(&self, fh: u64, offset: u64, buffer: &mut [u8]) -> Result<ReadBytes> {
        self.at(fh, |engine, fh| engine.read_or_lend(fh, offset, buffer))
    }

    /// As `Engine::seek`.
    pub fn seek(&self, fh: u64, offset: u64, whence: i32) -> Result<u64> {
        self.at(fh, |engine, fh| engine.seek(fh, offset, whence))
    }

    /// As `Engine::flush`.
    pub fn flush(&self, fh: u64) -> Result<()> {
        self.at(fh, Engine::flush)
    }

    /// As `Engine::fsync`.
    pub fn fsync(&self, fh: u64, datasync: bool) -> Result<()> {
        self.at(fh, |engine, fh| engine.fsync(fh, datasync))
    }

    /// Closes a file handle.
    pub fn release(&self, fh: u64) -> Result<()> {
        match (inner(fh), &self.beside) {
            ((0, fh), _) => Ok(self.engine.release(fh)?),
            ((version, fh), Some(beside)) if version != FOLDER => beside
                .versions
                .release(version, |engine| engine.release(fh)),
            _ => Err(Errno::EBADF.into()),
        }
    }

    // -- directories

    /// Opens a directory for reading its entries.
    pub fn open_directory(&self, ino: Ino) -> Result<u64> {
        match (inner(ino), &self.beside) {
            ((FOLDER, _), Some(beside)) => beside.folder.open(ino),
            ((0, ROOT_INO), Some(beside)) if beside.is_listed => {
                let fh = self.engine.open_directory(ino)?;
                beside.roots.lock().insert(fh);
                Ok(fh)
            }
            ((0, _), _) => Ok(self.engine.open_directory(ino)?),
            _ => self.handle(ino, Engine::open_directory),
        }
    }

    /// Closes a directory handle.
    pub fn release_directory(&self, fh: u64) -> Result<()> {
        match (inner(fh), &self.beside) {
            ((FOLDER, _), Some(beside)) => beside.folder.release(fh),
            ((0, _), Some(beside)) => {
                beside.roots.lock().remove(&fh);
                self.release(fh)
            }
            _ => self.release(fh),
        }
    }

    /// As `Engine::read_directory`.
    pub fn read_directory(
        &self,
        fh: u64,
        cookie: u64,
        limit: usize,
    ) -> Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        self.list_directory(fh, cookie, false, |name, cookie, attr| {
            if entries.len() == limit {
                return false;
            }
            entries.push(DirectoryEntry {
                name: name.into(),
                cookie,
                attr: attr.clone(),
            });
            true
        })?;
        Ok(entries)
    }

    /// As `Engine::list_directory`. Entries that are `is_only_named` are not counted.
    pub fn list_directory(
        &self,
        fh: u64,
        cookie: u64,
        counts: bool,
        mut take: impl FnMut(&[u8], u64, &Attr) -> bool,
    ) -> Result<()> {
        match (inner(fh), &self.beside) {
            ((FOLDER, _), Some(beside)) => {
                self.list_folder(&beside.folder.entries(fh)?, cookie, take)
            }
            ((0, _), Some(beside)) if beside.is_listed && beside.roots.lock().contains(&fh) => {
                self.list_root(fh, cookie, counts, take)
            }
            ((0, _), _) => Ok(self.engine.list_directory(fh, cookie, counts, take)?),
            ((version, _), _) => self.at(fh, |engine, fh| {
                engine.list_directory(fh, cookie, counts, |name, cookie, attr| {
                    take(name, cookie, &seen(version, attr.clone()))
                })
            }),
        }
    }

    fn list_folder(
        &self,
        entries: &[Entry],
        cookie: u64,
        mut take: impl FnMut(&[u8], u64, &Attr) -> bool,
    ) -> Result<()> {
        let first = usize::try_from(cookie).unwrap_or(usize::MAX);
        for (place, entry) in entries.iter().enumerate().skip(first) {
            let attr = match is_version(entry.ino) {
                true => Attr {
                    ino: entry.ino,
                    mode: libc::S_IFDIR | 0o555,
                    nlink: 2,
                    ..Attr::default()
                },
                false => self.getattr(entry.ino)?,
            };
            if !take(&entry.name, place as u64 + 1, &attr) {
                break;
            }
        }
        Ok(())
    }

    fn list_root(
        &self,
        fh: u64,
        cookie: u64,
        counts: bool,
        mut take: impl FnMut(&[u8], u64, &Attr) -> bool,
    ) -> Result<()> {
        if cookie == HIDDEN_COOKIE {
            return Ok(());
        }
        let mut is_at_end = true;
        self.engine
            .list_directory(fh, cookie, counts, |name, cookie, attr| {
                is_at_end = false;
                take(name, cookie, attr)
            })?;
        if is_at_end && !self.has_own_cowfs()? {
            take(HIDDEN_NAME, HIDDEN_COOKIE, &self.getattr(HIDDEN_INO)?);
        }
        Ok(())
    }

    // -- whose number it is

    fn at<T>(
        &self,
        number: u64,
        call: impl FnOnce(&Engine, u64) -> cowfs_engine::Result<T>,
    ) -> Result<T> {
        match (inner(number), &self.beside) {
            ((0, number), _) => Ok(call(&self.engine, number)?),
            ((version, number), Some(beside)) if version != FOLDER => {
                beside.versions.ask(version, |engine| call(engine, number))
            }
            _ => Err(Errno::EBADF.into()),
        }
    }

    fn handle(
        &self,
        ino: Ino,
        call: impl FnOnce(&Engine, u64) -> cowfs_engine::Result<u64>,
    ) -> Result<u64> {
        match (inner(ino), &self.beside) {
            ((version, ino), Some(beside)) if version != FOLDER => beside
                .versions
                .ask_for_handle(version, |engine| call(engine, ino))
                .map(|fh| outer(version, fh)),
            _ => Err(Errno::EISDIR.into()),
        }
    }

    fn if_open(
        &self,
        ino: Ino,
        call: impl FnOnce(&Engine, u64) -> cowfs_engine::Result<()>,
    ) -> Result<()> {
        match (inner(ino), &self.beside) {
            ((0, ino), _) => Ok(call(&self.engine, ino)?),
            ((version, ino), Some(beside)) if version != FOLDER => {
                let _ = beside.versions.ask(version, |engine| call(engine, ino));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Attributes as the kernel gets them.
fn seen(version: Version, attr: Attr) -> Attr {
    Attr {
        ino: outer(version, attr.ino),
        ..attr
    }
}
