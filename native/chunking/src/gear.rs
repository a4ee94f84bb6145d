//! The table that decides where an encrypted store cuts: FastCDC's 256 numbers, made from the
//! store's key instead of the public ones. Everything else (sizes, masks, normalization) is as
//! everywhere.
//!
//! With the public table, the lengths of a known file's chunks identify it. The crate's own seed is
//! not used: it only flips the same bits of every number.

use fastcdc::v2020::{cut_gear, select_masks};

use crate::{AVERAGE_BYTES, LEVEL, MAX_BYTES, MIN_BYTES};

const ENTRIES: usize = 256;

/// A gear table and the same one shifted by one bit, which FastCDC 2020 needs besides.
pub struct Gear {
    numbers: [u64; ENTRIES],
    shifted: [u64; ENTRIES],
}

impl Gear {
    /// From 256 big-endian numbers.
    pub fn from_bytes(bytes: &[u8; 8 * ENTRIES]) -> Gear {
        let mut numbers = [0; ENTRIES];
        for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *number = u64::from_be_bytes(*bytes);
        }
        let shifted = numbers.map(|number| number << 1);
        Gear { numbers, shifted }
    }

    /// Lengths of the chunks of `data`, in order; the last one ends with it.
    pub(crate) fn lengths<'a>(&'a self, data: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        let (strict, relaxed) = select_masks(AVERAGE_BYTES, LEVEL);
        let mut left = data;
        std::iter::from_fn(move || {
            let (_, length) = cut_gear(
                left,
                MIN_BYTES,
                AVERAGE_BYTES,
                MAX_BYTES,
                strict,
                relaxed,
                strict << 1,
                relaxed << 1,
                &self.numbers,
                &self.shifted,
            );
            left = &left[length..];
            (length > 0).then_some(length)
        })
    }
}
