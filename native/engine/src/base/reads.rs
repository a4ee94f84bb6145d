//! The ranges that were read, in the order of first reading: for a profile that warms a later
//! mount.
//!
//! Off until it is requested; then each read costs a short lock. A read is noted before its bytes
//! are here. A range is noted once, so the list grows with the amount of data read and not with the
//! number of reads. Ranges are rounded out to `BLOCK_BYTES`. A reader that continues where the
//! file's last range ended makes that range longer, up to `RANGE_BYTES`, so that files read side by
//! side stay in turn. After `NOTES_MAX` ranges nothing more is noted.
//!
//! The lock is a leaf: no other is taken under it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use cowfs_base::Ino;
use cowfs_base::sync::Mutex;

use crate::engine::Engine;

const BLOCK_BYTES: u64 = 64 << 10;
const RANGE_BYTES: u64 = 16 << 20;
const NOTES_MAX: usize = 1 << 20;

/// Bytes of a file that were read, rounded out. Empty: a directory whose entries came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRange {
    /// The file or directory.
    pub ino: Ino,
    /// In bytes, a multiple of `BLOCK_BYTES`.
    pub offset: u64,
    /// In bytes, a multiple of `BLOCK_BYTES`; it may reach behind the end of the file.
    pub length: u64,
}

#[derive(Default)]
pub(crate) struct Reads {
    is_on: AtomicBool,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    /// Start and end of the ranges read of each inode. Ranges do not overlap or touch.
    covered: HashMap<Ino, BTreeMap<u64, u64>>,
    /// The ranges not yet taken.
    ranges: Vec<ReadRange>,
    /// The place in `ranges` of the newest range of each file.
    newest: HashMap<Ino, usize>,
    count: usize,
}

impl Reads {
    pub fn note_directory(&self, ino: Ino) {
        if self.is_on.load(Ordering::Relaxed) {
            let mut noted = self.noted.lock();
            if !noted.covered.contains_key(&ino) && noted.count < NOTES_MAX {
                noted.covered.insert(ino, BTreeMap::new());
                noted.push(ino, 0, 0);
            }
        }
    }

    pub fn note(&self, ino: Ino, start: u64, end: u64) {
        if self.is_on.load(Ordering::Relaxed) && start < end {
            let start = start - start % BLOCK_BYTES;
            self.noted
                .lock()
                .add(ino, start, end.next_multiple_of(BLOCK_BYTES));
        }
    }
}

impl Noted {
    fn add(&mut self, ino: Ino, start: u64, end: u64) {
        if self.count >= NOTES_MAX {
            return;
        }
        let covered = self.covered.entry(ino).or_default();
        let (news, merged) = merge(covered, start, end);
        if !news.is_empty() {
            covered.insert(merged.0, merged.1);
        }
        for (start, end) in news {
            self.push(ino, start, end);
        }
    }

    fn push(&mut self, ino: Ino, start: u64, end: u64) {
        if let Some(&at) = self.newest.get(&ino) {
            let last = &mut self.ranges[at];
            if last.offset + last.length == start && last.length < RANGE_BYTES {
                last.length += end - start;
                return;
            }
        }
        self.count += 1;
        self.newest.insert(ino, self.ranges.len());
        self.ranges.push(ReadRange {
            ino,
            offset: start,
            length: end - start,
        });
    }
}

type Span = (u64, u64);

/// The parts of a range that are not covered yet, and the one range that covers it and its
/// neighbours. The neighbours are removed from `covered`.
fn merge(covered: &mut BTreeMap<u64, u64>, start: u64, end: u64) -> (Vec<Span>, Span) {
    let before = covered.range(..=start).next_back();
    let from = match before {
        Some((&from, &to)) if to >= start => from,
        _ => start,
    };
    let old: Vec<Span> = covered
        .range(from..=end)
        .map(|(from, to)| (*from, *to))
        .collect();
    let mut news = Vec::new();
    let mut at = start;
    for (from, to) in &old {
        if *from > at {
            news.push((at, *from));
        }
        at = at.max(*to);
    }
    if at < end {
        news.push((at, end));
    }
    if !news.is_empty() {
        for (from, _) in &old {
            covered.remove(from);
        }
    }
    (news, (from, at.max(end)))
}

impl Engine {
    /// Starts noting reads, for `take_reads`.
    pub fn note_reads(&self) {
        self.reads.is_on.store(true, Ordering::Relaxed);
    }

    /// The ranges read for the first time since the last call, in order.
    pub fn take_reads(&self) -> Vec<ReadRange> {
        let mut noted = self.reads.noted.lock();
        noted.newest.clear();
        std::mem::take(&mut noted.ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_BYTES, NOTES_MAX, Noted, RANGE_BYTES};

    fn ranges(noted: &Noted) -> Vec<(u64, u64, u64)> {
        let blocks = |bytes| bytes / BLOCK_BYTES;
        let row =
            |range: &super::ReadRange| (range.ino, blocks(range.offset), blocks(range.length));
        noted.ranges.iter().map(row).collect()
    }

    fn add(noted: &mut Noted, ino: u64, start: u64, end: u64) {
        noted.add(ino, start * BLOCK_BYTES, end * BLOCK_BYTES);
    }

    #[test]
    fn what_was_read_before_is_not_noted_again() {
        let mut noted = Noted::default();
        add(&mut noted, 2, 10, 20);
        add(&mut noted, 2, 12, 18);
        add(&mut noted, 3, 10, 20);
        add(&mut noted, 2, 40, 50);
        add(&mut noted, 2, 5, 60);
        add(&mut noted, 2, 5, 60);
        let expected = [
            (2, 10, 10),
            (3, 10, 10),
            (2, 40, 10),
            (2, 5, 5),
            (2, 20, 20),
            (2, 50, 10),
        ];
        assert_eq!(ranges(&noted), expected);
        assert_eq!(noted.covered[&2].len(), 1);
    }

    #[test]
    fn who_reads_on_makes_a_range_longer_and_files_stay_in_turn() {
        let mut noted = Noted::default();
        let longest = RANGE_BYTES / BLOCK_BYTES;
        for at in 0..longest + 1 {
            add(&mut noted, 2, at, at + 1);
            add(&mut noted, 3, at, at + 1);
        }
        let expected = [
            (2, 0, longest),
            (3, 0, longest),
            (2, longest, 1),
            (3, longest, 1),
        ];
        assert_eq!(ranges(&noted), expected);
    }

    #[test]
    fn a_list_does_not_grow_for_ever() {
        let mut noted = Noted::default();
        for at in 0..NOTES_MAX as u64 + 5 {
            add(&mut noted, 2, 2 * at, 2 * at + 1);
        }
        assert_eq!(noted.ranges.len(), NOTES_MAX);
    }

    /// Against a set of blocks, by a generator of its own.
    #[test]
    fn every_block_is_noted_once() {
        let (mut noted, mut seen, mut seed) =
            (Noted::default(), std::collections::BTreeSet::new(), 7u64);
        for _ in 0..2000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (start, length) = ((seed >> 40) % 300, (seed >> 33) % 9 + 1);
            add(&mut noted, 2, start, start + length);
            seen.extend(start..start + length);
        }
        let blocks: Vec<u64> = ranges(&noted)
            .iter()
            .flat_map(|(_, start, length)| *start..start + length)
            .collect();
        assert_eq!(blocks.len(), seen.len());
        assert_eq!(
            blocks
                .into_iter()
                .collect::<std::collections::BTreeSet<_>>(),
            seen
        );
    }
}
