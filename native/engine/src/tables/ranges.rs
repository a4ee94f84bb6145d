//! A set of byte ranges: disjoint, joined where they touch, by their start; and how many bytes they
//! have, which is asked more often than they change.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Default)]
pub(crate) struct Ranges {
    ends: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Ranges {
    /// [from, to) belongs to it from now on.
    pub fn add(&mut self, mut from: u64, mut to: u64) {
        if from >= to {
            return;
        }
        let touched = self.touching(from, to);
        if let (Some((first, _)), Some((_, last))) = (touched.last(), touched.first()) {
            (from, to) = (from.min(*first), to.max(*last));
        }
        for (start, end) in touched {
            self.take_out(start, end);
        }
        self.put_in(from, to);
    }

    pub fn remove(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        for (start, end) in self.touching(from, to) {
            self.take_out(start, end);
            if start < from {
                self.put_in(start, from);
            }
            if end > to {
                self.put_in(to, end);
            }
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn put_in(&mut self, from: u64, to: u64) {
        self.ends.insert(from, to);
        self.bytes += to - from;
    }

    fn take_out(&mut self, from: u64, to: u64) {
        self.ends.remove(&from);
        self.bytes -= to - from;
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ends.iter().map(|(from, to)| (*from, *to))
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The ranges that overlap or touch [from, to), the last first.
    fn touching(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let before = self.ends.range(..=to).rev();
        let found = before.take_while(|(_, end)| **end >= from);
        found.map(|(start, end)| (*start, *end)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_total_is_that_of_all_ranges(
            changes in proptest::collection::vec((any::<bool>(), 0..200_u64, 0..40_u64), 0..60)
        ) {
            let (mut ranges, mut bytes) = (Ranges::default(), [false; 240]);
            for (is_added, from, length) in changes {
                match is_added {
                    true => ranges.add(from, from + length),
                    false => ranges.remove(from, from + length),
                }
                bytes[from as usize..(from + length) as usize].fill(is_added);
                let sum: u64 = ranges.iter().map(|(from, to)| to - from).sum();
                prop_assert_eq!(ranges.bytes(), sum);
                prop_assert_eq!(sum, bytes.iter().filter(|is_in| **is_in).count() as u64);
            }
        }
    }

    #[test]
    fn ranges_are_joined_and_cut() {
        let mut ranges = Ranges::default();
        ranges.add(10, 20);
        ranges.add(30, 40);
        ranges.add(50, 50);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(10, 20), (30, 40)]);
        ranges.add(20, 30);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(10, 40)]);
        ranges.remove(40, 50);
        ranges.remove(0, 10);
        ranges.remove(15, 20);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(10, 15), (20, 40)]);
        assert_eq!(ranges.bytes(), 25);
        ranges.add(0, u64::MAX);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, u64::MAX)]);
        ranges.remove(0, u64::MAX);
        assert!(ranges.is_empty());
    }
}
