//! Recovery after a crash or an unmount: `recover` says which rows must be loaded, `replay` applies
//! the journal.
//!
//! Effects are absolute, so replay is `apply` in order. Only after a power loss may the bytes of an
//! extent be missing. An extent that fails its checksum is not mapped, and the range stays as it
//! was; the bytes are lost unless later records cover them. Inodes that lost their last name are
//! dropped, unless the kernel's connection goes on (`nameless`). Records may name segments that `reclaim` removed; later records cover those.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use cowfs_base::{Ino, Segment};
use cowfs_journal::{Part, Scan};
use hashbrown::HashMap;

use crate::effect::{self, Effect};
use crate::engine::{Disk, Engine};
use crate::error::{Error, Result};
use crate::extents::{Extent, ExtentMap, Staged};
use crate::lost::lose_missing;
use crate::state::State;

/// The content of a working copy's journal. Only inodes and directories that the base version may
/// have are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Directories whose entries change: those of the base version must be loaded before `replay`.
    pub directories: Vec<Ino>,
    /// Inodes that change: likewise, their rows.
    pub inodes: Vec<Ino>,
    /// Files among the inodes whose extents or attributes change; their contents must be loaded,
    /// too.
    pub contents: Vec<Ino>,
    /// Valid records.
    pub records: u64,
    /// Bytes of torn tails that were cut.
    pub cut_bytes: u64,
    /// Another run of the machine wrote some of it.
    pub power_loss: bool,
}

/// How far `recover` and `replay` are; each reads every record once.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    fn start(&self, records: u64) {
        self.total.store(records * 2, Ordering::Relaxed);
    }

    fn one(&self) {
        // No other thread counts.
        let done = self.done.load(Ordering::Relaxed);
        self.done.store(done + 1, Ordering::Relaxed);
    }
}

/// Numbers of the base version that the journal names.
#[derive(Default)]
struct Touched {
    directories: HashSet<Ino>,
    inodes: HashSet<Ino>,
    contents: HashSet<Ino>,
}

impl Touched {
    fn add(&mut self, effect: &Effect<'_>, next_ino: Ino) {
        match effect {
            Effect::PutEntry { ino, .. } if *ino < next_ino => drop(self.inodes.insert(*ino)),
            _ => {}
        }
        let Some(subject) = effect.subject().filter(|ino| *ino < next_ino) else {
            return;
        };
        self.inodes.insert(subject);
        match effect {
            Effect::PutInode(_) | Effect::RemoveInode(_) => {}
            Effect::PutEntry { .. } | Effect::DropEntry { .. } | Effect::Cookies { .. } => {
                self.directories.insert(subject);
            }
            _ => drop(self.contents.insert(subject)),
        }
    }
}

fn sorted(numbers: HashSet<Ino>) -> Vec<Ino> {
    let mut numbers: Vec<Ino> = numbers.into_iter().collect();
    numbers.sort_unstable();
    numbers
}

impl Engine {
    /// Lists what `replay` needs from the base version; nothing on a read-only mount.
    pub fn recover(&self) -> Result<Recovery> {
        // Numbers that the base version has not given out need no look-up.
        let next_ino = self.read()?.next_ino;
        let Some(disk) = &self.disk else {
            return Ok(Recovery::default());
        };
        let unreplayed = disk.unreplayed.lock();
        let Some(scan) = &*unreplayed else {
            return Ok(Recovery::default());
        };
        disk.progress.start(scan.records());
        let mut touched = Touched::default();
        for part in &scan.parts {
            let mut payloads = part.payloads()?;
            while let Some(payload) = payloads.read()? {
                for effect in effect::decode(payload).map_err(Error::JournalCorrupt)? {
                    touched.add(&effect.map_err(Error::JournalCorrupt)?, next_ino);
                }
                disk.progress.one();
            }
        }
        Ok(Recovery {
            directories: sorted(touched.directories),
            inodes: sorted(touched.inodes),
            contents: sorted(touched.contents),
            records: scan.records(),
            cut_bytes: scan.cut_bytes,
            power_loss: scan.power_loss,
        })
    }

    /// (done, total) of `recover` and `replay` together, in records, for another thread. 0 of 0 if
    /// there is nothing to do.
    pub fn replay_progress(&self) -> (u64, u64) {
        let Some(disk) = &self.disk else {
            return (0, 0);
        };
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&disk.progress.done), of(&disk.progress.total))
    }

    /// Applies the journal; returns how many extents a power loss took. Everything replayed is part
    /// of the next layer.
    pub fn replay(&self) -> Result<u64> {
        let Some(disk) = &self.disk else { return Ok(0) };
        let mut state = self.fill()?;
        let mut unreplayed = disk.unreplayed.lock();
        let Some(scan) = &*unreplayed else {
            return Ok(0);
        };
        let lost = apply_all(&mut state, disk, scan)?;
        state.end_replay();
        let present = present_segments(disk);
        state
            .changes
            .segments
            .retain(|segment| present.contains(segment));
        let is_present = |segment: &Segment| present.contains(segment);
        state.segments.retain(is_present);
        state.nameless_segments.retain(is_present);
        let dropped = lost.count(&state);
        disk.start_journal(&mut state, scan)?;
        if lose_missing(&mut state, &present)?
            && let Some(journal) = &state.journal
        {
            journal.sync(journal.last_seq())?;
        }
        disk.remove_unneeded_segments(&state)?;
        *unreplayed = None;
        Ok(dropped)
    }
}

fn apply_all(state: &mut State, disk: &Disk, scan: &Scan) -> Result<Lost> {
    let mut lost = Lost::default();
    for part in &scan.parts {
        let refused = |reason: &str, effect: &Effect<'_>| {
            Error::JournalCorrupt(format!("layer {}: {reason}: {effect:?}", part.last_layer()))
        };
        let mut gone = Gone::default();
        let mut payloads = part.payloads()?;
        while let Some(payload) = payloads.read()? {
            for effect in effect::decode(payload).map_err(Error::JournalCorrupt)? {
                let effect = effect.map_err(Error::JournalCorrupt)?;
                if part.power_loss() {
                    gone.note(disk, &effect)?;
                    if !has_bytes(disk, &effect)? {
                        lost.add(&effect);
                        continue;
                    }
                }
                lost.cover(&effect);
                note_sums(disk, &effect);
                let outcome = state.apply(&effect);
                outcome.map_err(|reason| refused(reason, &effect))?;
                for effect in gone.within(&effect) {
                    lost.add(&effect);
                    let outcome = state.apply(&effect);
                    outcome.map_err(|reason| refused(reason, &effect))?;
                }
            }
            state.end_operation();
            disk.progress.one();
        }
        if let Part::Checkpoint(_) = part {
            state.end_checkpoint();
        }
    }
    Ok(lost)
}

/// Ranges of segments that a checkpoint names and a power loss destroyed, although they had been
/// synced: the disk was not honest. No earlier record is left that could supply the bytes, so the
/// ranges mapped there are lost, never holes.
#[derive(Default)]
struct Gone(HashMap<Segment, Vec<(u64, u64)>>);

impl Gone {
    fn note(&mut self, disk: &Disk, effect: &Effect<'_>) -> Result<()> {
        let Effect::Sums { segment, sums } = effect else {
            return Ok(());
        };
        for sum in sums.iter() {
            let length = u64::from(sum.length);
            if !disk.staging.verify(*segment, sum.offset, length, sum.crc)? {
                let ranges = self.0.entry(*segment).or_default();
                ranges.push((sum.offset, sum.offset.saturating_add(length)));
            }
        }
        Ok(())
    }

    /// The effects that correct an extent just mapped to such a range.
    fn within(&self, effect: &Effect<'_>) -> Vec<Effect<'static>> {
        let Effect::Map {
            ino,
            ref extent,
            crc: None,
        } = *effect
        else {
            return Vec::new();
        };
        let Some(staged) = extent.staged else {
            return Vec::new();
        };
        let (first, end) = (staged.offset, staged.offset + extent.length);
        let ranges = self.0.get(&staged.segment()).into_iter().flatten();
        ranges
            .filter(|(from, to)| *from < end && first < *to)
            .map(|(from, to)| {
                let (from, to) = ((*from).max(first), (*to).min(end));
                Effect::lose(ino, extent.offset + (from - first), to - from)
            })
            .collect()
    }
}

/// Extents without their bytes that no later record covers.
#[derive(Default)]
struct Lost {
    extents: HashMap<Ino, ExtentMap>,
    /// Makes each one's place another, so that neighbours do not count as one.
    last: u64,
}

impl Lost {
    fn add(&mut self, effect: &Effect<'_>) {
        if let Effect::Map { ino, extent, .. } = effect
            && extent.length > 0
            && extent.offset.checked_add(extent.length).is_some()
        {
            self.last += 1;
            let place = Staged::appended(self.last, 0);
            let extent = Extent::staged(extent.offset, extent.length, place);
            self.extents.entry(*ino).or_default().map(extent);
        }
    }

    fn cover(&mut self, effect: &Effect<'_>) {
        let (ino, from, to) = match effect {
            Effect::Map { ino, extent, .. } => {
                let end = extent.offset.saturating_add(extent.length);
                (ino, extent.offset, end)
            }
            Effect::Unmap { ino, from, to } => (ino, *from, *to),
            _ => return,
        };
        if let Some(extents) = self.extents.get_mut(ino) {
            extents.unmap(from, to);
        }
    }

    /// How many, in files that are still there.
    fn count(&self, state: &State) -> u64 {
        let there = self
            .extents
            .iter()
            .filter(|(ino, _)| state.inodes.contains(**ino));
        there
            .map(|(_, extents)| extents.iter().count() as u64)
            .sum()
    }
}

/// From here on the bytes are checked against the journal's checksums.
fn note_sums(disk: &Disk, effect: &Effect<'_>) {
    match effect {
        Effect::Map {
            extent:
                Extent {
                    length,
                    staged: Some(staged),
                    ..
                },
            crc: Some(crc),
            ..
        } => disk
            .staging
            .note(staged.segment(), staged.offset, *length, *crc),
        Effect::Sums { segment, sums } => {
            for sum in sums.iter() {
                let length = u64::from(sum.length);
                disk.staging.note(*segment, sum.offset, length, sum.crc);
            }
        }
        _ => {}
    }
}

fn has_bytes(disk: &Disk, effect: &Effect<'_>) -> Result<bool> {
    match effect {
        Effect::Map {
            extent:
                Extent {
                    length,
                    staged: Some(staged),
                    ..
                },
            crc: Some(crc),
            ..
        } => {
            let staging = &disk.staging;
            Ok(staging.verify(staged.segment(), staged.offset, *length, *crc)?)
        }
        _ => Ok(true),
    }
}

fn present_segments(disk: &Disk) -> BTreeSet<Segment> {
    let segments = disk.staging.segments();
    segments.into_iter().map(|(segment, _)| segment).collect()
}
