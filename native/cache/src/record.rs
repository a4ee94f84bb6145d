//! The index of a segment: where each chunk lies in the segment, and its checksums.
//!
//! ```text
//! index    "cowfsix1"  record…
//! record   crc32c of the hash, the three numbers and the sums    4
//!          hash of the chunk                                    32
//!          where its bytes begin in the segment                  4
//!          their length                                          4
//!          when they were stored, seconds since 1970             4
//!          not 0: read again since then                          1    not in the checksum: set in place, by any process
//!          zeros                                                 3
//!          crc32c of each block of 4 KiB of the bytes            4 each, the last block may be short
//! ```
//!
//! Little-endian. One process appends records after their bytes. A record never changes except for
//! the one byte. The index ends at the first record that does not fit or fails its checksum.

use crate::Hash;
use crate::blocks::{BLOCK_BYTES, BlockSums};

pub const MAGIC: &[u8; 8] = b"cowfsix1";
pub const FIXED_BYTES: usize = 52;
/// The place in a record of the byte that is set when the chunk is read again.
pub const USED_AT: u64 = 48;
/// No chunk is longer (cowfs/format/codec.py).
pub const MAX_RAW_BYTES: u64 = 16 << 20;

#[derive(Clone)]
pub struct Record {
    pub hash: Hash,
    pub offset: u32,
    pub raw_len: u32,
    pub stored_s: u32,
    pub is_used: bool,
    pub sums: BlockSums,
}

/// Length of the record of such a chunk; None if no chunk can be so long.
pub fn bytes_of(raw_len: u64) -> Option<usize> {
    (raw_len <= MAX_RAW_BYTES)
        .then(|| FIXED_BYTES + 4 * usize::try_from(raw_len.div_ceil(BLOCK_BYTES)).unwrap_or(0))
}

impl Record {
    pub fn append_to(&self, index: &mut Vec<u8>) {
        let start = index.len();
        index.extend([0; 4]);
        index.extend(self.hash);
        index.extend(self.offset.to_le_bytes());
        index.extend(self.raw_len.to_le_bytes());
        index.extend(self.stored_s.to_le_bytes());
        index.extend([u8::from(self.is_used), 0, 0, 0]);
        index.extend(self.sums.to_bytes());
        let sum = checksum(&index[start..]);
        index[start..start + 4].copy_from_slice(&sum.to_le_bytes());
    }

    /// The record at the start of these bytes, and its length; None if it is incomplete or invalid.
    pub fn parse(bytes: &[u8]) -> Option<(Record, usize)> {
        let fixed = bytes.get(..FIXED_BYTES)?;
        let number =
            |at: usize| u32::from_le_bytes(fixed[at..at + 4].try_into().unwrap_or_default());
        let raw_len = number(40);
        let length = bytes_of(raw_len.into())?;
        let whole = bytes.get(..length)?;
        if number(0) != checksum(whole) {
            return None;
        }
        let record = Record {
            hash: fixed[4..36].try_into().ok()?,
            offset: number(36),
            raw_len,
            stored_s: number(44),
            is_used: fixed[USED_AT as usize] != 0,
            sums: BlockSums::from_bytes(&whole[FIXED_BYTES..]),
        };
        Some((record, length))
    }
}

fn checksum(record: &[u8]) -> u32 {
    let first = crc32c::crc32c(&record[4..USED_AT as usize]);
    crc32c::crc32c_append(first, &record[FIXED_BYTES..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(hash: u8, data: &[u8]) -> Record {
        Record {
            hash: [hash; 32],
            offset: 8192,
            raw_len: data.len() as u32,
            stored_s: 1,
            is_used: false,
            sums: BlockSums::of(data),
        }
    }

    proptest! {
        #[test]
        fn what_is_damaged_or_torn_is_no_record(
            length in 0usize..20_000, at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<prop::sample::Index>(),
        ) {
            let data = vec![7; length];
            let mut bytes = Vec::new();
            record(3, &data).append_to(&mut bytes);
            let whole = bytes.len();
            prop_assert_eq!(Some(whole), bytes_of(length as u64));
            prop_assert_eq!(Record::parse(&bytes).map(|(found, length)| (found.hash, found.raw_len, length)), Some(([3; 32], length as u32, whole)));
            prop_assert!(Record::parse(&bytes[..cut.index(whole)]).is_none());
            let at = at.index(whole);
            bytes[at] ^= 1 << bit;
            let found = Record::parse(&bytes);
            if (USED_AT as usize..FIXED_BYTES).contains(&at) {
                prop_assert!(found.is_some());
            } else {
                prop_assert!(found.is_none());
            }
        }

        #[test]
        fn noise_is_no_record(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(Record::parse(&bytes).is_none());
        }
    }
}
