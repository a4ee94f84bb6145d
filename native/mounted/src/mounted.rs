//! Calls about files, each to the engine that its node belongs to. An `Attr` and a `HandleId` have
//! the node where those of an engine have the inode. A call that is not here is one that only the
//! volume's own engine answers: `own`, `own_parent`.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cowfs_base::{Attr, Errno, Ino, ROOT_INO};
use cowfs_engine::{DirectoryEntry, Engine, HandleId, ReadBytes};
use cowfs_survival::Table;

use crate::attachments::{Attached, Attachments};
use crate::error::Result;
use crate::folder::{Entry, Folder, Found, Target};
use crate::number::{
    Attachment, FOLDER, HIDDEN_INO, HIDDEN_NAME, OWN, VERSIONS_INO, is_own, is_version, link_to,
    node_of, place_of, version_of_link,
};

/// Behind every cookie of a directory, because `.cowfs` is the last entry of the root.
const HIDDEN_COOKIE: u64 = i64::MAX as u64;

/// The kernel keeps so many bits of one.
const GENERATION: u64 = u32::MAX as u64;

/// The files of one mount. Every method may be called from any thread.
pub struct Mounted {
    engine: Arc<Engine>,
    beside: Option<Beside>,
}

struct Beside {
    versions: Attachments,
    folder: Folder,
    /// Whether a listing of the root includes `.cowfs`.
    is_listed: bool,
    /// The generation of `.cowfs`, which is another directory in another mount.
    generation: AtomicU64,
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
                versions: Attachments::default(),
                folder: Folder::default(),
                is_listed,
                generation: (RandomState::new().build_hasher().finish() & GENERATION).into(),
            }),
        }
    }

    /// From now on the table has the versions beside the volume. Those that earlier servers of the
    /// mount put there are known again: a call about one gets `Missing::Closed`, as one about a
    /// version whose engine was dropped. Call it before any is named.
    pub fn keep_attachments(&self, table: Arc<Table>) {
        if let Some(beside) = &self.beside {
            let generation = table.connection() & GENERATION;
            beside.generation.store(generation, Ordering::Relaxed);
            beside.versions.keep(table);
        }
    }

    /// The volume's own.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    // -- versions beside the volume

    /// Answers `Missing::Name`. ENFILE: the kernel refers to as many versions as a mount can show.
    pub fn name_version(&self, name: &[u8], target: Target) -> Result<()> {
        let Some(beside) = &self.beside else {
            return Ok(());
        };
        let named = beside.folder.name_version(&beside.versions, name, target);
        named.map(drop)
    }

    /// Answers `Missing::Names`. ENFILE: as `name_version`.
    pub fn list_versions(&self, names: Vec<(Vec<u8>, Target)>) -> Result<()> {
        let Some(beside) = &self.beside else {
            return Ok(());
        };
        beside.folder.list_versions(&beside.versions, names)
    }

    /// Answers `Missing::Closed`, with the engine of that version, which is read-only. False: the
    /// attachment is gone, and its number may be another version's.
    pub fn open_version(&self, number: Attachment, id: &[u8], engine: Arc<Engine>) -> bool {
        let beside = self.beside.as_ref();
        beside.is_some_and(|beside| beside.versions.open(number, id, engine))
    }

    /// Drops the engine of a version, unless it has an open handle; returns whether it did.
    pub fn close_version(&self, number: Attachment) -> bool {
        self.beside
            .as_ref()
            .is_none_or(|beside| beside.versions.close(number))
    }

    /// The open versions, least recently used first.
    pub fn open_versions(&self) -> Vec<Attachment> {
        let beside = self.beside.as_ref();
        beside.map_or_else(Vec::new, |beside| beside.versions.by_use())
    }

    // -- changes

    /// The engine that may change this inode; EROFS if there is none.
    pub fn own(&self, node: u64) -> Result<&Engine> {
        match is_own(node) {
            true => Ok(&self.engine),
            false => Err(Errno::EROFS.into()),
        }
    }

    /// The inode from which the volume is to share a part. EXDEV if it is not the volume's, so that
    /// the caller copies the bytes.
    pub fn own_source(&self, node: u64) -> Result<Ino> {
        match is_own(node) {
            true => Ok(node),
            false => Err(Errno::EXDEV.into()),
        }
    }

    /// As `own`, for a directory in which `name` is made, replaced or removed; EROFS if it is the
    /// `.cowfs` of this mount.
    pub fn own_parent(&self, parent: u64, name: &[u8]) -> Result<&Engine> {
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
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<Attr> {
        let Some(beside) = &self.beside else {
            return Ok(self.engine.lookup(parent, name)?);
        };
        match place_of(parent) {
            (OWN, ROOT_INO) => match self.engine.lookup(parent, name) {
                Err(cowfs_engine::Error::Os(Errno::ENOENT)) if name == HIDDEN_NAME => {
                    self.getattr(HIDDEN_INO)
                }
                outcome => Ok(outcome?),
            },
            (OWN, _) => Ok(self.engine.lookup(parent, name)?),
            (FOLDER, _) => match beside.folder.find(&beside.versions, parent, name)? {
                Found::Inode(ROOT_INO) => Ok(self.engine.lookup(ROOT_INO, b".")?),
                Found::Inode(node) => self.getattr(node),
                Found::Version(attached) => look_up(&attached, ROOT_INO, b"."),
                Found::Link(attached) => self.getattr(link_to(attached.number)),
            },
            (_, ROOT_INO) if name == b".." => self.getattr(VERSIONS_INO),
            (number, ino) => look_up(&*beside.versions.get(number)?, ino, name),
        }
    }

    /// Attributes of an inode.
    pub fn getattr(&self, node: u64) -> Result<Attr> {
        match (place_of(node), &self.beside) {
            ((FOLDER, _), Some(beside)) => {
                let like = self.engine.getattr(ROOT_INO)?;
                beside.folder.attributes(&beside.versions, node, &like)
            }
            ((number, _), _) => self
                .at(node, Engine::getattr)
                .map(|attr| seen(number, attr)),
        }
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, node: u64) -> Result<Vec<u8>> {
        match (place_of(node), &self.beside) {
            ((FOLDER, _), Some(beside)) => beside.folder.readlink(&beside.versions, node),
            _ => self.at(node, Engine::readlink),
        }
    }

    /// As `Engine::get_xattr`.
    pub fn get_xattr(&self, node: u64, name: &[u8]) -> Result<Vec<u8>> {
        match place_of(node) {
            (FOLDER, _) => Err(Errno::ENODATA.into()),
            _ => self.at(node, |engine, ino| engine.get_xattr(ino, name)),
        }
    }

    /// As `Engine::list_xattrs`.
    pub fn list_xattrs(&self, node: u64) -> Result<Vec<Vec<u8>>> {
        match place_of(node) {
            (FOLDER, _) => Ok(Vec::new()),
            _ => self.at(node, Engine::list_xattrs),
        }
    }

    /// As `Engine::forget`. An engine that is closed has no inodes in memory; what the kernel
    /// refers to is counted all the same.
    pub fn forget(&self, node: u64, count: u64) -> Result<()> {
        match (place_of(node), &self.beside) {
            ((OWN, ino), _) => Ok(self.engine.forget(ino, count)?),
            ((FOLDER, _), Some(beside)) => {
                if let Some(attached) = beside.link(node) {
                    attached.count_off(count);
                }
                Ok(())
            }
            ((number, ino), Some(beside)) => {
                if let Ok(attached) = beside.versions.get(number) {
                    let _ = attached.ask(|engine| engine.forget(ino, count));
                    attached.count_off(count);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// As `Engine::entry_delivered`.
    pub fn entry_delivered(&self, node: u64) -> Result<()> {
        match (place_of(node), &self.beside) {
            ((OWN, ino), _) => Ok(self.engine.entry_delivered(ino)?),
            ((FOLDER, _), Some(beside)) => {
                if let Some(attached) = beside.link(node) {
                    attached.count();
                }
                Ok(())
            }
            ((number, ino), Some(beside)) => {
                let attached = beside.versions.get(number)?;
                attached.count();
                let _ = attached.ask(|engine| engine.entry_delivered(ino));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether names of this inode, or in it, may soon lead elsewhere, so that they must not be
    /// cached.
    pub fn may_move(&self, node: u64) -> bool {
        place_of(node).0 == FOLDER
    }

    /// A number that distinguishes the inode from others that had its number before, or will. 0 for
    /// the volume's own: it never uses a number twice, and file handles stay valid when it is
    /// mounted again.
    pub fn generation(&self, node: u64) -> u64 {
        match (place_of(node), &self.beside) {
            ((OWN, _), _) | (_, None) => 0,
            ((FOLDER, _), Some(beside)) => {
                let link = beside.link(node);
                let own = || beside.generation.load(Ordering::Relaxed);
                link.map_or_else(own, |attached| attached.generation)
            }
            ((number, _), Some(beside)) => {
                let attached = beside.versions.get(number);
                attached.map_or(0, |attached| attached.generation)
            }
        }
    }

    /// Whether an entry of this inode says no more than its type: the root of a version, which need
    /// not be open to be listed, and a link to one.
    pub fn is_only_named(&self, node: u64) -> bool {
        is_version(node) || version_of_link(node).is_some()
    }

    // -- files

    /// Opens a file; for changes only the volume's.
    pub fn open_file(&self, node: u64, flags: i32) -> Result<HandleId> {
        let changes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
        match place_of(node) {
            (FOLDER, _) => Err(Errno::EISDIR.into()),
            (number, _) if changes && number != OWN => Err(Errno::EROFS.into()),
            (number, _) => self
                .at(node, |engine, ino| engine.open_file(ino, flags))
                .map(|id| seen_handle(number, id)),
        }
    }

    /// As `Engine::read_file`.
    pub fn read_file(&self, id: HandleId, offset: u64, size: usize) -> Result<Vec<u8>> {
        self.with(id, |engine, id| engine.read_file(id, offset, size))
    }

    /// As `Engine::read_or_lend`.
    pub fn read_or_lend(&self, id: HandleId, offset: u64, buffer: &mut [u8]) -> Result<ReadBytes> {
        self.with(id, |engine, id| engine.read_or_lend(id, offset, buffer))
    }

    /// As `Engine::seek`.
    pub fn seek(&self, id: HandleId, offset: u64, whence: i32) -> Result<u64> {
        self.with(id, |engine, id| engine.seek(id, offset, whence))
    }

    /// As `Engine::fsync`.
    pub fn fsync(&self, id: HandleId, datasync: bool) -> Result<()> {
        self.with(id, |engine, id| engine.fsync(id, datasync))
    }

    /// Closes a file handle. One of an engine that is closed is closed already.
    pub fn release(&self, id: HandleId) -> Result<()> {
        match (place_of(id.ino), &self.beside) {
            ((OWN, _), _) => Ok(self.engine.release(id)?),
            ((number, ino), Some(beside)) if number != FOLDER => {
                let attached = beside.versions.get(number)?;
                let _ = attached.ask(|engine| engine.release(HandleId { ino, ..id }));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    // -- directories

    /// Opens a directory for reading its entries.
    pub fn open_directory(&self, node: u64) -> Result<HandleId> {
        match (place_of(node), &self.beside) {
            ((FOLDER, _), Some(beside)) => beside.folder.open(node),
            ((number, _), _) => self
                .at(node, Engine::open_directory)
                .map(|id| seen_handle(number, id)),
        }
    }

    /// Closes a directory handle.
    pub fn release_directory(&self, id: HandleId) -> Result<()> {
        match (place_of(id.ino), &self.beside) {
            ((FOLDER, _), Some(beside)) => {
                beside.folder.release(id);
                Ok(())
            }
            _ => self.release(id),
        }
    }

    /// As `Engine::read_directory`.
    pub fn read_directory(
        &self,
        id: HandleId,
        cookie: u64,
        limit: usize,
    ) -> Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        self.list_directory(id, cookie, false, |name, cookie, attr| {
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
        id: HandleId,
        cookie: u64,
        counts: bool,
        mut take: impl FnMut(&[u8], u64, &Attr) -> bool,
    ) -> Result<()> {
        match (place_of(id.ino), &self.beside) {
            ((FOLDER, _), Some(beside)) => {
                self.list_folder(&beside.folder.entries(id)?, cookie, take)
            }
            ((OWN, ROOT_INO), Some(beside)) if beside.is_listed => {
                self.list_root(id, cookie, counts, take)
            }
            ((OWN, _), _) => Ok(self.engine.list_directory(id, cookie, counts, take)?),
            ((number, ino), Some(beside)) => {
                let taken = Cell::new(0);
                let take = |name: &[u8], cookie: u64, attr: &Attr| {
                    let is_taken = take(name, cookie, &seen(number, attr.clone()));
                    let is_counted = is_taken && counts && name != b"." && name != b"..";
                    taken.set(taken.get() + u64::from(is_counted));
                    is_taken
                };
                let id = HandleId { ino, ..id };
                beside.versions.get(number)?.ask_and_count(
                    |engine| engine.list_directory(id, cookie, counts, take),
                    |()| taken.get(),
                )
            }
            _ => Err(Errno::EBADF.into()),
        }
    }

    fn list_folder(
        &self,
        entries: &[Entry],
        cookie: u64,
        mut take: impl FnMut(&[u8], u64, &Attr) -> bool,
    ) -> Result<()> {
        let first = entries.partition_point(|entry| entry.cookie <= cookie);
        for entry in &entries[first..] {
            let only = |mode, nlink| Attr {
                ino: entry.ino,
                mode,
                nlink,
                ..Attr::default()
            };
            let attr = match version_of_link(entry.ino) {
                Some(_) => only(libc::S_IFLNK | 0o777, 1),
                None if is_version(entry.ino) => only(libc::S_IFDIR | 0o555, 2),
                None => self.getattr(entry.ino)?,
            };
            if !take(&entry.name, entry.cookie, &attr) {
                break;
            }
        }
        Ok(())
    }

    fn list_root(
        &self,
        id: HandleId,
        cookie: u64,
        counts: bool,
        mut take: impl FnMut(&[u8], u64, &Attr) -> bool,
    ) -> Result<()> {
        if cookie == HIDDEN_COOKIE {
            return Ok(());
        }
        let mut is_at_end = true;
        self.engine
            .list_directory(id, cookie, counts, |name, cookie, attr| {
                is_at_end = false;
                take(name, cookie, attr)
            })?;
        if is_at_end && !self.has_own_cowfs()? {
            take(HIDDEN_NAME, HIDDEN_COOKIE, &self.getattr(HIDDEN_INO)?);
        }
        Ok(())
    }

    // -- whose inode it is

    fn at<T>(
        &self,
        node: u64,
        call: impl FnOnce(&Engine, Ino) -> cowfs_engine::Result<T>,
    ) -> Result<T> {
        match (place_of(node), &self.beside) {
            ((OWN, ino), _) => Ok(call(&self.engine, ino)?),
            ((number, ino), Some(beside)) if number != FOLDER => {
                let attached = beside.versions.get(number)?;
                attached.ask(|engine| call(engine, ino))
            }
            _ => Err(Errno::EBADF.into()),
        }
    }

    fn with<T>(
        &self,
        id: HandleId,
        call: impl FnOnce(&Engine, HandleId) -> cowfs_engine::Result<T>,
    ) -> Result<T> {
        self.at(id.ino, |engine, ino| call(engine, HandleId { ino, ..id }))
    }
}

impl Beside {
    /// The version that a link leads to.
    fn link(&self, node: u64) -> Option<Arc<Attached>> {
        self.versions.get(version_of_link(node)?).ok()
    }
}

/// As `Mounted::lookup`, in a version.
fn look_up(attached: &Attached, ino: Ino, name: &[u8]) -> Result<Attr> {
    let attr = attached.ask_and_count(|engine| engine.lookup(ino, name), |_| 1)?;
    Ok(seen(attached.number, attr))
}

/// Attributes as the kernel gets them.
fn seen(number: Attachment, attr: Attr) -> Attr {
    Attr {
        ino: node_of(number, attr.ino),
        ..attr
    }
}

fn seen_handle(number: Attachment, id: HandleId) -> HandleId {
    HandleId {
        ino: node_of(number, id.ino),
        ..id
    }
}
