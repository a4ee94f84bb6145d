//! Holes: making them, finding them, and room that is asked for in advance.

use cowfs_base::{Errno, Ino, now_ns};

use crate::attributes::Clears;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::error::Result;
use crate::handle::HandleId;
use crate::row::SIZE_MAX_BYTES;

const KEEP_SIZE: i32 = libc::FALLOC_FL_KEEP_SIZE;
const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE;
const ZERO_RANGE: i32 = libc::FALLOC_FL_ZERO_RANGE;

impl Engine {
    /// `mode` as of fallocate(2): 0, KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE, ZERO_RANGE with or without
    /// KEEP_SIZE; EOPNOTSUPP for others. All set the time of modification, as on ext4. An allocated
    /// range counts in `st_blocks` until it is cut off or punched. Staging only grows at its end,
    /// so no space is reserved: ENOSPC means only that the holes of the range do not fit now.
    pub fn allocate(
        &self,
        id: HandleId,
        offset: u64,
        length: u64,
        mode: i32,
        clears: impl Into<Clears>,
    ) -> Result<()> {
        let (empties, allocates) = match mode & !KEEP_SIZE {
            0 => (false, true),
            ZERO_RANGE => (true, true),
            PUNCH_HOLE if mode & KEEP_SIZE != 0 => (true, false),
            _ => return Err(Errno::EOPNOTSUPP.into()),
        };
        let handle = self.handle(id)?;
        if !handle.is_writable() {
            return Err(Errno::EBADF.into());
        }
        if length == 0 {
            return Err(Errno::EINVAL.into());
        }
        let end = match offset.checked_add(length) {
            Some(end) if end <= SIZE_MAX_BYTES => end,
            _ => return Err(Errno::EFBIG.into()),
        };
        let ino = handle.ino;
        if !empties && length > self.disk()?.staging.free_bytes() {
            self.check_room(ino, offset, end)?;
        }
        let mut state = self.change()?;
        let inode = state.inode(ino)?;
        if !inode.is_file() {
            return Err(Errno::ENODEV.into());
        }
        let mut row = clears.into().apply(inode.row());
        row.ctime_ns = now_ns();
        row.mtime_ns = row.ctime_ns;
        if mode & KEEP_SIZE == 0 {
            row.size = row.size.max(end);
        }
        state.content(ino)?;
        let mut effects = Vec::with_capacity(3);
        let (from, to) = (offset, end);
        if empties {
            effects.push(Effect::Unmap { ino, from, to });
        }
        if allocates {
            effects.push(Effect::Allocate { ino, from, to });
        }
        effects.push(Effect::PutInode(row));
        Engine::record(&mut state, &effects)?;
        if empties {
            state.refused.store_again(ino, offset, end);
        }
        Ok(())
    }

    /// ENOSPC if the holes of the range are more than staging can take.
    fn check_room(&self, ino: Ino, offset: u64, end: u64) -> Result<()> {
        let free_bytes = self.disk()?.staging.free_bytes();
        let state = self.read()?;
        let extents = state.content(ino)?.extents.overlapping(offset, end);
        let mapped_bytes: u64 = extents.map(|extent| extent.clip(offset, end).length).sum();
        if end - offset - mapped_bytes > free_bytes {
            return Err(Errno::ENOSPC.into());
        }
        Ok(())
    }

    /// The next data (SEEK_DATA) or hole (SEEK_HOLE) at or behind `offset`; ENXIO if there is no
    /// more. A file that may have a writable mapping counts as data to its end: stores to it may
    /// still be in the kernel.
    pub fn seek(&self, id: HandleId, offset: u64, whence: i32) -> Result<u64> {
        let handle = self.handle(id)?;
        let may_be_mapped = self.may_be_mapped(handle.ino);
        let state = self.read()?;
        let size = state.inode(handle.ino)?.size;
        if offset >= size {
            return Err(Errno::ENXIO.into());
        }
        let extents = &state.content(handle.ino)?.extents;
        match whence {
            libc::SEEK_DATA if may_be_mapped => Ok(offset),
            libc::SEEK_DATA => match extents.overlapping(offset, size).next() {
                Some(extent) => Ok(extent.offset.max(offset)),
                None => Err(Errno::ENXIO.into()),
            },
            libc::SEEK_HOLE if may_be_mapped => Ok(size),
            libc::SEEK_HOLE => {
                let mut at = offset;
                for extent in extents.overlapping(offset, size) {
                    if extent.offset > at {
                        break;
                    }
                    at = extent.end();
                }
                Ok(at.min(size))
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    pub(crate) fn may_be_mapped(&self, ino: Ino) -> bool {
        self.writable_handles().contains(&ino)
    }
}
