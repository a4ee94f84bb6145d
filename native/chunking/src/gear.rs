//! Where FastCDC 2020 cuts, with the public table or one of a store's own, made from its key.
//! Sizes, masks and normalization are the same for both. With the public table, the lengths of a
//! known file's chunks identify it; the crate's own seed is not used, since it only flips the same
//! bits of every number.
//!
//! The crate `fastcdc` goes through the bytes one after the other, and each step waits for the one
//! before it: 1.5 cycles a byte. Here `LANES` places are looked through at once. A hash depends on
//! the last `WINDOW` bytes alone, so a lane can begin anywhere. Tests compare every cut with the
//! crate's.

use std::ops::Range;
use std::sync::LazyLock;

use fastcdc::v2020::{get_gear_with_seed, select_masks};

use crate::{AVERAGE_BYTES, LEVEL, MAX_BYTES, MIN_BYTES};

const ENTRIES: usize = 256;
/// A byte is shifted out of the hash behind so many others.
const WINDOW: usize = 64;
/// Measured on an AMD EPYC with AVX-512: 3.5 GB/s with one lane, as the crate; 4.4 with two, 4.5
/// with three, 5.0 with four, 4.9 with five, 4.5 with six.
const LANES: usize = 4;
/// The bytes that each lane searches before all of them move on. If a lane finds an end, its bytes
/// are searched again in sequence.
const BLOCK: usize = 4096;
const _: () = assert!(BLOCK >= WINDOW && BLOCK.is_multiple_of(2));
const _: () = assert!(MIN_BYTES.is_multiple_of(2) && AVERAGE_BYTES.is_multiple_of(2));

static PUBLIC: LazyLock<Gear> = LazyLock::new(|| {
    let (numbers, _) = get_gear_with_seed(0);
    Gear::new((*numbers).try_into().expect("the table has 256 numbers"))
});

/// A table of 256 numbers, the same shifted by one bit, and the masks that go with them.
pub struct Gear {
    numbers: [u64; ENTRIES],
    shifted: [u64; ENTRIES],
    strict: u64,
    relaxed: u64,
}

impl Gear {
    /// FastCDC's own table.
    pub(crate) fn public() -> &'static Gear {
        &PUBLIC
    }

    /// From 256 big-endian numbers.
    pub fn from_bytes(bytes: &[u8; 8 * ENTRIES]) -> Gear {
        let mut numbers = [0; ENTRIES];
        for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *number = u64::from_be_bytes(*bytes);
        }
        Gear::new(numbers)
    }

    fn new(numbers: [u64; ENTRIES]) -> Gear {
        let (strict, relaxed) = select_masks(AVERAGE_BYTES, LEVEL);
        let shifted = numbers.map(|number| number << 1);
        Gear {
            numbers,
            shifted,
            strict,
            relaxed,
        }
    }

    /// Lengths of the chunks of `data`, in order; the last one ends with it.
    pub(crate) fn lengths<'a>(&'a self, data: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        let mut left = data;
        std::iter::from_fn(move || {
            let length = self.length(left);
            left = &left[length..];
            (length > 0).then_some(length)
        })
    }

    /// The length of the first chunk. An end never lies after the last byte of an odd number of
    /// bytes.
    fn length(&self, data: &[u8]) -> usize {
        if data.len() <= MIN_BYTES {
            return data.len();
        }
        let data = &data[..data.len().min(MAX_BYTES)];
        let center = data.len().min(AVERAGE_BYTES) & !1;
        let mut hash = 0;
        self.find(data, MIN_BYTES..center, self.strict, &mut hash)
            .or_else(|| self.find(data, center..data.len() & !1, self.relaxed, &mut hash))
            .unwrap_or(data.len())
    }

    /// The first place in `range` whose hash has none of the mask's bits. hash: of the bytes before
    /// `range`, as far as they count, and then of those in it.
    fn find(&self, data: &[u8], range: Range<usize>, mask: u64, hash: &mut u64) -> Option<usize> {
        let mut at = range.start;
        while range.end.saturating_sub(at) >= LANES * BLOCK {
            let mut hashes = [*hash; LANES];
            for (lane, hash) in hashes.iter_mut().enumerate().skip(1) {
                let begin = at + lane * BLOCK;
                let window = &data[begin - WINDOW..begin];
                *hash = window.iter().fold(0, |hash, byte| self.next(hash, *byte));
            }
            if self.has_end(&data[at..at + LANES * BLOCK], mask, &mut hashes) {
                break;
            }
            *hash = hashes[LANES - 1];
            at += LANES * BLOCK;
        }
        let mut left = data[at..range.end].iter();
        let found = left.position(|byte| {
            *hash = self.next(*hash, *byte);
            *hash & mask == 0
        });
        found.map(|place| at + place)
    }

    fn next(&self, hash: u64, byte: u8) -> u64 {
        (hash << 1).wrapping_add(self.numbers[usize::from(byte)])
    }

    /// Whether there is an end as `find` looks for it, two bytes of each lane at a time.
    fn has_end(&self, blocks: &[u8], mask: u64, hashes: &mut [u64; LANES]) -> bool {
        let blocks: &[[u8; BLOCK]; LANES] = blocks.as_chunks().0.try_into().expect("one each");
        for place in 0..BLOCK / 2 {
            for (hash, block) in hashes.iter_mut().zip(blocks) {
                let first = usize::from(block[2 * place]);
                *hash = (*hash << 2).wrapping_add(self.shifted[first]);
                if *hash & (mask << 1) == 0 {
                    return true;
                }
                *hash = hash.wrapping_add(self.numbers[usize::from(block[2 * place + 1])]);
                if *hash & mask == 0 {
                    return true;
                }
            }
        }
        false
    }
}
