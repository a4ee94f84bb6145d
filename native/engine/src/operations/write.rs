//! Writing: bytes to staging first, then one journal record that maps them, then the answer.

use std::sync::Arc;

use cowfs_base::{Errno, now_ns};

use crate::attributes::Clears;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::error::Result;
use crate::extents::Staged;
use crate::handle::{Handle, HandleId};
use crate::row::SIZE_MAX_BYTES;

impl Engine {
    /// `write_at_once` for callers that may wait for a reclaim pass that is overdue.
    pub fn write(
        &self,
        id: HandleId,
        offset: u64,
        data: &[u8],
        clears: impl Into<Clears>,
    ) -> Result<usize> {
        if self.is_reclaim_overdue() {
            // A failed pass changes nothing, and the write itself reports the problem.
            let _ = self.reclaim_overdue();
        }
        self.write_at_once(id, offset, data, clears)
    }

    /// Stores `data` at `offset`; it survives the daemon when this returns. O_APPEND changes
    /// nothing here: the kernel gives appends their offset, and a mapped store may arrive through a
    /// handle that appends.
    ///
    /// Waits for no sync, no reclaim pass and no freeing of space; ENOSPC on a full disk. The
    /// caller checks `is_reclaim_overdue` first, so that staging stays bounded.
    pub fn write_at_once(
        &self,
        id: HandleId,
        offset: u64,
        data: &[u8],
        clears: impl Into<Clears>,
    ) -> Result<usize> {
        if data.is_empty() {
            self.writable(id)?;
            return Ok(0);
        }
        self.store(id, At::Offset(offset), data, clears.into())?;
        Ok(data.len())
    }

    /// Stores `data` at the end of the file, as it is when the write is recorded, so that no other
    /// write comes between. Returns the new end. Otherwise as `write_at_once`.
    pub fn append(&self, id: HandleId, data: &[u8], clears: impl Into<Clears>) -> Result<u64> {
        self.store(id, At::End, data, clears.into())
    }

    /// Makes `data` the whole content of the file, in one record: after a crash the file has the
    /// new content or the old. Otherwise as `write_at_once`.
    pub fn replace(&self, id: HandleId, data: &[u8], clears: impl Into<Clears>) -> Result<()> {
        if data.is_empty() {
            let handle = self.writable(id)?;
            return Engine::truncate_to_zero(&mut *self.change()?, handle.ino);
        }
        self.store(id, At::Whole, data, clears.into()).map(drop)
    }

    fn writable(&self, id: HandleId) -> Result<Arc<Handle>> {
        let handle = self.handle(id)?;
        if !handle.is_writable() {
            return Err(Errno::EBADF.into());
        }
        Ok(handle)
    }

    /// Stores the bytes; returns the end of the stored range.
    fn store(&self, id: HandleId, at: At, data: &[u8], clears: Clears) -> Result<u64> {
        let handle = self.writable(id)?;
        let length = data.len() as u64;
        let disk = self.disk()?;
        self.wake_reclaim_when_due(disk);
        // Before any byte is stored: refuse content that is not resident, and impossible offsets.
        {
            let state = self.read()?;
            state.content(handle.ino)?;
            let end = check_end(at.offset(state.inode(handle.ino)?.size), length)?;
            state.check_room()?;
            state.check_size(handle.ino, end)?;
        }
        let _unmapped = disk.appends.read();
        let location = disk.staging.append(data)?;
        let mut state = self.change()?;
        let inode = state.inode(handle.ino)?;
        let offset = at.offset(inode.size);
        let end = check_end(offset, length)?;
        let mut row = clears.apply(inode.row());
        row.size = match at {
            At::Whole => end,
            At::Offset(_) | At::End => row.size.max(end),
        };
        row.mtime_ns = now_ns();
        row.ctime_ns = row.mtime_ns;
        let place = Staged::appended(location.segment, location.offset);
        let map = Effect::map(handle.ino, offset, length, place, location.crc);
        if matches!(at, At::Whole) {
            let rest = Effect::Unmap {
                ino: handle.ino,
                from: end,
                to: u64::MAX,
            };
            Engine::record(&mut state, &[map, rest, Effect::PutInode(row)])?;
            state.refused.store_again(handle.ino, 0, u64::MAX);
        } else {
            Engine::record(&mut state, &[map, Effect::PutInode(row)])?;
            state.refused.store_again(handle.ino, offset, end);
        }
        Ok(end)
    }
}

/// The place for the bytes.
#[derive(Clone, Copy)]
enum At {
    Offset(u64),
    /// The end of the file when the write is recorded.
    End,
    /// They replace the whole content.
    Whole,
}

impl At {
    fn offset(self, size: u64) -> u64 {
        match self {
            At::Offset(offset) => offset,
            At::End => size,
            At::Whole => 0,
        }
    }
}

fn check_end(offset: u64, length: u64) -> Result<u64> {
    match offset.checked_add(length) {
        Some(end) if end <= SIZE_MAX_BYTES => Ok(end),
        _ => Err(Errno::EFBIG.into()),
    }
}
