//! Counting the live bytes of segments while other threads go on.
//!
//! 1. `Disk::appends` and the state are held exclusively for a moment. The segments that may be
//!    removed are chosen (`State::surveyed`). They take no appends any more, and none of their
//!    bytes are still to be mapped.
//! 2. The extents of changed files are counted under the shared lock, a batch at a time.
//! 3. The state is held exclusively once more. Segments that were mapped again, frozen or removed
//!    meanwhile are left out.
//!
//! Bytes may move while they are counted: a copy may take them from a file that is not counted yet
//! to one that was, and the first file is then overwritten. But copies, first names and moves all
//! map anew, and each mapping takes its segment out of `State::surveyed`. So a segment that is
//! still there at the end has at most as many bytes mapped as were counted. One with none is dead:
//! bytes that nothing maps cannot be mapped again.
//!
//! Extents saved by frozen layers and checkpoints are not counted: all their segments are kept
//! anyway.
//!
//! One survey at a time: its caller holds `Reclaim::running`.

use std::collections::{BTreeMap, BTreeSet};

use cowfs_base::{Ino, Segment};

use crate::changes::EXTENTS;
use crate::engine::{Disk, Engine};
use crate::error::Result;
use crate::extents::{Extent, ExtentMap};
use crate::state::State;

/// The block size of a local file system, for holes in files.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// The mapped bytes of a segment.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub bytes: u64,
    extents: u64,
    /// A bit for each block that has some of them: 2 KiB for a segment of 64 MiB.
    blocks: Vec<u64>,
}

impl Live {
    fn add(&mut self, from: u64, length: u64) {
        self.bytes += length;
        self.extents += 1;
        for block in from / BLOCK_BYTES..(from + length).div_ceil(BLOCK_BYTES) {
            let word = (block / 64) as usize;
            if word >= self.blocks.len() {
                self.blocks.resize(word + 1, 0);
            }
            self.blocks[word] |= 1 << (block % 64);
        }
    }

    fn block_bytes(&self) -> u64 {
        let count: u64 = self
            .blocks
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum();
        count * BLOCK_BYTES
    }
}

/// A segment with live bytes and, perhaps, dead blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartlyDead {
    pub segment: Segment,
    /// The segment's space on the disk.
    pub size_bytes: u64,
    /// Bytes of whole blocks without a live byte, except holes that were punched before.
    pub dead_bytes: u64,
    /// How many extents are live.
    pub extents: u64,
}

/// The live bytes of the removable segments, and their space on the disk.
#[derive(Debug)]
pub(crate) struct Survey {
    pub live: BTreeMap<Segment, Live>,
    pub sizes: BTreeMap<Segment, u64>,
}

impl Survey {
    pub fn dead(&self) -> impl Iterator<Item = Segment> {
        let dead = self.live.iter().filter(|(_, live)| live.bytes == 0);
        dead.map(|(segment, _)| *segment)
    }

    /// The segments with live bytes.
    pub fn partly_dead(&self) -> impl Iterator<Item = PartlyDead> {
        let live = self.live.iter().filter(|(_, live)| live.bytes > 0);
        live.map(|(segment, live)| PartlyDead {
            segment: *segment,
            size_bytes: self.sizes[segment],
            dead_bytes: self.sizes[segment].saturating_sub(live.block_bytes()),
            extents: live.extents,
        })
    }

    /// At least half of it dead: as many as can be copied into `room_bytes`, the sparsest first.
    pub fn sparse(&self, room_bytes: u64) -> BTreeSet<Segment> {
        let is_sparse = |(segment, live): &(&Segment, &Live)| {
            live.bytes > 0 && live.bytes * 2 <= self.sizes[*segment]
        };
        let mut sparse: Vec<(u64, Segment)> = self
            .live
            .iter()
            .filter(is_sparse)
            .map(|(segment, live)| (live.bytes, *segment))
            .collect();
        sparse.sort_unstable();
        let mut left_bytes = room_bytes;
        let fits = |(live, _): &(u64, Segment)| {
            left_bytes = left_bytes.saturating_sub(*live);
            left_bytes > 0
        };
        sparse
            .into_iter()
            .take_while(fits)
            .map(|(_, segment)| segment)
            .collect()
    }

    /// Leaves out segments that were mapped again since the survey began, or have to stay. The
    /// others get no new mappings from then on.
    fn end(&mut self, state: &mut State) {
        let surveyed = std::mem::take(&mut state.surveyed);
        self.live
            .retain(|segment, _| surveyed.contains(segment) && state.may_go(*segment));
    }
}

impl Engine {
    /// The removable segments, and the mapped bytes of each.
    pub(crate) fn survey(&self, disk: &Disk) -> Result<Survey> {
        self.survey_then(disk, |_, _| ()).map(|(survey, ())| survey)
    }

    /// Makes a survey, then calls `then` before anything can change.
    pub(crate) fn survey_then<T>(
        &self,
        disk: &Disk,
        then: impl FnOnce(&mut State, &mut Survey) -> T,
    ) -> Result<(Survey, T)> {
        let mut survey = self.begin_survey(disk, false)?;
        self.count_live(disk, &mut survey)?;
        let _no_reader = disk.forgetting.write();
        let mut state = self.fill()?;
        survey.end(&mut state);
        let outcome = then(&mut state, &mut survey);
        Ok((survey, outcome))
    }

    /// As a survey, but of the segment that takes appends, too: what could be freed if it took no
    /// more.
    pub(crate) fn survey_all(&self, disk: &Disk) -> Result<Survey> {
        let mut survey = self.begin_survey(disk, true)?;
        self.count_live(disk, &mut survey)?;
        survey.end(&mut *self.fill()?);
        Ok(survey)
    }

    fn count_live(&self, disk: &Disk, survey: &mut Survey) -> Result<()> {
        self.see_uncommitted(disk, |_, extent| {
            let Some(staged) = extent.staged else {
                return;
            };
            if let Some(live) = survey.live.get_mut(&staged.segment()) {
                live.add(staged.offset, extent.length);
            }
        })
    }

    fn begin_survey(&self, disk: &Disk, with_current: bool) -> Result<Survey> {
        // No thread is between staging bytes and mapping them.
        let _no_unmapped = disk.appends.write();
        let mut state = self.fill()?;
        debug_assert!(
            is_saved_kept(&state),
            "a saved extent in a segment that may go"
        );
        let sizes: BTreeMap<Segment, u64> = disk.staging.segments().into_iter().collect();
        let spared = disk.staging.current_segment().filter(|_| !with_current);
        let may_go = |segment: &Segment| Some(*segment) != spared && state.may_go(*segment);
        let surveyed: BTreeSet<Segment> = sizes.keys().copied().filter(may_go).collect();
        let live = surveyed.iter().map(|segment| (*segment, Live::default()));
        let live = live.collect();
        state.surveyed = surveyed;
        Ok(Survey { live, sizes })
    }

    /// Uncommitted extents in these segments, by inode and offset. Extents mapped meanwhile may be
    /// missing.
    pub(crate) fn extents_in(
        &self,
        disk: &Disk,
        segments: &BTreeSet<Segment>,
    ) -> Result<Vec<(Ino, Extent)>> {
        let mut found = Vec::new();
        self.see_uncommitted(disk, |ino, extent| {
            if extent
                .staged
                .is_some_and(|at| segments.contains(&at.segment()))
            {
                found.push((ino, extent.clone()));
            }
        })?;
        Ok(found)
    }

    /// Shows the uncommitted extents of every file that may have some, by inode and offset, a batch
    /// of them under one lock.
    fn see_uncommitted(&self, disk: &Disk, mut see: impl FnMut(Ino, &Extent)) -> Result<()> {
        let mut inodes = {
            let state = self.read()?;
            let marked = state.changes.marked(EXTENTS);
            let mut inodes: Vec<Ino> = marked.chain(state.orphans.iter().copied()).collect();
            if let Some(frozen) = &state.frozen {
                inodes.extend(frozen.changes.marked(EXTENTS));
            }
            inodes
        };
        inodes.sort_unstable();
        inodes.dedup();
        let mut next = Some((0, 0));
        while let Some(place) = next {
            next = {
                let state = self.read()?;
                see_batch(&state, &inodes, place, disk.reclaim.batch_extents, &mut see)
            };
            self.play_interlude();
        }
        Ok(())
    }
}

/// Shows about so many extents from a place on: (which inode, offset in it). Returns where to go
/// on.
fn see_batch(
    state: &State,
    inodes: &[Ino],
    (mut number, mut from): (usize, u64),
    batch_extents: usize,
    see: &mut impl FnMut(Ino, &Extent),
) -> Option<(usize, u64)> {
    let mut left = batch_extents;
    while let Some(ino) = inodes.get(number) {
        if left == 0 {
            return Some((number, from));
        }
        let extents = extents_of(state, *ino).map(|extents| extents.overlapping(from, u64::MAX));
        for extent in extents.into_iter().flatten() {
            if left == 0 {
                return Some((number, from));
            }
            left -= 1;
            if extent.chunk.is_none() {
                see(*ino, &extent.clip(from, u64::MAX));
            }
            from = extent.end();
        }
        // A file without extents takes time, too.
        left = left.saturating_sub(1);
        (number, from) = (number + 1, 0);
    }
    None
}

pub(crate) fn extents_of(state: &State, ino: Ino) -> Option<&ExtentMap> {
    Some(&state.inodes.get(ino)?.content.as_deref()?.extents)
}

/// Whether no segment may go that a frozen layer has saved uncommitted extents in.
fn is_saved_kept(state: &State) -> bool {
    let saved = state.frozen.iter().flat_map(|frozen| frozen.saved.values());
    let extents = saved.filter_map(|saved| saved.extents.as_ref());
    extents
        .flat_map(|(_, extents)| extents.iter())
        .filter(|extent| extent.chunk.is_none())
        .filter_map(|extent| extent.staged)
        .all(|at| !state.may_go(at.segment()))
}

impl State {
    /// Whether the segment is removable once nothing maps it.
    fn may_go(&self, segment: Segment) -> bool {
        let is_named =
            self.changes.segments.contains(&segment) || self.nameless_segments.contains(&segment);
        is_named && !self.keeps(segment)
    }

    /// Whether records may name it for bytes that no later record covers, mapped or not.
    pub fn keeps(&self, segment: Segment) -> bool {
        let mut frozen = self.frozen.iter().chain(&self.snapshot);
        self.changes.held.contains(&segment)
            || frozen.any(|frozen| frozen.changes.segments.contains(&segment))
    }

    /// Forgets a segment that no valid record and no mapping refers to.
    pub fn forget_segment(&mut self, segment: Segment) {
        self.segments.remove(&segment);
        self.changes.segments.remove(&segment);
        self.nameless_segments.remove(&segment);
    }
}
