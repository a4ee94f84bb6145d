//! Writing: bytes to staging first, then one journal record that maps them, then the answer.

use std::sync::Arc;

use cowfs_base::{Errno, now_ns};

use crate::attributes::Clears;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::error::Result;
use crate::extents::Staged;
use crate::handle::Handle;
use crate::row::SIZE_MAX_BYTES;

impl Engine {
    /// `write_at_once` for callers that may wait for a reclaim pass that is overdue.
    pub fn write(
        &self,
        fh: u64,
        offset: u64,
        data: &[u8],
        clears: impl Into<Clears>,
    ) -> Result<usize> {
        if self.is_reclaim_overdue() {
            // A pass that fails leaves things as they are, and the write says itself what is the
            // matter.
            let _ = self.reclaim_overdue();
        }
        self.write_at_once(fh, offset, data, clears)
    }

    /// Stores `data` at `offset`; it survives the daemon when this returns. O_APPEND changes
    /// nothing here: the kernel gives appends their offset, and a mapped store may arrive through a
    /// handle that appends.
    ///
    /// Waits for no sync, no reclaim pass and no freeing of space: ENOSPC on a full disk, and
    /// whoever calls asks `is_reclaim_overdue` first, so that staging stays bounded.
    pub fn write_at_once(
        &self,
        fh: u64,
        offset: u64,
        data: &[u8],
        clears: impl Into<Clears>,
    ) -> Result<usize> {
        if data.is_empty() {
            self.writable(fh)?;
            return Ok(0);
        }
        self.store(fh, Some(offset), data, clears.into())?;
        Ok(data.len())
    }

    /// Stores `data` at the end of the file, wherever that is when it is recorded: nothing that
    /// others write comes between. The end behind it. As `write_at_once` otherwise.
    pub fn append(&self, fh: u64, data: &[u8], clears: impl Into<Clears>) -> Result<u64> {
        self.store(fh, None, data, clears.into())
    }

    fn writable(&self, fh: u64) -> Result<Arc<Handle>> {
        let handle = self.handles.get(fh)?;
        if !handle.is_writable() {
            return Err(Errno::EBADF.into());
        }
        Ok(handle)
    }

    /// `offset` None: at the end of the file. The end of what was stored.
    fn store(&self, fh: u64, offset: Option<u64>, data: &[u8], clears: Clears) -> Result<u64> {
        let handle = self.writable(fh)?;
        let length = data.len() as u64;
        let disk = self.disk()?;
        self.wake_reclaim_when_due(disk);
        // Before the bytes go anywhere: what is not resident, and offsets that cannot be.
        {
            let state = self.read()?;
            state.content(handle.ino)?;
            let end = check_end(offset.unwrap_or(state.inode(handle.ino)?.size), length)?;
            state.check_room()?;
            state.check_size(handle.ino, end)?;
        }
        let _unmapped = disk.appends.read();
        let location = disk.staging.append(data)?;
        let mut state = self.change()?;
        let inode = state.inode(handle.ino)?;
        let offset = offset.unwrap_or(inode.size);
        let end = check_end(offset, length)?;
        let mut row = clears.apply(inode.row());
        row.size = row.size.max(end);
        row.mtime_ns = now_ns();
        row.ctime_ns = row.mtime_ns;
        let place = Staged::appended(location.segment, location.offset);
        let map = Effect::map(handle.ino, offset, length, place, location.crc);
        Engine::record(&mut state, &[map, Effect::PutInode(row)])?;
        state.refused.store_again(handle.ino, offset, end);
        Ok(end)
    }
}

fn check_end(offset: u64, length: u64) -> Result<u64> {
    match offset.checked_add(length) {
        Some(end) if end <= SIZE_MAX_BYTES => Ok(end),
        _ => Err(Errno::EFBIG.into()),
    }
}
