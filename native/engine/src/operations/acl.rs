//! POSIX ACLs: the part that the kernel leaves to the file system. The kernel checks access by them
//! and reads each as the extended attribute `system.posix_acl_access` or
//! `system.posix_acl_default`. Here a mode and an access ACL are kept in step, and new inodes
//! inherit a directory's default ACL.
//!
//! ```text
//! value   version u32 (2), then for each entry: tag permissions u16, id u32; all little-endian
//! tags    1 owner, 2 user, 4 owning group, 8 group, 16 mask, 32 others; id counts for 2 and 8 only
//! ```
//!
//! An access ACL that says no more than a mode is not kept: it becomes the mode. So most inodes
//! have no ACL, and cost no more than a check for whether they have attributes at all.
//!
//! Values come from the kernel, from a version or from a journal. An invalid ACL is refused, never
//! guessed at.

use cowfs_base::{Errno, Ino, Owners};

use crate::attributes::S_ISGID;
use crate::effect::Effect;
use crate::engine::{Engine, touched};
use crate::error::Result;
use crate::row::{Caller, InodeRow, S_IFDIR, S_IFLNK, S_IFMT};
use crate::state::State;
use crate::xattr::check_room_for;

/// Name of an inode's ACL.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the ACL that new entries of a directory inherit.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;
const OWNER: u16 = 1;
const USER: u16 = 2;
const OWNING_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHERS: u16 = 32;
/// The id of an entry that names no user or group.
const NO_ID: u32 = u32::MAX;
/// Attributes that an inode is made with: name and value of each.
pub(crate) type HandedDown = Vec<(&'static [u8], Vec<u8>)>;

/// Ids that the entries of one tag name.
type Map<'a> = &'a dyn Fn(u32) -> u32;

/// Whether the attribute is an ACL.
pub fn is_acl(name: &[u8]) -> bool {
    name == ACL_ACCESS || name == ACL_DEFAULT
}

/// An ACL's value as a mount shows it; EIO for a damaged one.
pub fn shown_acl(value: &[u8], owners: &Owners) -> std::result::Result<Vec<u8>, Errno> {
    let acl = Acl::kept(value)?;
    let (user, group) = (|id| owners.shown_user(id), |id| owners.shown_group(id));
    Ok(acl.mapped(&user, &group).value())
}

/// An ACL's value as stored; EINVAL for an invalid one.
pub fn kept_acl(value: &[u8], owners: &Owners) -> std::result::Result<Vec<u8>, Errno> {
    let acl = Acl::parse(value)?;
    let (user, group) = (|id| owners.kept_user(id), |id| owners.kept_group(id));
    Ok(acl.mapped(&user, &group).value())
}

impl Engine {
    /// Sets an inode's ACL (`ACL_ACCESS`), which changes its mode, or a directory's default one
    /// (`ACL_DEFAULT`). EINVAL for an invalid ACL; EACCES for a default ACL of anything but a
    /// directory.
    pub fn set_acl(&self, ino: Ino, name: &[u8], value: &[u8], caller: &Caller) -> Result<()> {
        let acl = Acl::parse(value)?;
        let mut state = self.change()?;
        let inode = state.inode(ino)?;
        let has_one = state.content(ino)?.xattrs.get(name).is_some();
        let mut row = touched(inode.row());
        let is_default = match name {
            _ if inode.kind() == S_IFLNK => return Err(Errno::EOPNOTSUPP.into()),
            ACL_ACCESS => false,
            ACL_DEFAULT if inode.is_directory() => true,
            ACL_DEFAULT => return Err(Errno::EACCES.into()),
            _ => return Err(Errno::EINVAL.into()),
        };
        if !is_default {
            row.mode = acl.mode(row.mode);
            if caller.is_outside_group(row.gid) {
                row.mode &= !S_ISGID;
            }
        }
        state.check_room()?;
        let change = match !is_default && acl.is_mode_only() {
            true => has_one.then_some(Effect::DropXattr { ino, name }),
            false => {
                check_room_for(&state.content(ino)?.xattrs, name, value)?;
                Some(Effect::PutXattr { ino, name, value })
            }
        };
        let effects: Vec<_> = change.into_iter().chain([Effect::PutInode(row)]).collect();
        Engine::record(&mut state, &effects)
    }
}

/// Gives a new inode the default ACL of its directory, which also limits the mode; without a
/// default ACL, the umask does. A link has no permissions.
pub(crate) fn hand_down(
    state: &State,
    parent: Ino,
    row: &mut InodeRow,
    umask: u32,
) -> Result<HandedDown> {
    if row.mode & S_IFMT == S_IFLNK {
        return Ok(Vec::new());
    }
    let default = match state.inode(parent)?.has_xattrs() {
        true => state.content(parent)?.xattrs.get(ACL_DEFAULT),
        false => None,
    };
    let Some(default) = default else {
        row.mode &= !(umask & !S_IFMT);
        return Ok(Vec::new());
    };
    let mut acls = HandedDown::new();
    let (acl, mode) = Acl::kept(default)?.handed_down(row.mode);
    row.mode = mode;
    if !acl.is_mode_only() {
        acls.push((ACL_ACCESS, acl.value()));
    }
    if mode & S_IFMT == S_IFDIR {
        acls.push((ACL_DEFAULT, default.to_vec()));
    }
    Ok(acls)
}

/// An inode's ACL after a change of its mode; None if it has no ACL.
pub(crate) fn changed_by_mode(state: &State, ino: Ino, mode: u32) -> Result<Option<Vec<u8>>> {
    if !state.inode(ino)?.has_xattrs() {
        return Ok(None);
    }
    let Some(value) = state.content(ino)?.xattrs.get(ACL_ACCESS) else {
        return Ok(None);
    };
    Ok(Some(Acl::kept(value)?.with_mode(mode).value()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    tag: u16,
    id: u32,
    permissions: u16,
}

/// A valid ACL: owner, owning group and others once each, in the order of tags, and a mask if any
/// user or group is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Entry>);

impl Acl {
    /// EINVAL unless the value is a valid ACL.
    pub fn parse(value: &[u8]) -> std::result::Result<Acl, Errno> {
        let (version, entries) = value.split_first_chunk().ok_or(Errno::EINVAL)?;
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        let acl = Acl(entries.iter().map(entry).collect());
        match u32::from_le_bytes(*version) == VERSION && rest.is_empty() && acl.is_valid() {
            true => Ok(acl),
            false => Err(Errno::EINVAL),
        }
    }

    /// As `parse`, of a value that was checked before it was kept.
    pub fn kept(value: &[u8]) -> std::result::Result<Acl, Errno> {
        Acl::parse(value).map_err(|_| Errno::EIO)
    }

    fn is_valid(&self) -> bool {
        let count = |tags: u16| self.0.iter().filter(|it| it.tag & tags != 0).count();
        let are_in_order = self.0.is_sorted_by_key(|it| it.tag);
        let are_possible = self.0.iter().all(|it| {
            let is_named = it.tag & (USER | GROUP) == 0 || it.id != NO_ID;
            it.tag.is_power_of_two() && it.tag <= OTHERS && it.permissions <= 7 && is_named
        });
        let masks = count(MASK);
        let needs_mask = count(USER | GROUP) > 0;
        are_in_order
            && are_possible
            && [OWNER, OWNING_GROUP, OTHERS]
                .iter()
                .all(|tag| count(*tag) == 1)
            && (masks == 1 || (masks == 0 && !needs_mask))
    }

    /// Whether a mode can express it.
    pub fn is_mode_only(&self) -> bool {
        self.0.iter().all(|it| it.tag & (USER | GROUP | MASK) == 0)
    }

    /// `mode` with the permissions that the ACL gives: the group's are the mask, if there is one.
    pub fn mode(&self, mode: u32) -> u32 {
        let permissions = |tag| self.find(tag).map_or(0, |it| u32::from(it.permissions));
        let group = permissions(self.group_tag());
        (mode & !0o777) | permissions(OWNER) << 6 | group << 3 | permissions(OTHERS)
    }

    /// After chmod.
    pub fn with_mode(self, mode: u32) -> Acl {
        self.changed(mode, |_, given| given)
    }

    /// The ACL and the mode of an inode made with `mode` in a directory that has this default ACL;
    /// the umask is ignored.
    pub fn handed_down(self, mode: u32) -> (Acl, u32) {
        let acl = self.changed(mode, |most, given| most & given);
        let mode = acl.mode(mode);
        (acl, mode)
    }

    /// Changes the permissions of owner, group (or mask) and others; `change` gets the old ones and
    /// those of the mode.
    fn changed(mut self, mode: u32, change: impl Fn(u16, u16) -> u16) -> Acl {
        let group = self.group_tag();
        for entry in &mut self.0 {
            let shift = match entry.tag {
                OWNER => 6,
                OTHERS => 0,
                tag if tag == group => 3,
                _ => continue,
            };
            entry.permissions = change(entry.permissions, (mode >> shift) as u16 & 7);
        }
        self
    }

    /// The entry that a mode's group permissions stand for.
    fn group_tag(&self) -> u16 {
        match self.find(MASK) {
            Some(_) => MASK,
            None => OWNING_GROUP,
        }
    }

    fn find(&self, tag: u16) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.tag == tag)
    }

    /// With other ids. Two entries that name the same one afterwards become one, with the
    /// permissions of both.
    fn mapped(mut self, user: Map<'_>, group: Map<'_>) -> Acl {
        for entry in &mut self.0 {
            match entry.tag {
                USER => entry.id = user(entry.id),
                GROUP => entry.id = group(entry.id),
                _ => {}
            }
        }
        self.0.sort_unstable();
        self.0.dedup_by(|next, entry| {
            let is_same = (next.tag, next.id) == (entry.tag, entry.id);
            if is_same {
                entry.permissions |= next.permissions;
            }
            is_same
        });
        self
    }

    /// As it is kept.
    pub fn value(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            value.extend_from_slice(&entry.tag.to_le_bytes());
            value.extend_from_slice(&entry.permissions.to_le_bytes());
            value.extend_from_slice(&entry.id.to_le_bytes());
        }
        value
    }
}

fn entry(bytes: &[u8; ENTRY_BYTES]) -> Entry {
    let [tag_0, tag_1, permissions_0, permissions_1, id @ ..] = *bytes;
    Entry {
        tag: u16::from_le_bytes([tag_0, tag_1]),
        permissions: u16::from_le_bytes([permissions_0, permissions_1]),
        id: u32::from_le_bytes(id),
    }
}
