//! Look-ups, and everything that makes or removes one entry.
//!
//! The kernel has checked search and write permission (`default_permissions`). It leaves to the
//! file system: group inheritance from setgid directories, default ACLs or else the umask (`acl`),
//! sticky bits, link counts, times.

use cowfs_base::{Attr, Errno, Ino, now_ns};

use crate::acl::{HandedDown, hand_down};
use crate::attributes::{S_ISGID, S_ISVTX};
use crate::effect::Effect;
use crate::engine::{Engine, touched};
use crate::error::{Error, Missing, Result};
use crate::handle::HandleId;
use crate::inode::Inode;
use crate::row::{
    Caller, InodeRow, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, TARGET_MAX_BYTES, check_name,
};
use crate::state::State;

impl Engine {
    /// The inode an entry names; raises the kernel's count of references to it. "." is the inode
    /// itself, which need not be a directory, and ".." its parent. Both serve callers that kept a
    /// number from an earlier time (a file handle); ENOENT once the inode is removed.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        check_name(name)?;
        let state = self.read()?;
        let inode = match name {
            b"." | b".." => by_number(&state, parent, name == b"..")?,
            _ => state.child(parent, name)?,
        };
        Ok(referenced(inode))
    }

    /// The attributes of an inode.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        Ok(self.read()?.inode(ino)?.attr())
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let state = self.read()?;
        let inode = state.inode(ino)?;
        if inode.kind() != S_IFLNK {
            return Err(Errno::EINVAL.into());
        }
        Ok(inode.target().to_vec())
    }

    /// Makes a file, FIFO, socket or device node. A mode without a type is a regular file's; EINVAL
    /// for one of no known type.
    pub fn mknod(
        &self,
        parent: Ino,
        name: &[u8],
        mode: u32,
        rdev: u32,
        caller: &Caller,
    ) -> Result<Attr> {
        let mode = if mode & S_IFMT == 0 {
            mode | S_IFREG
        } else {
            mode
        };
        // A row of another type would be journaled, and no replay would take it.
        if !matches!(
            mode & S_IFMT,
            S_IFREG | libc::S_IFIFO | libc::S_IFSOCK | libc::S_IFCHR | libc::S_IFBLK
        ) {
            return Err(Errno::EINVAL.into());
        }
        let row = InodeRow {
            mode,
            rdev,
            ..InodeRow::default()
        };
        self.make(parent, name, row, caller)
    }

    /// Makes a directory.
    pub fn mkdir(&self, parent: Ino, name: &[u8], mode: u32, caller: &Caller) -> Result<Attr> {
        let mode = S_IFDIR | (mode & !S_IFMT);
        self.make(
            parent,
            name,
            InodeRow {
                mode,
                ..InodeRow::default()
            },
            caller,
        )
    }

    /// Makes a symbolic link.
    pub fn symlink(
        &self,
        parent: Ino,
        name: &[u8],
        target: &[u8],
        caller: &Caller,
    ) -> Result<Attr> {
        if target.is_empty() {
            return Err(Errno::ENOENT.into());
        }
        if target.len() > TARGET_MAX_BYTES {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let row = InodeRow {
            mode: S_IFLNK | 0o777,
            size: target.len() as u64,
            target: target.into(),
            ..InodeRow::default()
        };
        self.make(parent, name, row, caller)
    }

    /// Makes a regular file and opens it. An existing one is opened, unless O_EXCL is in `flags`.
    pub fn create(
        &self,
        parent: Ino,
        name: &[u8],
        mode: u32,
        flags: i32,
        caller: &Caller,
    ) -> Result<(Attr, HandleId)> {
        check_name(name)?;
        let mut state = self.change()?;
        let directory = state.directory(parent)?;
        if let Some(ino) = directory.get(name) {
            drop(state);
            if flags & libc::O_EXCL != 0 {
                return Err(Errno::EEXIST.into());
            }
            let fh = self.open_file(ino, flags)?;
            return Ok((referenced(self.read()?.inode(ino)?), fh));
        }
        let mode = S_IFREG | (mode & !S_IFMT);
        let ino = make_in(
            &mut state,
            parent,
            name,
            InodeRow {
                mode,
                ..InodeRow::default()
            },
            caller,
        )?;
        let inode = state.inode(ino)?;
        Ok((referenced(inode), self.handles.open(inode, flags)))
    }

    fn make(&self, parent: Ino, name: &[u8], row: InodeRow, caller: &Caller) -> Result<Attr> {
        check_name(name)?;
        let mut state = self.change()?;
        let ino = make_in(&mut state, parent, name, row, caller)?;
        Ok(referenced(state.inode(ino)?))
    }

    /// Gives an inode another name.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        check_name(name)?;
        let mut state = self.change()?;
        check_absent(&state, parent, name)?;
        let inode = state.inode(ino)?;
        if inode.is_directory() {
            return Err(Errno::EPERM.into());
        }
        if inode.nlink == 0 {
            drop(state);
            return self.name_unnamed(ino, parent, name);
        }
        if inode.nlink == u32::MAX {
            return Err(Errno::EMLINK.into());
        }
        state.check_room()?;
        let mut row = touched(inode.row());
        row.nlink += 1;
        let directory = changed_directory(state.inode(parent)?, 0);
        let effects = [
            Effect::PutInode(row),
            Effect::PutEntry { parent, name, ino },
            Effect::PutInode(directory),
        ];
        Engine::record(&mut state, &effects)?;
        Ok(referenced(state.inode(ino)?))
    }

    /// Removes an entry that is not a directory.
    pub fn unlink(&self, parent: Ino, name: &[u8], caller: &Caller) -> Result<()> {
        check_name(name)?;
        let mut state = self.change()?;
        let victim = state.child(parent, name)?;
        let directory = state.inode(parent)?;
        check_sticky(directory, victim, caller)?;
        if victim.is_directory() {
            return Err(Errno::EISDIR.into());
        }
        let nlink = victim.nlink.saturating_sub(1);
        let (row, directory) = (victim.row(), changed_directory(directory, 0));
        drop_name(
            &mut state,
            (parent, name),
            InodeRow { nlink, ..row },
            directory,
        )
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: Ino, name: &[u8], caller: &Caller) -> Result<()> {
        match name {
            b"." => return Err(Errno::EINVAL.into()),
            b".." => return Err(Errno::ENOTEMPTY.into()),
            _ => check_name(name)?,
        }
        let mut state = self.change()?;
        let victim = state.child(parent, name)?;
        let directory = state.inode(parent)?;
        check_sticky(directory, victim, caller)?;
        if state.directory(victim.ino)?.len() > 0 {
            return Err(Errno::ENOTEMPTY.into());
        }
        let (row, directory) = (victim.row(), changed_directory(directory, -1));
        drop_name(
            &mut state,
            (parent, name),
            InodeRow { nlink: 0, ..row },
            directory,
        )
    }
}

fn drop_name(
    state: &mut State,
    (parent, name): (Ino, &[u8]),
    row: InodeRow,
    directory: InodeRow,
) -> Result<()> {
    let ino = row.ino;
    let effects = [
        Effect::DropEntry { parent, name },
        Effect::PutInode(directory),
        Effect::PutInode(touched(row)),
    ];
    Engine::record(state, &effects)?;
    state.destroy(ino);
    Ok(())
}

/// An inode with a name, or the directory that it is in.
fn by_number(state: &State, ino: Ino, is_parent_meant: bool) -> Result<&Inode> {
    let inode = state.inode(ino)?;
    if inode.nlink == 0 {
        return Err(Errno::ENOENT.into());
    }
    if !is_parent_meant {
        return Ok(inode);
    }
    match inode.directory().ok_or(Errno::ENOTDIR)?.parent {
        0 => Err(Error::NotResident(Missing::Parent(ino))),
        parent => state.inode(parent),
    }
}

/// Completes the row (number, owner, links, times), makes the inode and its entry; returns its
/// number.
fn make_in(
    state: &mut State,
    parent: Ino,
    name: &[u8],
    mut row: InodeRow,
    caller: &Caller,
) -> Result<Ino> {
    check_absent(state, parent, name)?;
    let is_directory = row.mode & S_IFMT == S_IFDIR;
    let acls = prepare(state, parent, &mut row, caller)?;
    let mut directory = changed_directory(state.inode(parent)?, i32::from(is_directory));
    directory.ctime_ns = row.ctime_ns;
    directory.mtime_ns = row.ctime_ns;
    let ino = row.ino;
    let mut effects = Vec::with_capacity(3 + acls.len());
    effects.push(Effect::PutInode(row));
    effects.extend(
        acls.iter()
            .map(|(name, value)| Effect::PutXattr { ino, name, value }),
    );
    effects.push(Effect::PutEntry { parent, name, ino });
    effects.push(Effect::PutInode(directory));
    state.check_room()?;
    Engine::record(state, &effects)?;
    Ok(ino)
}

/// Makes a row that of an inode which a directory gets now; the ACLs that go with it.
pub(crate) fn prepare(
    state: &State,
    parent: Ino,
    row: &mut InodeRow,
    caller: &Caller,
) -> Result<HandedDown> {
    let acls = hand_down(state, parent, row, caller.umask)?;
    complete_row(row, state.inode(parent)?, caller);
    row.ino = state.number_for(row.mode)?;
    Ok(acls)
}

/// Owner, set-id bits, link count and times of an inode made in a directory now.
fn complete_row(row: &mut InodeRow, directory: &Inode, caller: &Caller) {
    let is_directory = row.mode & S_IFMT == S_IFDIR;
    row.uid = caller.owners.kept_user(caller.uid);
    row.gid = caller.owners.kept_group(caller.gid);
    row.nlink = if is_directory { 2 } else { 1 };
    if directory.mode & S_ISGID != 0 {
        row.gid = directory.gid;
        if is_directory {
            row.mode |= S_ISGID;
        } else if row.mode & S_ISGID != 0
            && row.mode & 0o010 != 0
            && caller.is_outside_group(row.gid)
        {
            row.mode &= !S_ISGID;
        }
    }
    row.ctime_ns = now_ns();
    row.mtime_ns = row.ctime_ns;
    row.atime_ns = row.ctime_ns;
}

/// Refuses where an entry cannot be made: it exists, or the directory has been removed.
pub(crate) fn check_absent(state: &State, parent: Ino, name: &[u8]) -> Result<()> {
    let directory = state.directory(parent)?;
    if directory.get(name).is_some() || name == b"." || name == b".." {
        return Err(Errno::EEXIST.into());
    }
    if state.inode(parent)?.nlink == 0 {
        return Err(Errno::ENOENT.into());
    }
    if !directory.has_room() {
        return Err(Errno::ENOSPC.into());
    }
    Ok(())
}

/// The row of a directory whose entries change now; `subdirectories` is by how many its link count
/// does.
pub(crate) fn changed_directory(directory: &Inode, subdirectories: i32) -> InodeRow {
    let mut row = directory.row();
    row.ctime_ns = now_ns();
    row.mtime_ns = row.ctime_ns;
    row.nlink = row.nlink.saturating_add_signed(subdirectories);
    row
}

/// In a sticky directory only its owner, the victim's owner and root may remove or rename.
pub(crate) fn check_sticky(directory: &Inode, victim: &Inode, caller: &Caller) -> Result<()> {
    let is_owner = caller.uid == 0 || caller.owns(victim.uid) || caller.owns(directory.uid);
    if directory.mode & S_ISVTX != 0 && !is_owner {
        return Err(Errno::EPERM.into());
    }
    Ok(())
}

/// The attributes, for a reply that makes the kernel hold one more reference.
pub(crate) fn referenced(inode: &Inode) -> Attr {
    inode.raise_lookups();
    inode.attr()
}
