//! The checksums of one segment: a crc32c for each appended run of at most 16 KiB.
//!
//! A local disk can lose a write-back: pages whose write failed are dropped later, and reading them
//! again gives zeros, or what a recycled file held before. Only the sums reveal that. They live
//! beside the segment, not in the extents that map it: an extent costs nothing more, ranges may be
//! cut, joined and copied at will, and any part of them can be checked.
//!
//! - Long appends are summed in pieces; short ones that follow each other are joined (`combine`,
//!   without their bytes). 16 bytes a run: 0.1 % of the staged bytes, 64 KiB of memory for a full
//!   segment.
//! - To check a byte its whole run is read: at most 16 KiB. A lost page takes its run with it, no
//!   more.
//! - A run ends at a sync: bytes that were synced never share one with bytes that may still be
//!   lost.
//! - Runs of an earlier process come from its journal and are as long as its records; they are cut
//!   when they are first checked. Records of copies may overlap others, so runs may; no run lies
//!   within another. Runs that cover a record's range already stay as they are: a longer run in
//!   their place would lose synced bytes together with unsynced ones.

/// Longest run of a new append.
pub const RUN_BYTES: u64 = 16 << 10;

/// Bytes of a segment and their crc32c.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sum {
    /// Its offset in the segment.
    pub offset: u64,
    /// How many bytes; not 0.
    pub length: u32,
    /// crc32c of them.
    pub crc: u32,
}

impl Sum {
    /// The first byte behind.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }

    /// Whether the run is longer than one check reads.
    pub(crate) fn is_long(&self) -> bool {
        u64::from(self.length) > RUN_BYTES
    }
}

/// The sums of one segment, by offset. Their ends ascend, too.
#[derive(Default)]
pub(crate) struct Sums(Vec<Sum>, u64); // the second: where sums may be joined from

impl Sums {
    /// Adds the sum of a range that has been appended, unless it is known.
    pub fn note(&mut self, sum: Sum) {
        if sum.length == 0 {
            return;
        }
        // As most are.
        let is_behind_all = self.0.last().is_none_or(|last| last.end() <= sum.offset);
        if is_behind_all {
            self.0.push(sum);
            self.join(self.0.len() - 1);
            return;
        }
        if self.covers(sum.offset, sum.end()) {
            return;
        }
        let first = self.0.partition_point(|other| other.offset < sum.offset);
        let last = self.0.partition_point(|other| other.end() <= sum.end());
        self.0.splice(first..last.max(first), [sum]);
        self.join(first + 1);
        self.join(first);
    }

    /// Marks all runs so far as synced. No later append joins them, so a loss of later bytes cannot
    /// make them unreadable.
    pub fn set_synced(&mut self) {
        self.1 = self.0.last().map_or(0, Sum::end);
    }

    /// Nothing is ever joined: which of the records of an earlier process were synced is not known,
    /// nor which of the runs that a linked segment takes over from another can still be read.
    pub fn keep_apart(&mut self) {
        self.1 = u64::MAX;
    }

    /// Replaces a long sum that was checked by the sums of its parts.
    pub fn cut(&mut self, long: Sum, parts: &[Sum]) {
        if let Ok(at) = self.0.binary_search_by_key(&long.offset, |sum| sum.offset)
            && self.0[at] == long
        {
            self.0.remove(at);
            parts.iter().for_each(|part| self.note(*part));
        }
    }

    /// Sums that cover [from, to) together, in order; None if a byte has no sum.
    pub fn covering(&self, from: u64, to: u64) -> Option<Vec<Sum>> {
        let (mut found, mut at) = (Vec::new(), from);
        while at < to {
            let behind = self.0.partition_point(|sum| sum.offset <= at);
            let sum = self.0.get(behind.checked_sub(1)?)?;
            if sum.end() <= at {
                return None;
            }
            found.push(*sum);
            at = sum.end();
        }
        Some(found)
    }

    fn covers(&self, from: u64, to: u64) -> bool {
        let first = self.0.partition_point(|sum| sum.offset <= from);
        let mut at = from;
        for sum in &self.0[first.saturating_sub(1)..] {
            if at >= to || sum.offset > at {
                break;
            }
            at = at.max(sum.end());
        }
        at >= to
    }

    pub fn all(&self) -> Vec<Sum> {
        self.0.clone()
    }

    /// Joins the sum at `at` with the one before it, if the result is no longer than a run.
    fn join(&mut self, at: usize) {
        let Some([before, sum]) = at.checked_sub(1).and_then(|from| self.0.get(from..=at)) else {
            return;
        };
        let length = before.length.saturating_add(sum.length);
        let is_apart = before.offset < self.1;
        if !is_apart && before.end() == sum.offset && u64::from(length) <= RUN_BYTES {
            let crc = combine(before.crc, sum.crc, sum.length.into());
            self.0[at - 1] = Sum {
                offset: before.offset,
                length,
                crc,
            };
            self.0.remove(at);
        }
    }
}

/// The sums of data at `offset`, and the crc32c of all of it.
pub(crate) fn sums_of(offset: u64, data: &[u8]) -> (Vec<Sum>, u32) {
    let mut whole = 0;
    let mut at = offset;
    let sum = |run: &[u8]| {
        let sum = Sum {
            offset: at,
            length: run.len() as u32,
            crc: crc32c::crc32c(run),
        };
        whole = combine(whole, sum.crc, run.len() as u64);
        at = sum.end();
        sum
    };
    (data.chunks(RUN_BYTES as usize).map(sum).collect(), whole)
}

const POLYNOMIAL: u32 = 0x82f6_3b78;

/// x^(2^n) modulo the polynomial, bits reflected.
const POWERS: [u32; 32] = {
    let mut powers = [1 << 30; 32];
    let mut n = 1;
    while n < 32 {
        powers[n] = multiply(powers[n - 1], powers[n - 1]);
        n += 1;
    }
    powers
};

/// crc32c of A followed by B, from those of A and B and B's length. About 50 ns a set bit of the
/// length.
pub fn combine(a: u32, b: u32, b_length: u64) -> u32 {
    let (mut shifted, mut bytes, mut power) = (a, b_length, 3);
    while bytes > 0 {
        if bytes & 1 == 1 {
            shifted = multiply(POWERS[power % 32], shifted);
        }
        (bytes, power) = (bytes >> 1, power + 1);
    }
    shifted ^ b
}

/// Product of two polynomials modulo the crc's, bits reflected: bit 31 is x^0.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let (mut bit, mut product) = (1 << 31, 0);
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = if b & 1 == 1 {
            (b >> 1) ^ POLYNOMIAL
        } else {
            b >> 1
        };
        bit >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(data: &[u8], from: usize, to: usize) -> Sum {
        Sum {
            offset: from as u64,
            length: (to - from) as u32,
            crc: crc32c::crc32c(&data[from..to]),
        }
    }

    fn check(sums: &Sums, data: &[u8]) {
        for sum in &sums.0 {
            assert_eq!(
                sum.crc,
                crc32c::crc32c(&data[sum.offset as usize..sum.end() as usize])
            );
        }
        for pair in sums.0.windows(2) {
            assert!(pair[0].offset < pair[1].offset && pair[0].end() < pair[1].end());
        }
    }

    #[test]
    fn short_appends_share_a_sum() {
        let data: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        let mut sums = Sums::default();
        for from in (0..100_000).step_by(100) {
            sums.note(sum(&data, from, from + 100));
        }
        check(&sums, &data);
        assert!(sums.0.len() <= 7, "{} sums", sums.0.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn combining_is_summing_both(length in 0..100_000_u32, at in 0..100_000_usize, seed in any::<u32>()) {
            let data: Vec<u8> = (0..length).map(|at| (at.wrapping_mul(seed) >> 24) as u8).collect();
            let at = at.min(data.len());
            let (a, b) = data.split_at(at);
            let combined = combine(crc32c::crc32c(a), crc32c::crc32c(b), b.len() as u64);
            prop_assert_eq!(combined, crc32c::crc32c(&data));
            let (sums, whole) = sums_of(77, &data);
            prop_assert_eq!(whole, crc32c::crc32c(&data));
            prop_assert_eq!(sums.iter().map(|sum| u64::from(sum.length)).sum::<u64>(), data.len() as u64);
        }

        #[test]
        fn what_was_noted_is_covered(ranges in prop::collection::vec((0..2000_usize, 1..400_usize), 1..40)) {
            let data: Vec<u8> = (0..2400_u32).map(|at| (at * 7 % 251) as u8).collect();
            let (mut sums, mut is_noted) = (Sums::default(), vec![false; data.len()]);
            for (from, length) in ranges {
                sums.note(sum(&data, from, from + length));
                is_noted[from..from + length].fill(true);
                check(&sums, &data);
            }
            for (at, is_noted) in is_noted.iter().enumerate() {
                prop_assert_eq!(sums.covering(at as u64, at as u64 + 1).is_some(), *is_noted);
            }
        }
    }
}
