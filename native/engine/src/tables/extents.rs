//! The extents of a file: an ordered map from ranges to staged bytes and chunks. Ranges that are
//! absent are holes. The map knows which holes were allocated (`fallocate`): those count in
//! `st_blocks`, and are otherwise ordinary holes. A version does not keep that.
//!
//! One extent lies in the map itself, since most files have no more. Otherwise leaves of at most
//! `LEAF_MAX` extents are kept in order, so that a change in a file of hundreds of thousands moves
//! a few kilobytes. Invariants: extents are not empty, do not overlap, ascend; no leaf is empty;
//! neighbours in a leaf that continue each other in every respect are one extent.

use std::num::NonZeroU64;
use std::sync::Arc;

use cowfs_base::{Errno, Segment};

use crate::ranges::Ranges;
use crate::row::{ChunkRef, ExtentRow};

const LEAF_MAX: usize = 128;
/// Further allocated ranges of a file are not remembered. No real program writes that many, and
/// each takes memory without taking disk.
const ALLOCATED_MAX: usize = 1024;

/// The place of staged bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Staged {
    segment: NonZeroU64,
    pub offset: u64,
}

impl Staged {
    /// None for segment 0, which does not exist.
    pub fn new(segment: Segment, offset: u64) -> Option<Staged> {
        Some(Staged {
            segment: NonZeroU64::new(segment)?,
            offset,
        })
    }

    /// The place of bytes that staging has: it numbers segments from 1.
    pub fn appended(segment: Segment, offset: u64) -> Staged {
        Staged::new(segment, offset).expect("a segment has a number")
    }

    pub fn segment(self) -> Segment {
        self.segment.get()
    }
}

/// One mapped range: staged, in a chunk, or both; or lost: in neither, because the local disk has
/// not kept its bytes. A lost range reads as EIO until it is overwritten or removed, and is never
/// committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extent {
    pub offset: u64,
    pub length: u64,
    pub staged: Option<Staged>,
    pub chunk: Option<Arc<ChunkRef>>,
    pub skip: u32,
}

impl Extent {
    pub fn from_row(row: &ExtentRow) -> Extent {
        let chunk = Some(Arc::new(row.chunk.clone()));
        Extent {
            offset: row.offset,
            length: row.length,
            staged: None,
            chunk,
            skip: row.skip,
        }
    }

    pub fn staged(offset: u64, length: u64, staged: Staged) -> Extent {
        Extent {
            staged: Some(staged),
            ..Extent::lost(offset, length)
        }
    }

    /// A range whose bytes are gone.
    pub fn lost(offset: u64, length: u64) -> Extent {
        Extent {
            offset,
            length,
            staged: None,
            chunk: None,
            skip: 0,
        }
    }

    pub fn is_lost(&self) -> bool {
        self.staged.is_none() && self.chunk.is_none()
    }

    pub fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// The part of it in [from, to), which must overlap it.
    pub fn clip(&self, from: u64, to: u64) -> Extent {
        let (offset, end) = (self.offset.max(from), self.end().min(to));
        let cut = offset - self.offset;
        Extent {
            offset,
            length: end - offset,
            staged: self.staged.map(|staged| Staged {
                offset: staged.offset + cut,
                ..staged
            }),
            chunk: self.chunk.clone(),
            // Bounds: an extent never shows more than its chunk, whose length fits 32 bits.
            skip: if self.chunk.is_some() {
                self.skip + cut as u32
            } else {
                0
            },
        }
    }

    /// Whether both show the same bytes from the same place where they overlap.
    pub fn is_backed_as(&self, other: &Extent) -> bool {
        let staged = match (self.staged, other.staged) {
            (Some(a), Some(b)) => {
                a.segment == b.segment
                    && a.offset.wrapping_sub(self.offset) == b.offset.wrapping_sub(other.offset)
            }
            _ => false,
        };
        staged || self.shows_chunk_as(other)
    }

    fn shows_chunk_as(&self, other: &Extent) -> bool {
        match (&self.chunk, &other.chunk) {
            (Some(a), Some(b)) => {
                (Arc::ptr_eq(a, b) || a == b)
                    && u64::from(self.skip).wrapping_sub(self.offset)
                        == u64::from(other.skip).wrapping_sub(other.offset)
            }
            _ => false,
        }
    }

    fn is_continued_by(&self, next: &Extent) -> bool {
        let staged = match (self.staged, next.staged) {
            (Some(a), Some(b)) => a.segment == b.segment && a.offset + self.length == b.offset,
            (None, None) => true,
            _ => false,
        };
        let chunk = self.shows_chunk_as(next) || (self.chunk.is_none() && next.chunk.is_none());
        self.end() == next.offset && staged && chunk
    }
}

/// The extents of one file.
#[derive(Debug, Clone, Default)]
pub(crate) enum ExtentMap {
    #[default]
    None,
    One(Extent),
    Many(Box<Leaves>),
}

/// Any number of extents.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leaves {
    leaves: Vec<Vec<Extent>>,
    mapped_bytes: u64,
    /// Holes that were allocated.
    allocated: Ranges,
}

impl ExtentMap {
    /// Checks every row and clips at the size; EIO for what an index cannot hold.
    pub fn from_rows(rows: &[ExtentRow], size: u64) -> Result<ExtentMap, Errno> {
        let mut map = ExtentMap::default();
        for row in rows {
            row.check()?;
            if row.offset < size {
                map.map(Extent::from_row(row).clip(0, size));
            }
        }
        Ok(map)
    }

    pub fn mapped_bytes(&self) -> u64 {
        match self {
            ExtentMap::None => 0,
            ExtentMap::One(extent) => extent.length,
            ExtentMap::Many(many) => many.mapped_bytes,
        }
    }

    /// The bytes that count in `st_blocks`.
    pub fn occupied_bytes(&self) -> u64 {
        match self {
            ExtentMap::Many(many) => many.mapped_bytes + many.allocated.bytes(),
            _ => self.mapped_bytes(),
        }
    }

    /// The holes that were allocated: (from, to).
    pub fn allocated(&self) -> impl Iterator<Item = (u64, u64)> {
        let allocated = match self {
            ExtentMap::Many(many) => Some(many.allocated.iter()),
            _ => None,
        };
        allocated.into_iter().flatten()
    }

    /// The holes of [from, to) are allocated from now on.
    pub fn allocate(&mut self, from: u64, to: u64) {
        let many = self.many();
        if many.allocated.len() < ALLOCATED_MAX {
            many.allocated.add(from, to);
        }
        let mapped: Vec<(u64, u64)> = self
            .overlapping(from, to)
            .map(|extent| (extent.offset, extent.end()))
            .collect();
        let many = self.many();
        for (from, to) in mapped {
            many.allocated.remove(from, to);
        }
        self.shrink();
    }

    /// How many extents there are.
    pub fn len(&self) -> usize {
        match self {
            ExtentMap::None => 0,
            ExtentMap::One(_) => 1,
            ExtentMap::Many(many) => many.leaves.iter().map(Vec::len).sum(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Extent> {
        (0..).map_while(|number| self.leaf(number)).flatten()
    }

    /// Extents that overlap [from, to), not clipped.
    pub fn overlapping(&self, from: u64, to: u64) -> impl Iterator<Item = &Extent> {
        let mut number = match self {
            ExtentMap::Many(many) => many.leaf_of(from),
            _ => 0,
        };
        let mut at = self.leaf(number).map_or(0, |extents| {
            extents.partition_point(|extent| extent.end() <= from)
        });
        std::iter::from_fn(move || {
            while at >= self.leaf(number)?.len() {
                (number, at) = (number + 1, 0);
            }
            let extent = &self.leaf(number)?[at];
            at += 1;
            (extent.offset < to).then_some(extent)
        })
    }

    /// Makes [from, to) a hole.
    pub fn unmap(&mut self, from: u64, to: u64) {
        match self {
            ExtentMap::None => {}
            ExtentMap::One(extent) if extent.end() <= from || to <= extent.offset => {}
            ExtentMap::One(extent) => match (extent.offset < from, to < extent.end()) {
                (false, false) => *self = ExtentMap::None,
                (true, false) => *extent = extent.clip(0, from),
                (false, true) => *extent = extent.clip(to, u64::MAX),
                (true, true) => self.many().unmap(from, to),
            },
            ExtentMap::Many(many) => {
                many.unmap(from, to);
                many.allocated.remove(from, to);
                self.shrink();
            }
        }
    }

    /// Nothing takes no room.
    fn shrink(&mut self) {
        if let ExtentMap::Many(many) = self
            && many.leaves.is_empty()
            && many.allocated.is_empty()
        {
            *self = ExtentMap::None;
        }
    }

    /// Maps the extent, replacing earlier mappings of its range.
    pub fn map(&mut self, extent: Extent) {
        self.unmap(extent.offset, extent.end());
        match self {
            ExtentMap::None => *self = ExtentMap::One(extent),
            ExtentMap::One(first) if first.is_continued_by(&extent) => {
                first.length += extent.length;
            }
            _ => self.many().map(extent),
        }
    }

    fn leaf(&self, number: usize) -> Option<&[Extent]> {
        match self {
            ExtentMap::One(extent) if number == 0 => Some(std::slice::from_ref(extent)),
            ExtentMap::Many(many) => many.leaves.get(number).map(Vec::as_slice),
            _ => None,
        }
    }

    /// As leaves from now on.
    fn many(&mut self) -> &mut Leaves {
        if !matches!(self, ExtentMap::Many(_)) {
            let mut leaves = Leaves::default();
            if let ExtentMap::One(extent) = std::mem::take(self) {
                leaves.map(extent);
            }
            *self = ExtentMap::Many(Box::new(leaves));
        }
        match self {
            ExtentMap::Many(many) => many,
            _ => unreachable!("it was just made so"),
        }
    }
}

impl Leaves {
    /// Makes [from, to) a hole.
    fn unmap(&mut self, from: u64, to: u64) {
        let mut emptied = false;
        let mut leaf = self.leaf_of(from);
        while leaf < self.leaves.len() && from < to {
            let extents = &mut self.leaves[leaf];
            if extents[0].offset >= to {
                break;
            }
            let first = extents.partition_point(|extent| extent.end() <= from);
            let last = extents.partition_point(|extent| extent.offset < to);
            if first < last {
                let head = (extents[first].offset < from).then(|| extents[first].clip(0, from));
                let tail =
                    (extents[last - 1].end() > to).then(|| extents[last - 1].clip(to, u64::MAX));
                let kept: u64 = head.iter().chain(&tail).map(|extent| extent.length).sum();
                let removed: u64 = extents[first..last]
                    .iter()
                    .map(|extent| extent.length)
                    .sum();
                self.mapped_bytes = self.mapped_bytes + kept - removed;
                extents.splice(first..last, head.into_iter().chain(tail));
            }
            emptied |= extents.is_empty();
            // A hole in the middle of one extent makes two.
            self.split_if_full(leaf, first);
            leaf += 1;
        }
        if emptied {
            self.leaves.retain(|extents| !extents.is_empty());
        }
    }

    /// Maps the extent in an unmapped range.
    fn map(&mut self, extent: Extent) {
        self.mapped_bytes += extent.length;
        if self.leaves.is_empty() {
            self.leaves.push(vec![extent]);
            return;
        }
        let leaf = self.leaf_of(extent.offset);
        let extents = &mut self.leaves[leaf];
        let at = extents.partition_point(|other| other.offset < extent.offset);
        if at > 0 && extents[at - 1].is_continued_by(&extent) {
            extents[at - 1].length += extent.length;
            if at < extents.len() && extents[at - 1].is_continued_by(&extents[at]) {
                let next = extents.remove(at);
                extents[at - 1].length += next.length;
            }
        } else if at < extents.len() && extent.is_continued_by(&extents[at]) {
            let next = &mut extents[at];
            *next = Extent {
                length: extent.length + next.length,
                ..extent
            };
        } else {
            extents.insert(at, extent);
        }
        self.split_if_full(leaf, at);
    }

    /// `at`: the place of the last change in the leaf.
    fn split_if_full(&mut self, leaf: usize, at: usize) {
        let length = self.leaves[leaf].len();
        if length > LEAF_MAX {
            // Changes at the end of a file are mostly followed by more of them: leave full leaves
            // behind.
            let is_end = leaf + 1 == self.leaves.len() && at + 2 >= length;
            let keep = if is_end { LEAF_MAX } else { length / 2 };
            let behind = self.leaves[leaf].split_off(keep);
            self.leaves.insert(leaf + 1, behind);
        }
    }

    /// The leaf in which an extent that covers or precedes `offset` would be.
    fn leaf_of(&self, offset: u64) -> usize {
        self.leaves
            .partition_point(|extents| extents[0].offset <= offset)
            .saturating_sub(1)
    }
}

#[cfg(test)]
#[path = "extents_tests.rs"]
mod tests;
