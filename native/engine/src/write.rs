//! Writing: bytes to staging first, then one journal record that maps them, then the answer.

use cowfs_base::{Errno, Segment, now_ns};

use crate::attributes::without_privileges;
use crate::content::Unsynced;
use crate::effect::Effect;
use crate::engine::{Disk, Engine};
use crate::error::Result;
use crate::row::SIZE_MAX_BYTES;
use crate::staged::needed_segments;

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
        }
        let mut _unmapped = disk.appends.read();
        let location = match disk.staging.append(data) {
            // Committed bytes make room for new ones.
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {
                drop(_unmapped);
                if self.trim_staging(0)? + self.reclaim_staging()? == 0 {
                    return Err(error.into());
                }
                _unmapped = disk.appends.read();
                disk.staging.append(data)?
            }
            outcome => outcome?,
        };
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

    /// The segment bytes of the file, then the journal, are on stable storage when this returns. EIO if bytes of it are lost.
    /// Times cost no extra write here, so data-only and full are the same.
    pub fn fsync(&self, fh: u64, _datasync: bool) -> Result<()> {
        let handle = self.handles.get(fh)?;
        let Some(disk) = &self.disk else {
            return Ok(());
        };
        let (journal, segments, version) = {
            let state = self.read()?;
            if state.lost_bytes(handle.ino) > 0 {
                return Err(Errno::EIO.into());
            }
            let content = state
                .inodes
                .get(handle.ino)
                .and_then(|inode| inode.content.as_deref());
            let (segments, version) = content.map_or((Vec::new(), 0), |content| {
                (content.unsynced.segments().to_vec(), content.version)
            });
            // Under the lock: what is overwritten from here on may go only when what replaced it is durable.
            segments
                .iter()
                .for_each(|segment| disk.staging.promise(*segment));
            (state.journal.clone(), segments, version)
        };
        let Some(journal) = journal else {
            return Ok(());
        };
        let upto_seq = journal.last_seq();
        for segment in &segments {
            self.sync_segment(disk, *segment)?;
        }
        journal.sync(upto_seq)?;
        if !segments.is_empty() {
            self.forget_unsynced(handle.ino, version)?;
        }
        Ok(())
    }

    pub(crate) fn sync_segment(&self, disk: &Disk, segment: Segment) -> Result<()> {
        match disk.staging.sync(segment) {
            // What nothing uncommitted needs is in the store, or nobody's; it may have been removed in the meantime.
            Err(_) if !needed_segments(&*self.read()?).contains(&segment) => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    /// Unless the file has changed since, no byte of it waits for an fsync any more.
    fn forget_unsynced(&self, ino: u64, version: u64) -> Result<()> {
        let mut state = self.fill()?;
        if let Some(content) = state
            .inodes
            .get_mut(ino)
            .and_then(|inode| inode.content.as_deref_mut())
            && content.version == version
        {
            content.unsynced = Unsynced::default();
        }
        Ok(())
    }
}

fn check_end(offset: u64, length: u64) -> Result<u64> {
    match offset.checked_add(length) {
        Some(end) if end <= SIZE_MAX_BYTES => Ok(end),
        _ => Err(Errno::EFBIG.into()),
    }
}
