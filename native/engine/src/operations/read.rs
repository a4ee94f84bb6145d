//! Reading: a plan of pieces under the shared lock, then their bytes from segments and chunks
//! without it.

use std::sync::Arc;

use cowfs_base::{Errno, Ino, Segment};
use cowfs_cache::Lent;

use crate::engine::Engine;
use crate::error::{Error, Missing, Result};
use crate::extents::Extent;
use crate::handle::HandleId;
use crate::row::ChunkRef;
use crate::state::State;

/// Parts that are shorter, on average, are copied: the kernel takes them one by one. So an answer of
/// 1 MiB has 16 at most.
const LENT_PART_BYTES: usize = 64 << 10;

/// The result of a read.
pub enum ReadBytes {
    /// The number of bytes at the start of the caller's buffer.
    Copied(usize),
    /// These, one behind the other. The cache is short of the memory that they lie in until they are
    /// dropped.
    Lent(Vec<Lent>),
}

/// A committed range has both: then the staged bytes are a cache.
struct Source {
    staged: Option<(Segment, u64)>,
    chunk: Option<(Arc<ChunkRef>, u32)>,
}

/// `length` bytes that belong at `at` in the answer. Gaps between pieces are zeros.
struct Piece {
    at: usize,
    length: usize,
    source: Source,
}

struct Plan {
    length: usize,
    /// The size of the whole file.
    size: u64,
    pieces: Vec<Piece>,
}

impl Engine {
    /// Bytes of an open file; fewer than `size` only at its end.
    pub fn read_file(&self, id: HandleId, offset: u64, size: usize) -> Result<Vec<u8>> {
        let ino = self.handle(id)?.ino;
        let left = self.read()?.inode(ino)?.size.saturating_sub(offset);
        let size = usize::try_from(left).map_or(size, |left| size.min(left));
        let mut bytes = vec![0; size];
        let length = self.read_by_plan(id, offset, size, |plan, ino| {
            self.follow(plan, ino, &mut bytes[..plan.length])?;
            Ok(plan.length)
        })?;
        bytes.truncate(length);
        Ok(bytes)
    }

    /// As `read_file`, without a copy of large parts that are in memory. All other bytes are put
    /// into `buffer`, whose length is the number of bytes wanted. The buffer's rest, and all of it
    /// after an error, is undefined.
    pub fn read_or_lend(&self, id: HandleId, offset: u64, buffer: &mut [u8]) -> Result<ReadBytes> {
        self.read_by_plan(id, offset, buffer.len(), |plan, ino| {
            if let Some(parts) = self.lend(plan) {
                return Ok(ReadBytes::Lent(parts));
            }
            self.follow(plan, ino, &mut buffer[..plan.length])?;
            Ok(ReadBytes::Copied(plan.length))
        })
    }

    /// Follows a plan. If a segment that it names is removed meanwhile, a second one is made, and
    /// no segment is removed until that was followed (`Disk::forgetting`).
    fn read_by_plan<T>(
        &self,
        id: HandleId,
        offset: u64,
        size: usize,
        mut follow: impl FnMut(&Plan, Ino) -> Result<T>,
    ) -> Result<T> {
        let handle = self.handle(id)?;
        let mut keeps_segments = None;
        loop {
            let plan = plan(&*self.read()?, handle.ino, offset, size)?;
            let end = offset.saturating_add(plan.length as u64);
            self.ahead.note(&handle, offset, end, plan.size);
            self.reads.note(handle.ino, offset, end);
            if keeps_segments.is_none() {
                self.play_interlude();
            }
            match (follow(&plan, handle.ino), &self.disk) {
                (Err(Error::Os(_)), Some(disk))
                    if keeps_segments.is_none()
                        && plan.pieces.iter().any(|piece| self.is_gone(piece)) =>
                {
                    keeps_segments = Some(disk.forgetting.read());
                }
                (outcome, _) => return outcome,
            }
        }
    }

    /// The plan's bytes in memory, if all of them are there in few parts.
    fn lend(&self, plan: &Plan) -> Option<Vec<Lent>> {
        if plan.length < LENT_PART_BYTES * plan.pieces.len().max(1) {
            return None;
        }
        let in_memory = |piece: &Piece| {
            let (chunk, skip) = piece.source.chunk.as_ref()?;
            let range = u64::from(*skip)..u64::from(*skip) + piece.length as u64;
            match piece.source.staged {
                Some(_) => None,
                None => self
                    .cache
                    .lend(&chunk.hash.0, chunk.raw_length.into(), range),
            }
        };
        let parts: Vec<Lent> = plan.pieces.iter().map(in_memory).collect::<Option<_>>()?;
        let has_no_hole = parts.iter().map(|part| part.len()).sum::<usize>() == plan.length;
        has_no_hole.then_some(parts)
    }

    fn is_gone(&self, piece: &Piece) -> bool {
        piece
            .source
            .staged
            .is_some_and(|(segment, _)| !self.is_readable(segment))
    }

    fn follow(&self, plan: &Plan, ino: Ino, buffer: &mut [u8]) -> Result<()> {
        let mut needed: Vec<Arc<ChunkRef>> = Vec::new();
        let mut filled = 0;
        for piece in &plan.pieces {
            buffer[filled..piece.at].fill(0);
            filled = piece.at + piece.length;
            let part = &mut buffer[piece.at..filled];
            match self.read_piece_staged(piece, part) {
                Some(Ok(())) => continue,
                Some(Err(error)) if piece.source.chunk.is_none() => return Err(error),
                _ => {}
            }
            let (chunk, skip) = piece.source.chunk.as_ref().ok_or(Errno::EIO)?;
            let is_here =
                self.cache
                    .read_into(&chunk.hash.0, chunk.raw_length.into(), (*skip).into(), part);
            if !is_here && !needed.iter().any(|other| other.hash == chunk.hash) {
                needed.push(chunk.clone());
            }
        }
        buffer[filled..].fill(0);
        if needed.is_empty() {
            return Ok(());
        }
        Err(Error::NotResident(Missing::Chunks { ino, needed }))
    }

    /// None if the bytes are not staged.
    fn read_piece_staged(&self, piece: &Piece, part: &mut [u8]) -> Option<Result<()>> {
        let (segment, offset) = piece.source.staged?;
        let disk = self.disk.as_ref()?;
        Some(
            disk.staging
                .read_at(segment, offset, part)
                .map_err(Error::from),
        )
    }

    /// Fills `buffer` with bytes of a segment, as a layer's extent names them; EIO if they fail
    /// their checksum.
    pub fn read_staged(&self, segment: Segment, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let staging = &self.disk()?.staging;
        Ok(staging.read_checked(segment, offset, buffer)?)
    }
}

fn plan(state: &State, ino: Ino, offset: u64, size: usize) -> Result<Plan> {
    let inode = state.inode(ino)?;
    if inode.is_directory() {
        return Err(Errno::EISDIR.into());
    }
    let end = offset.saturating_add(size as u64).min(inode.size);
    if offset >= end {
        return Ok(Plan {
            length: 0,
            size: inode.size,
            pieces: Vec::new(),
        });
    }
    let mut pieces = Vec::new();
    let content = state.content(ino).map_err(|error| match error {
        Error::NotResident(Missing::Content { ino, .. }) => {
            let wanted = offset..end;
            Error::NotResident(Missing::Content { ino, wanted })
        }
        other => other,
    })?;
    for extent in content.extents.overlapping(offset, end) {
        let part = extent.clip(offset, end);
        let source = Source {
            staged: readable_staged(state, &part),
            chunk: part.chunk.clone().map(|chunk| (chunk, part.skip)),
        };
        if source.staged.is_none() && source.chunk.is_none() {
            let offset = part.offset;
            return Err(Error::fault(format_args!(
                "inode {ino}: the bytes from {offset} on are lost"
            )));
        }
        pieces.push(Piece {
            at: (part.offset - offset) as usize,
            length: part.length as usize,
            source,
        });
    }
    Ok(Plan {
        length: (end - offset) as usize,
        size: inode.size,
        pieces,
    })
}

/// The extent's staged bytes, unless the segment has been removed.
pub(crate) fn readable_staged(state: &State, extent: &Extent) -> Option<(Segment, u64)> {
    let staged = extent.staged?;
    state
        .segments
        .contains(&staged.segment())
        .then_some((staged.segment(), staged.offset))
}
