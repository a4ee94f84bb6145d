//! Everything a mount has in memory, and the only code that changes it: `apply`.
//!
//! `apply` takes one effect, marks its changes in `changes`, and saves the old value first if a
//! frozen layer still needs it. Operations check and build effects beforehand; replay feeds decoded
//! ones. Inodes without a name (open but unlinked) are outside all layers; `nameless` says when they
//! are journaled.
//!
//! Locks: the state lives behind the engine's one read-write lock and does no I/O.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use cowfs_base::{Errno, Ino, LAST_INO, Layer, ROOT_INO, Segment, monotonic_ns};
use cowfs_journal::Journal;
use cowfs_staging::Ballast;

use crate::amount::{Amount, Apart};
use crate::away::Away;
use crate::changes::{Changes, EXTENTS, EntryAt, Frozen, ROW, Saved, XATTRS};
use crate::content::{Content, Xattrs};
use crate::cookies::Cookies;
use crate::directory::Directory;
use crate::effect::Effect;
use crate::error::{Error, Missing, Result};
use crate::extents::Extent;
use crate::inode::{Inode, InodeTable};
use crate::nameless::Nameless;
use crate::refused::Refused;
use crate::requests::Requests;
use crate::row::InodeRow;

/// The run of numbers kept for directories: for the first ones of a layer, doubled each time, and
/// the maximum. A row takes some 45 bytes of a page of 16 KiB.
pub const DIRECTORY_RUN: (u64, u64) = (16, 1024);

/// The in-memory file system.
#[derive(Default)]
pub(crate) struct State {
    pub inodes: InodeTable,
    /// Data about evicted inodes.
    pub away: Away,
    pub next_ino: Ino,
    /// Numbers below `next_ino` that directories made in this layer get.
    spare: Range<Ino>,
    /// How many of them there were when they were put aside; 0: none in this layer.
    run: u64,
    /// The layer that takes changes now.
    pub layer: Layer,
    pub changes: Changes,
    pub frozen: Option<Frozen>,
    /// The source of a checkpoint under way: a copy of `changes`. They stay there as well.
    pub snapshot: Option<Frozen>,
    /// Bytes of older journals that a checkpoint made now would replace, besides those of
    /// `journal`.
    pub older_bytes: u64,
    /// None for a read-only mount, or before the replay.
    pub journal: Option<Journal>,
    /// Space for its records on a full disk.
    pub ballast: Option<Arc<Ballast>>,
    /// Segments whose bytes may be read.
    pub segments: HashSet<Segment>,
    /// Segments with bytes of inodes without a name, perhaps with others' too.
    pub nameless_segments: BTreeSet<Segment>,
    /// Segments that a survey counts, and that were not mapped again since it began (`survey`).
    pub surveyed: BTreeSet<Segment>,
    /// Inodes without a name that can still be reached.
    pub orphans: HashSet<Ino>,
    /// Orphans that never had a name.
    pub unnamed: HashSet<Ino>,
    /// The amount of the base version.
    pub base: Amount,
    /// The limit for the volume's regular files together; 0: no limit.
    pub quota_bytes: u64,
    pub apart: Apart,
    /// The size of all attributes of inodes without a name.
    pub nameless_xattr_bytes: u64,
    /// Files with lost bytes; perhaps these were overwritten since.
    pub lost: HashSet<Ino>,
    pub is_closed: bool,
    /// A change was abandoned halfway, so the state cannot be trusted.
    pub is_broken: bool,
    /// Bytes stored through mappings that could not be staged.
    pub refused: Refused,
    pub requests: Arc<Requests>,
    pub nameless: Nameless,
    pub cookies: Cookies,
    data_version: u64,
}

impl State {
    pub fn new(root: &InodeRow, next_ino: Ino) -> std::result::Result<State, Errno> {
        root.check()?;
        let is_root = root.ino == ROOT_INO && root.mode & libc::S_IFMT == libc::S_IFDIR;
        // A root without a link would count as removed: changes in it would not be journaled.
        if !is_root || root.nlink == 0 || !(ROOT_INO + 1..=LAST_INO).contains(&next_ino) {
            return Err(Errno::EINVAL);
        }
        let mut state = State {
            next_ino,
            changes: Changes::starting_at(next_ino),
            ..State::default()
        };
        state.add(Inode::loaded(root));
        state
            .directory_of_mut(ROOT_INO)
            .expect("the root is a directory")
            .parent = ROOT_INO;
        Ok(state)
    }

    /// The number of an inode made now. Directories take theirs from runs of their own. So a
    /// listing of a directory reads its subdirectories' rows side by side, not each among the rows
    /// of its files. ENOSPC: the volume has used up its numbers.
    pub fn number_for(&self, mode: u32) -> Result<Ino> {
        if mode & libc::S_IFMT == libc::S_IFDIR && !self.spare.is_empty() {
            return Ok(self.spare.start);
        }
        if self.next_ino > LAST_INO - DIRECTORY_RUN.1 {
            return Err(Errno::ENOSPC.into());
        }
        Ok(self.next_ino)
    }

    /// A layer begins: its new inodes have numbers that no earlier layer knows.
    pub fn give_up_spare_numbers(&mut self) {
        self.spare = 0..0;
        self.run = 0;
    }

    fn note_number(&mut self, row: &InodeRow) {
        if row.ino == self.spare.start {
            self.spare.start += 1;
        }
        if row.ino < self.next_ino {
            return;
        }
        self.next_ino = row.ino.saturating_add(1);
        if row.mode & libc::S_IFMT == libc::S_IFDIR {
            self.run = (2 * self.run).clamp(DIRECTORY_RUN.0, DIRECTORY_RUN.1);
            let end = row.ino.saturating_add(self.run);
            self.spare = self.next_ino..end;
            self.next_ino = end;
        }
    }

    /// EBADF once closed, EIO once broken.
    pub fn check_usable(&self) -> std::result::Result<(), Errno> {
        match (self.is_closed, self.is_broken) {
            (true, _) => Err(Errno::EBADF),
            (_, true) => Err(Errno::EIO),
            _ => Ok(()),
        }
    }

    /// Bytes of journal that a checkpoint made now would replace.
    pub fn logged_bytes(&self) -> u64 {
        self.older_bytes + self.journal.as_ref().map_or(0, Journal::logged_bytes)
    }

    // -- looking things up

    pub fn inode(&self, ino: Ino) -> Result<&Inode> {
        let inode = self.inodes.get(ino).ok_or_else(|| self.absent(ino))?;
        inode.note_use();
        Ok(inode)
    }

    /// Why an inode is not in memory: it was removed or never was, or only the base version can
    /// tell.
    fn absent(&self, ino: Ino) -> Error {
        let committed = self.frozen.as_ref().map(|frozen| &frozen.changes);
        let first_new = committed.map_or(self.changes.first_ino, |changes| changes.first_ino);
        if ino == 0 || ino >= first_new || self.is_changed(ino) {
            return Error::Os(Errno::ENOENT);
        }
        Error::NotResident(Missing::Inode(ino))
    }

    /// The directory that a directory is in; 0: not known.
    pub fn parent_of(&self, ino: Ino) -> Ino {
        let directory = self.inodes.get(ino).and_then(Inode::directory);
        match directory {
            Some(directory) => directory.parent,
            None => self.away.parent(ino).unwrap_or(0),
        }
    }

    /// The entries of a directory, which must be resident.
    pub fn directory(&self, ino: Ino) -> Result<&Directory> {
        let directory = self
            .inode(ino)?
            .directory()
            .ok_or(Error::Os(Errno::ENOTDIR))?;
        if !directory.is_resident {
            return Err(Error::NotResident(Missing::Directory(ino)));
        }
        Ok(directory)
    }

    /// Extents and xattrs of an inode, which must be resident.
    pub fn content(&self, ino: Ino) -> Result<&Content> {
        self.inode(ino)?
            .content
            .as_deref()
            .ok_or(Error::NotResident(Missing::Content { ino, wanted: 0..0 }))
    }

    /// The inode an entry names.
    pub fn child(&self, parent: Ino, name: &[u8]) -> Result<&Inode> {
        let ino = self.directory(parent)?.get(name).ok_or(Errno::ENOENT)?;
        self.inode(ino)
    }

    pub fn directory_of_mut(&mut self, ino: Ino) -> Option<&mut Directory> {
        self.inodes.get_mut(ino)?.directory_mut()
    }

    // -- changing them

    /// Adds an inode, with the data remembered from an earlier stay.
    pub fn add(&mut self, mut inode: Inode) {
        let returned = self.away.take(inode.ino);
        inode.set_references(returned.references);
        if let Some(directory) = inode.directory_mut() {
            directory.parent = returned.parent;
        }
        self.inodes.insert(inode);
    }

    /// Applies one effect; the error says why a replayed one cannot be.
    pub fn apply(&mut self, effect: &Effect<'_>) -> std::result::Result<(), &'static str> {
        match *effect {
            Effect::PutInode(ref row) => self.put_inode(row),
            Effect::PutEntry { parent, name, ino } => self.put_entry(parent, name, ino)?,
            Effect::DropEntry { parent, name } => self.drop_entry(parent, name)?,
            Effect::Map {
                ino, ref extent, ..
            } => self.map(ino, extent)?,
            Effect::Unmap { ino, from, to } => {
                if from == 0 && to == u64::MAX {
                    // The row counts the mapped bytes, which are forgotten next.
                    self.save_row(ino);
                    self.assume_no_content(ino);
                }
                self.change_extents(ino)?.extents.unmap(from, to);
            }
            Effect::Allocate { ino, from, to } => {
                self.change_extents(ino)?.extents.allocate(from, to);
            }
            Effect::PutXattr { ino, name, value } => {
                self.change_xattrs(ino, |xattrs| xattrs.put(name, value))?
            }
            Effect::DropXattr { ino, name } => {
                self.change_xattrs(ino, |xattrs| xattrs.drop(name))?
            }
            Effect::ClearXattrs(ino) => {
                self.change_xattrs(ino, |xattrs| *xattrs = Xattrs::default())?
            }
            Effect::RemoveInode(ino) => self.remove_inode(ino),
            // For staging; nothing here is changed by it.
            Effect::Sums { .. } => {}
            Effect::Done {
                connection,
                unique,
                result,
            } => self.requests.add(connection, unique, result),
            Effect::Connection(connection) => self.begin_connection(connection),
            Effect::Gone(ino) => self.destroy(ino),
            Effect::Cookies { ino, ref cookies } => self.set_cookies(ino, cookies),
        }
        Ok(())
    }

    fn map(&mut self, ino: Ino, extent: &Extent) -> std::result::Result<(), &'static str> {
        let ends = |offset: u64| offset.checked_add(extent.length).is_some();
        if extent.length == 0
            || !ends(extent.offset)
            || !extent.staged.is_none_or(|staged| ends(staged.offset))
        {
            return Err("an impossible extent");
        }
        let content = self.change_extents(ino)?;
        content.extents.map(extent.clone());
        match (&extent.chunk, extent.staged) {
            (Some(_), _) => {}
            (None, None) => {
                self.lost.insert(ino);
            }
            (None, Some(staged)) => {
                let segment = staged.segment();
                content.unsynced.add(segment);
                self.segments.insert(segment);
                self.surveyed.remove(&segment);
                if self.is_named(ino) {
                    self.changes.segments.insert(segment);
                } else {
                    self.nameless_segments.insert(segment);
                }
            }
        }
        Ok(())
    }

    /// The inode has lost its last name. If neither the base version nor an earlier record has the
    /// inode, its removal needs no record.
    fn remove_inode(&mut self, ino: Ino) {
        self.save_row(ino);
        self.discount_xattrs(ino);
        if let Some(inode) = self.inodes.get_mut(ino) {
            self.changes.growth -= Amount::of(inode);
            inode.nlink = 0;
            self.orphans.insert(ino);
            self.changes.mark(ino, ROW);
        }
        self.count_xattrs(ino);
    }

    fn put_inode(&mut self, row: &InodeRow) {
        self.note_number(row);
        self.save_row(row.ino);
        self.discount_xattrs(row.ino);
        let had_name = match self.inodes.get_mut(row.ino) {
            Some(inode) => {
                let had_name = inode.nlink > 0;
                self.changes.growth -= Amount::of(inode);
                inode.set_row(row);
                self.changes.growth += Amount::of(inode);
                had_name
            }
            None => {
                let inode = Inode::created(row);
                self.changes.growth += Amount::of(&inode);
                self.add(inode);
                row.nlink > 0
            }
        };
        self.count_xattrs(row.ino);
        if row.nlink == 0 {
            self.orphans.insert(row.ino);
        } else {
            self.orphans.remove(&row.ino);
            self.note_named(row.ino);
        }
        if had_name || row.nlink > 0 {
            self.changes.mark(row.ino, ROW);
        }
    }

    fn put_entry(
        &mut self,
        parent: Ino,
        name: &[u8],
        ino: Ino,
    ) -> std::result::Result<(), &'static str> {
        if !self.inodes.contains(ino) {
            return Err("an entry names an inode that is not there");
        }
        let existed = self.save_entry(parent, name)?;
        self.changes.mark_put(EntryAt { parent, name }, existed);
        self.directory_of_mut(parent)
            .ok_or("not a directory")?
            .put(name, ino);
        self.note_cookies(parent, false);
        if let Some(child) = self.directory_of_mut(ino) {
            child.parent = parent;
        }
        Ok(())
    }

    fn drop_entry(&mut self, parent: Ino, name: &[u8]) -> std::result::Result<(), &'static str> {
        if self.save_entry(parent, name)? {
            self.changes.mark_dropped(EntryAt { parent, name });
            self.directory_of_mut(parent)
                .ok_or("not a directory")?
                .drop(name);
            self.note_cookies(parent, true);
        }
        Ok(())
    }

    fn is_named(&self, ino: Ino) -> bool {
        self.inodes.get(ino).is_some_and(|inode| inode.nlink > 0)
    }

    /// A number that no content has had.
    pub fn next_data_version(&mut self) -> u64 {
        self.data_version += 1;
        self.data_version
    }

    fn change_extents(&mut self, ino: Ino) -> std::result::Result<&mut Content, &'static str> {
        self.save_row(ino);
        self.save_extents(ino);
        if self.is_named(ino) {
            self.changes.mark(ino, EXTENTS);
        }
        let version = self.next_data_version();
        let content = self.content_mut(ino)?;
        content.version = version;
        content.written_ns = monotonic_ns();
        Ok(content)
    }

    fn change_xattrs(
        &mut self,
        ino: Ino,
        change: impl FnOnce(&mut Xattrs),
    ) -> std::result::Result<(), &'static str> {
        self.save_row(ino);
        self.save_xattrs(ino);
        self.discount_xattrs(ino);
        let xattrs = &mut self.content_mut(ino)?.xattrs;
        let before = xattrs.bytes() as i128;
        change(xattrs);
        let growth = xattrs.bytes() as i128 - before;
        if self.is_named(ino) {
            self.changes.growth.bytes += growth;
            self.changes.mark(ino, XATTRS);
        }
        self.count_xattrs(ino);
        Ok(())
    }

    /// An inode that is about to lose all its extents need not load them first, unless it has
    /// xattrs.
    fn assume_no_content(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(ino)
            && inode.content.is_none()
            && !inode.has_xattrs()
        {
            inode.content = Some(Box::default());
        }
    }

    fn content_mut(&mut self, ino: Ino) -> std::result::Result<&mut Content, &'static str> {
        let inode = self
            .inodes
            .get_mut(ino)
            .ok_or("an inode that is not there")?;
        inode
            .content
            .as_deref_mut()
            .ok_or("an inode whose content is not resident")
    }

    /// Forgets an unreachable inode; a frozen layer keeps the values that it needs.
    pub fn destroy(&mut self, ino: Ino) {
        if self
            .inodes
            .get(ino)
            .is_none_or(|inode| !inode.is_unreachable())
        {
            return;
        }
        self.save_row(ino);
        self.save_extents(ino);
        self.save_xattrs(ino);
        self.refused.forget(ino);
        self.discount_xattrs(ino);
        self.inodes.remove(ino);
        self.orphans.remove(&ino);
        self.unnamed.remove(&ino);
        self.note_gone(ino);
        self.lost.remove(&ino);
        if ino >= self.changes.first_ino {
            self.changes.inodes.remove(ino);
        }
    }

    // -- saving old values for the frozen layer and the snapshot, at the first change after they
    // were taken

    /// Whether no old values have to be looked up.
    fn needs_no_old_values(&self) -> bool {
        self.frozen.is_none() && self.snapshot.is_none()
    }

    fn save_row(&mut self, ino: Ino) {
        if self.needs_no_old_values() {
            return;
        }
        let inode = self.inodes.get(ino);
        for saved in saved_in(
            [&mut self.frozen, &mut self.snapshot],
            ino,
            ROW | EXTENTS | XATTRS,
        ) {
            if saved.row.is_none() {
                saved.row = inode.map(Inode::row);
            }
        }
    }

    fn save_extents(&mut self, ino: Ino) {
        if self.needs_no_old_values() {
            return;
        }
        let content = self
            .inodes
            .get(ino)
            .and_then(|inode| inode.content.as_deref());
        for saved in saved_in([&mut self.frozen, &mut self.snapshot], ino, EXTENTS) {
            if saved.extents.is_none() {
                saved.extents = content.map(|content| (content.version, content.extents.clone()));
            }
        }
    }

    fn save_xattrs(&mut self, ino: Ino) {
        if self.needs_no_old_values() {
            return;
        }
        let content = self
            .inodes
            .get(ino)
            .and_then(|inode| inode.content.as_deref());
        for saved in saved_in([&mut self.frozen, &mut self.snapshot], ino, XATTRS) {
            if saved.xattrs.is_none() {
                saved.xattrs = content.map(|content| content.xattrs.clone());
            }
        }
    }

    /// Returns whether the entry exists.
    fn save_entry(&mut self, parent: Ino, name: &[u8]) -> std::result::Result<bool, &'static str> {
        let directory = self
            .inodes
            .get(parent)
            .and_then(Inode::directory)
            .ok_or("a directory that is not there")?;
        if !directory.is_resident {
            return Err("a directory that is not resident");
        }
        let ino = directory.get(name);
        let at = EntryAt { parent, name };
        for frozen in self.frozen.iter_mut().chain(&mut self.snapshot) {
            if frozen.changes.entries.contains(at) && !frozen.saved_entries.contains_key(&at) {
                frozen.saved_entries.insert(at.into(), ino.unwrap_or(0));
            }
        }
        Ok(ino.is_some())
    }
}

/// The old values of the inode, in each frozen layer that has a change of the kind `what`.
fn saved_in(
    frozen: [&mut Option<Frozen>; 2],
    ino: Ino,
    what: u8,
) -> impl Iterator<Item = &mut Saved> {
    frozen
        .into_iter()
        .flatten()
        .filter(move |frozen| frozen.changes.has(ino, what))
        .map(move |frozen| frozen.saved.entry(ino).or_default())
}
