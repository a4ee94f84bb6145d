//! A set of directory entries, each with one bit, in about 40 bytes an entry of 20: records one
//! behind the other in one allocation, found through a table of 32-bit places.
//!
//! ```text
//! record    state u8, name length u8, parent u64, name; filled up to a multiple of UNIT bytes
//! state     0: removed, 1: without the bit, 2: with it
//! ```
//!
//! A place counts in units, so that 16 GiB of records can be told apart: about 400 million entries.
//! When half of the bytes are of removed records the rest is moved together.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

use crate::changes::EntryAt;

const UNIT: usize = 4;
const HEAD: usize = 10;
const REMOVED: u8 = 0;
const CLEAR: u8 = 1;
const SET: u8 = 2;
/// Smaller sets are not worth moving together.
const SQUEEZE_MIN_BYTES: usize = 4096;

/// The set.
#[derive(Debug, Clone, Default)]
pub(crate) struct EntrySet {
    records: Vec<u8>,
    removed_bytes: usize,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl EntrySet {
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    pub fn contains(&self, at: EntryAt<'_>) -> bool {
        self.get(at).is_some()
    }

    /// The entry's bit; None if it is not in the set.
    pub fn get(&self, at: EntryAt<'_>) -> Option<bool> {
        let place = self.index.find(self.hasher.hash_one(at), |place| {
            record(&self.records, *place).0 == at
        })?;
        Some(record(&self.records, *place).1 == SET)
    }

    /// Adds an entry that is not in the set.
    pub fn insert(&mut self, at: EntryAt<'_>, bit: bool) {
        debug_assert!(!self.contains(at) && at.name.len() <= 255);
        let place = u32::try_from(self.records.len() / UNIT).expect("changes fit in 16 GiB");
        self.records.push(if bit { SET } else { CLEAR });
        self.records.push(at.name.len() as u8);
        self.records.extend_from_slice(&at.parent.to_le_bytes());
        self.records.extend_from_slice(at.name);
        self.records
            .resize(self.records.len().next_multiple_of(UNIT), 0);
        let (records, hasher) = (&self.records, &self.hasher);
        self.index
            .insert_unique(hasher.hash_one(at), place, |place| {
                hasher.hash_one(record(records, *place).0)
            });
    }

    pub fn remove(&mut self, at: EntryAt<'_>) {
        let records = &self.records;
        let Ok(entry) = self.index.find_entry(self.hasher.hash_one(at), |place| {
            record(records, *place).0 == at
        }) else {
            return;
        };
        let (place, _) = entry.remove();
        self.records[place as usize * UNIT] = REMOVED;
        self.removed_bytes += (HEAD + at.name.len()).next_multiple_of(UNIT);
        if self.records.len() > SQUEEZE_MIN_BYTES && self.removed_bytes * 2 > self.records.len() {
            let mut kept = EntrySet::default();
            for (at, bit) in self.iter() {
                kept.insert(at, bit);
            }
            *self = kept;
        }
    }

    /// The place of each entry, until the set is changed.
    pub fn places(&self) -> Vec<u32> {
        let mut places: Vec<u32> = self.index.iter().copied().collect();
        places.sort_unstable();
        places
    }

    /// The entry at one of `places`.
    pub fn at(&self, place: u32) -> EntryAt<'_> {
        record(&self.records, place).0
    }

    /// Every entry with its bit, in the order they came.
    pub fn iter(&self) -> impl Iterator<Item = (EntryAt<'_>, bool)> {
        let mut next = 0;
        let all = std::iter::from_fn(move || {
            let place = next;
            let length = usize::from(*self.records.get(place * UNIT + 1)?);
            next += (HEAD + length).div_ceil(UNIT);
            Some(record(&self.records, place as u32))
        });
        all.filter(|(_, state)| *state != REMOVED)
            .map(|(at, state)| (at, state == SET))
    }
}

fn record(records: &[u8], place: u32) -> (EntryAt<'_>, u8) {
    let bytes = &records[place as usize * UNIT..];
    let (head, rest) = bytes.split_at(HEAD);
    let at = EntryAt {
        parent: u64::from_le_bytes(head[2..].try_into().expect("eight bytes")),
        name: &rest[..usize::from(head[1])],
    };
    (at, head[0])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_is_a_map_of_bits(ops in prop::collection::vec((0..3_u64, 0..400_usize, 0..3_u8), 0..3000)) {
            let mut set = EntrySet::default();
            let mut model = BTreeMap::new();
            for (parent, number, what) in ops {
                let name = vec![b'n'; number % 256].into_iter().chain(number.to_le_bytes()).take(255).collect::<Vec<u8>>();
                let at = EntryAt { parent, name: &name };
                prop_assert_eq!(set.get(at), model.get(&(parent, name.clone())).copied());
                if what == 0 {
                    set.remove(at);
                    model.remove(&(parent, name));
                } else if !set.contains(at) {
                    set.insert(at, what == 1);
                    model.insert((parent, name), what == 1);
                }
            }
            let found: BTreeMap<_, _> = set.iter().map(|(at, bit)| ((at.parent, at.name.to_vec()), bit)).collect();
            prop_assert_eq!(set.is_empty(), model.is_empty());
            prop_assert_eq!(found, model);
        }
    }

    #[test]
    fn entries_that_come_and_go_take_no_room() {
        let mut set = EntrySet::default();
        for number in 0..100_000_u64 {
            let name = number.to_be_bytes();
            let at = EntryAt {
                parent: 1,
                name: &name,
            };
            set.insert(at, true);
            set.remove(at);
        }
        assert!(set.records.len() <= SQUEEZE_MIN_BYTES + 64);
    }
}
