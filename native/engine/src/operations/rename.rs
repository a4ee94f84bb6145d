//! Rename in its forms. Each is one record: after a crash it has happened or it has not.
//!
//! A whiteout is a character device 0:0. overlayfs has it hide a name of the layers below; to
//! everybody else it is a device.

use cowfs_base::{Errno, Ino, ROOT_INO};

use crate::acl::HandedDown;
use crate::effect::Effect;
use crate::engine::{Engine, touched};
use crate::error::Result;
use crate::inode::Inode;
use crate::namespace::{changed_directory, check_sticky, prepare};
use crate::row::{Caller, InodeRow, check_name};
use crate::state::State;

/// Fail if the new name exists.
pub const RENAME_NOREPLACE: u32 = 1;
/// Let the two entries change places.
pub const RENAME_EXCHANGE: u32 = 2;
/// Leave a whiteout under the old name.
pub const RENAME_WHITEOUT: u32 = 4;

const ALL_FLAGS: u32 = RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT;

/// Longer chains of parents are loops in a damaged index.
const DEPTH_MAX: usize = 1 << 20;

/// One end of a rename.
#[derive(Clone, Copy)]
struct End<'a> {
    parent: Ino,
    name: &'a [u8],
}

impl Engine {
    /// Moves an entry; `flags` is 0 or `RENAME_EXCHANGE`, or some of `RENAME_NOREPLACE` and
    /// `RENAME_WHITEOUT`.
    pub fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: u32,
        caller: &Caller,
    ) -> Result<()> {
        let is_exchange = flags & RENAME_EXCHANGE != 0;
        if flags > ALL_FLAGS || (is_exchange && flags != RENAME_EXCHANGE) {
            return Err(Errno::EINVAL.into());
        }
        check_name(name)?;
        check_name(new_name)?;
        if matches!(new_name, b"." | b"..") {
            return Err(Errno::EINVAL.into());
        }
        let mut state = self.change()?;
        let (from, to) = (
            End { parent, name },
            End {
                parent: new_parent,
                name: new_name,
            },
        );
        if is_exchange {
            return exchange(&mut state, from, to, caller);
        }
        let source = state.child(parent, name)?;
        let target = match state.directory(new_parent)?.get(new_name) {
            Some(_) if flags & RENAME_NOREPLACE != 0 => return Err(Errno::EEXIST.into()),
            Some(ino) => Some(state.inode(ino)?),
            None => None,
        };
        if target.is_some_and(|target| target.ino == source.ino) {
            return Ok(());
        }
        check_move(&state, source, new_parent)?;
        check_sticky(state.inode(parent)?, source, caller)?;
        if let Some(target) = target {
            if target.is_directory() && is_at_or_below(&state, parent, target.ino)? {
                return Err(Errno::ENOTEMPTY.into());
            }
            check_sticky(state.inode(new_parent)?, target, caller)?;
            check_replace(&state, source, target)?;
        }
        let whiteout = (flags & RENAME_WHITEOUT != 0).then_some(caller);
        replace(&mut state, from, to, whiteout)
    }
}

/// A directory cannot move below itself, and no entry can move into a removed directory.
fn check_move(state: &State, source: &Inode, new_parent: Ino) -> Result<()> {
    if state.inode(new_parent)?.nlink == 0 {
        return Err(Errno::ENOENT.into());
    }
    if source.is_directory() && is_at_or_below(state, new_parent, source.ino)? {
        return Err(Errno::EINVAL.into());
    }
    Ok(())
}

fn is_at_or_below(state: &State, mut ino: Ino, ancestor: Ino) -> Result<bool> {
    for _ in 0..DEPTH_MAX {
        if ino == ancestor {
            return Ok(true);
        }
        let parent = state.parent_of(ino);
        if ino == ROOT_INO || parent == 0 {
            return Ok(false);
        }
        ino = parent;
    }
    Err(Errno::ELOOP.into())
}

fn check_replace(state: &State, source: &Inode, target: &Inode) -> Result<()> {
    match (source.is_directory(), target.is_directory()) {
        (true, false) => Err(Errno::ENOTDIR.into()),
        (false, true) => Err(Errno::EISDIR.into()),
        (true, true) if state.directory(target.ino)?.len() > 0 => Err(Errno::ENOTEMPTY.into()),
        _ => Ok(()),
    }
}

/// `whiteout`: who leaves one.
fn replace(state: &mut State, from: End<'_>, to: End<'_>, whiteout: Option<&Caller>) -> Result<()> {
    let source = state.child(from.parent, from.name)?;
    let (ino, is_directory) = (source.ino, source.is_directory());
    let source_row = touched(source.row());
    let victim = match state.directory(to.parent)?.get(to.name) {
        Some(victim) => Some(state.inode(victim)?),
        None if !state.directory(to.parent)?.has_room() => return Err(Errno::ENOSPC.into()),
        None => None,
    };
    let replaces_directory = i32::from(is_directory && victim.is_some());
    let moves_directory = i32::from(is_directory && from.parent != to.parent);
    let left = match whiteout {
        Some(caller) => Some(whiteout_in(state, from.parent, caller)?),
        None => None,
    };
    let mut effects = left_behind(from, left.as_ref());
    effects.push(Effect::PutEntry {
        parent: to.parent,
        name: to.name,
        ino,
    });
    effects.push(Effect::PutInode(source_row));
    let victim = victim.map(|victim| {
        let mut row = touched(victim.row());
        row.nlink = if is_directory {
            0
        } else {
            row.nlink.saturating_sub(1)
        };
        effects.push(Effect::PutInode(row));
        victim.ino
    });
    if from.parent == to.parent {
        effects.push(Effect::PutInode(changed_directory(
            state.inode(from.parent)?,
            -replaces_directory,
        )));
    } else {
        effects.push(Effect::PutInode(changed_directory(
            state.inode(from.parent)?,
            -moves_directory,
        )));
        let gained = moves_directory - replaces_directory;
        effects.push(Effect::PutInode(changed_directory(
            state.inode(to.parent)?,
            gained,
        )));
    }
    Engine::record(state, &effects)?;
    if let Some(victim) = victim {
        state.destroy(victim);
    }
    Ok(())
}

/// A whiteout's row, and the ACLs that its directory hands down to it.
fn whiteout_in(state: &State, parent: Ino, caller: &Caller) -> Result<(InodeRow, HandedDown)> {
    state.check_room()?;
    let mut row = InodeRow {
        mode: libc::S_IFCHR,
        ..InodeRow::default()
    };
    let acls = prepare(state, parent, &mut row, caller)?;
    Ok((row, acls))
}

/// The effects on the old name: the entry is dropped, or becomes a whiteout.
fn left_behind<'a>(from: End<'a>, whiteout: Option<&'a (InodeRow, HandedDown)>) -> Vec<Effect<'a>> {
    let End { parent, name } = from;
    let Some((row, acls)) = whiteout else {
        return vec![Effect::DropEntry { parent, name }];
    };
    let ino = row.ino;
    let mut effects = vec![Effect::PutInode(row.clone())];
    let put = |(name, value): &'a (&'static [u8], Vec<u8>)| Effect::PutXattr { ino, name, value };
    effects.extend(acls.iter().map(put));
    effects.push(Effect::PutEntry { parent, name, ino });
    effects
}

fn exchange(state: &mut State, from: End<'_>, to: End<'_>, caller: &Caller) -> Result<()> {
    let source = state.child(from.parent, from.name)?;
    let target = state.child(to.parent, to.name)?;
    check_sticky(state.inode(from.parent)?, source, caller)?;
    check_sticky(state.inode(to.parent)?, target, caller)?;
    if source.ino == target.ino {
        return Ok(());
    }
    check_move(state, source, to.parent)?;
    check_move(state, target, from.parent)?;
    let gained = i32::from(source.is_directory()) - i32::from(target.is_directory());
    let effects = {
        let mut effects = vec![
            Effect::PutEntry {
                parent: from.parent,
                name: from.name,
                ino: target.ino,
            },
            Effect::PutEntry {
                parent: to.parent,
                name: to.name,
                ino: source.ino,
            },
            Effect::PutInode(touched(source.row())),
            Effect::PutInode(touched(target.row())),
        ];
        let mut put_parent = |ino: Ino, subdirectories: i32| -> Result<()> {
            effects.push(Effect::PutInode(changed_parent(
                state,
                ino,
                subdirectories,
            )?));
            Ok(())
        };
        if from.parent == to.parent {
            put_parent(from.parent, 0)?;
        } else {
            put_parent(from.parent, -gained)?;
            put_parent(to.parent, gained)?;
        }
        effects
    };
    Engine::record(state, &effects)
}

fn changed_parent(state: &State, ino: Ino, subdirectories: i32) -> Result<InodeRow> {
    Ok(changed_directory(state.inode(ino)?, subdirectories))
}
