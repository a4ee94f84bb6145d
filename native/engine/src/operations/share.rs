//! Extents in two places: copies within a volume that move no data, and files that are named late.
//!
//! Both journal extents that exist already. An extent with a chunk is named by the chunk. An extent
//! that is only staged needs the checksum of its bytes in the new record, since the record that
//! staged them may be gone before the replay. So the bytes are read once, without a lock. Before
//! the record is written, the same extents must still be mapped in the same way. A count of changes
//! would not do: a commit gives extents their chunks without changing a byte, and their segments
//! may go from then on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use cowfs_base::{Attr, Errno, Ino, Segment, now_ns};

use crate::attributes::Clears;
use crate::effect::Effect;
use crate::engine::{Engine, touched};
use crate::error::{Error, Result};
use crate::extents::Extent;
use crate::handle::{Handle, HandleId};
use crate::namespace::{changed_directory, check_absent, prepare, referenced};
use crate::requests::set_result;
use crate::row::{Caller, InodeRow, S_IFMT, S_IFREG, SIZE_MAX_BYTES};
use crate::state::State;

/// One copy reads and journals at most this much; a caller that wants more asks again.
const STAGED_MAX_BYTES: u64 = 64 << 20;
const EXTENTS_MAX: usize = 4096;
/// A file that is written all the time is copied by its bytes, and named with the state locked.
const ATTEMPTS: usize = 4;

/// crc32c of staged ranges (segment, offset, length), as far as an earlier attempt has read them.
type Known = HashMap<(Segment, u64, u64), u32>;

/// The extents of [offset, offset + length) of a file at one moment.
struct Snapshot {
    extents: Vec<Extent>,
    offset: u64,
    length: u64,
}

impl Snapshot {
    /// Whether the file still has the same extents. If so, its staged bytes are needed, and their
    /// segments stay at least until the state is unlocked.
    fn is_still_mapped(&self, state: &State, ino: Ino) -> Result<bool> {
        let end = self.offset + self.length;
        let now = state.content(ino)?.extents.overlapping(self.offset, end);
        let is_same = now
            .map(|extent| extent.clip(self.offset, end))
            .eq(self.extents.iter().cloned());
        Ok(is_same && state.inode(ino)?.size >= end)
    }

    /// The parts of it that are holes, as (from, to).
    fn holes(&self) -> Vec<(u64, u64)> {
        let mut holes = Vec::new();
        let mut from = self.offset;
        for extent in &self.extents {
            if extent.offset > from {
                holes.push((from, extent.offset));
            }
            from = extent.end();
        }
        if from < self.offset + self.length {
            holes.push((from, self.offset + self.length));
        }
        holes
    }
}

impl Engine {
    /// Copies up to `length` bytes by sharing extents; returns how many, 0 at the source's end.
    /// EOPNOTSUPP where only a copy of the bytes will do: the source may have a writable mapping,
    /// or one of the files has no name.
    pub fn copy_range(
        &self,
        source: (HandleId, u64),
        target: (HandleId, u64),
        length: u64,
        clears: impl Into<Clears>,
    ) -> Result<u64> {
        let clears = clears.into();
        let (from, to) = (self.handle(source.0)?, self.handle(target.0)?);
        if !to.is_writable() || from.id.access() == libc::O_WRONLY {
            return Err(Errno::EBADF.into());
        }
        if self.may_be_mapped(from.ino) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let mut known = Known::new();
        for _ in 0..ATTEMPTS {
            let snapshot = self.snapshot_for_copy(&from, source.1, &to, target.1, length)?;
            if snapshot.length == 0 {
                return Ok(0);
            }
            let place = |offset| offset - source.1 + target.1;
            let maps = self.maps(to.ino, &snapshot.extents, place, &mut known);
            self.play_interlude();
            let mut state = self.change()?;
            if !snapshot.is_still_mapped(&state, from.ino)? {
                continue;
            }
            state.check_room()?;
            // An error while the source changed means nothing: overwritten bytes may be gone.
            let maps = maps?;
            let end = target.1 + snapshot.length;
            let mut row = clears.apply(state.inode(to.ino)?.row());
            row.size = row.size.max(end);
            row.mtime_ns = now_ns();
            row.ctime_ns = row.mtime_ns;
            // Only the holes, not the whole range: if a power loss takes the bytes of a map, what
            // was there before shows again.
            let unmap = |(from, end)| Effect::Unmap {
                ino: to.ino,
                from: place(from),
                to: place(end),
            };
            let mut effects: Vec<Effect<'_>> = snapshot.holes().into_iter().map(unmap).collect();
            effects.extend(maps);
            effects.push(Effect::PutInode(row));
            set_result(snapshot.length);
            Engine::record(&mut state, &effects)?;
            state.refused.store_again(to.ino, target.1, end);
            return Ok(snapshot.length);
        }
        Err(Errno::EOPNOTSUPP.into())
    }

    fn snapshot_for_copy(
        &self,
        from: &Handle,
        offset: u64,
        to: &Handle,
        target_offset: u64,
        length: u64,
    ) -> Result<Snapshot> {
        let state = self.read()?;
        let (source, target) = (state.inode(from.ino)?, state.inode(to.ino)?);
        if !source.is_file() || !target.is_file() {
            return Err(Errno::EINVAL.into());
        }
        if source.nlink == 0 || target.nlink == 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let length = length.min(source.size.saturating_sub(offset));
        let overlaps = from.ino == to.ino
            && offset < target_offset.saturating_add(length)
            && target_offset < offset.saturating_add(length);
        if overlaps {
            return Err(Errno::EINVAL.into());
        }
        match target_offset.checked_add(length) {
            Some(end) if end <= SIZE_MAX_BYTES => {}
            _ => return Err(Errno::EFBIG.into()),
        }
        state.content(to.ino)?;
        snapshot(&state, from.ino, offset, length)
    }

    /// Effects that map the extents in `ino`, each where `place` puts it.
    fn maps(
        &self,
        ino: Ino,
        extents: &[Extent],
        place: impl Fn(u64) -> u64,
        known: &mut Known,
    ) -> Result<Vec<Effect<'static>>> {
        let mut map = |extent: &Extent| -> Result<Effect<'static>> {
            let crc = match (&extent.chunk, extent.staged) {
                (Some(_), _) => None,
                (None, Some(staged)) => {
                    let range = (staged.segment(), staged.offset, extent.length);
                    Some(match known.entry(range) {
                        Entry::Occupied(read) => *read.get(),
                        Entry::Vacant(unread) => {
                            let staging = &self.disk()?.staging;
                            *unread.insert(staging.checksum(range.0, range.1, range.2)?)
                        }
                    })
                }
                (None, None) => {
                    let offset = extent.offset;
                    return Err(Error::fault(format_args!(
                        "a copy into inode {ino}: the source's bytes from {offset} on are lost"
                    )));
                }
            };
            let extent = Extent {
                offset: place(extent.offset),
                ..extent.clone()
            };
            Ok(Effect::Map { ino, extent, crc })
        };
        extents.iter().map(&mut map).collect()
    }

    /// Makes and opens a regular file that has no name; it is gone with its last handle unless
    /// `link` gives it one. Its row is journaled in any case: after a crash the file may be gone,
    /// and its number must not be given out again.
    pub fn create_unnamed(
        &self,
        parent: Ino,
        mode: u32,
        flags: i32,
        caller: &Caller,
    ) -> Result<(Attr, HandleId)> {
        let mut state = self.change()?;
        let mut row = InodeRow {
            mode: S_IFREG | (mode & !S_IFMT),
            ..InodeRow::default()
        };
        let acls = prepare(&state, parent, &mut row, caller)?;
        row.nlink = 0;
        let ino = row.ino;
        let mut effects = vec![Effect::PutInode(row)];
        effects.extend(
            acls.iter()
                .map(|(name, value)| Effect::PutXattr { ino, name, value }),
        );
        Engine::record(&mut state, &effects)?;
        state.unnamed.insert(ino);
        let inode = state.inode(ino)?;
        Ok((referenced(inode), self.handles.open(inode, flags)))
    }

    /// The first name of an inode made by `create_unnamed`: only now its row, bytes and attributes
    /// are journaled. ENOENT for an inode that has lost its names.
    ///
    /// If the file changes during each attempt, the last attempt reads the new bytes under the
    /// state's lock. They were written a moment ago, so they are in the page cache.
    pub(crate) fn name_unnamed(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let mut known = Known::new();
        for attempt in 1.. {
            let seen = {
                let state = self.read()?;
                snapshot_of_unnamed(&state, ino)?
            };
            let maps = self.maps(ino, &seen.extents, |offset| offset, &mut known);
            self.play_interlude();
            let mut state = self.change()?;
            check_absent(&state, parent, name)?;
            state.check_room()?;
            let now = snapshot_of_unnamed(&state, ino)?;
            let maps = match now.extents == seen.extents {
                true => maps?,
                false if attempt < ATTEMPTS => continue,
                false => self.maps(ino, &now.extents, |offset| offset, &mut known)?,
            };
            let content = state.content(ino)?;
            let xattrs = content.xattrs.clone();
            let allocated: Vec<(u64, u64)> = content.extents.allocated().collect();
            let mut row = touched(state.inode(ino)?.row());
            row.nlink = 1;
            let directory = changed_directory(state.inode(parent)?, 0);
            let mut effects = vec![Effect::PutInode(row)];
            effects.extend(maps);
            let allocate = |(from, to)| Effect::Allocate { ino, from, to };
            effects.extend(allocated.into_iter().map(allocate));
            effects.extend(xattrs.pairs().iter().map(|(name, value)| Effect::PutXattr {
                ino,
                name,
                value,
            }));
            effects.push(Effect::PutEntry { parent, name, ino });
            effects.push(Effect::PutInode(directory));
            Engine::record(&mut state, &effects)?;
            state.unnamed.remove(&ino);
            return Ok(referenced(state.inode(ino)?));
        }
        unreachable!("the last attempt returns")
    }
}

fn snapshot_of_unnamed(state: &State, ino: Ino) -> Result<Snapshot> {
    if !state.unnamed.contains(&ino) {
        return Err(Errno::ENOENT.into());
    }
    let content = state.content(ino)?;
    Ok(Snapshot {
        extents: content.extents.iter().cloned().collect(),
        offset: 0,
        length: state.inode(ino)?.size,
    })
}

/// As much of [offset, offset + length) as one copy takes.
fn snapshot(state: &State, ino: Ino, offset: u64, length: u64) -> Result<Snapshot> {
    let content = state.content(ino)?;
    let (mut extents, mut staged_bytes, mut end) = (Vec::new(), 0, offset + length);
    for extent in content.extents.overlapping(offset, offset + length) {
        let mut part = extent.clip(offset, offset + length);
        let room_bytes = STAGED_MAX_BYTES - staged_bytes;
        if extents.len() == EXTENTS_MAX || room_bytes == 0 {
            end = part.offset;
            break;
        }
        if part.chunk.is_none() {
            if part.length > room_bytes {
                part = part.clip(part.offset, part.offset + room_bytes);
                end = part.end();
            }
            staged_bytes += part.length;
        }
        let is_last = end == part.end();
        extents.push(part);
        if is_last {
            break;
        }
    }
    Ok(Snapshot {
        extents,
        offset,
        length: end - offset,
    })
}
