//! Writing: bytes to staging first, then one journal record that maps them, then the answer.

use cowfs_base::{Errno, now_ns};

use crate::attributes::without_privileges;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::error::Result;
use crate::row::SIZE_MAX_BYTES;

impl Engine {
    /// Stores `data` at `offset`; it survives the daemon when this returns. O_APPEND changes nothing here: the kernel gives
    /// appends their offset, and a mapped store may arrive through a handle that appends.
    /// `clears_privileges`: whether set-id bits go, as they do for anybody but root.
    pub fn write(
        &self,
        fh: u64,
        offset: u64,
        data: &[u8],
        clears_privileges: bool,
    ) -> Result<usize> {
        let handle = self.handles.get(fh)?;
        if !handle.is_writable() {
            return Err(Errno::EBADF.into());
        }
        if data.is_empty() {
            return Ok(0);
        }
        let length = data.len() as u64;
        let disk = self.disk()?;
        self.keep_staging_bounded(disk);
        // Before the bytes go anywhere: what is not resident, and offsets that cannot be.
        {
            let state = self.read()?;
            state.content(handle.ino)?;
            check_end(offset, length)?;
            state.check_room()?;
        }
        let _unmapped = disk.appends.read();
        let location = disk.staging.append(data)?;
        let mut state = self.change()?;
        let inode = state.inode(handle.ino)?;
        let end = check_end(offset, length)?;
        let mut row = inode.row();
        if clears_privileges {
            row = without_privileges(row);
        }
        row.size = row.size.max(end);
        row.mtime_ns = now_ns();
        row.ctime_ns = row.mtime_ns;
        let map = Effect::Map {
            ino: handle.ino,
            offset,
            length,
            segment: location.segment,
            segment_offset: location.offset,
            crc: location.crc,
        };
        Engine::record(&mut state, &[map, Effect::PutInode(row)])?;
        Ok(data.len())
    }
}

fn check_end(offset: u64, length: u64) -> Result<u64> {
    match offset.checked_add(length) {
        Some(end) if end <= SIZE_MAX_BYTES => Ok(end),
        _ => Err(Errno::EFBIG.into()),
    }
}
