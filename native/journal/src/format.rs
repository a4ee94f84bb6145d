//! The bytes of a journal file. Integers are little-endian.
//!
//! ```text
//! header, 128 bytes                                     record, 32 bytes and its payload
//!   0   8  "cowfsjrn"                                     0  4  payload length
//!   8   4  format, 1                                      4  4  crc32c of seed, bytes 0..4, 8..32 and payload
//!  12   4  crc32c of the header, this field zero          8  8  sequence number
//!  16   8  layer                                         16  8  highest sequence number known to be synced
//!  24  16  chain id, random                              24  4  ordinal in this file, from 1
//!  40   2  length of the boot id                         28  4  records in the file before this one
//!  42  64  boot id, zero padded                          32     payload
//! 106   1  1: the first file of its chain, else 0
//! 107  21  zero, ignored when read
//! ```
//!
//! The first 16 bytes and what their checksum covers are the same in every format, so that an
//! unknown one can be told from a damaged one. A chain is the files one process wrote, each the
//! successor of the one before; sequence numbers run on through it, and each record tells how many
//! the file before has, so that one cut at a record's end is noticed. The seed, crc32c of chain id
//! and layer, makes a record valid in its own file only: a user who stores bytes that look like a
//! record (in an extended attribute, say) can't make one.

use std::path::{Path, PathBuf};

pub const MAGIC: &[u8; 8] = b"cowfsjrn";
pub const FORMAT: u32 = 1;
pub const HEADER_BYTES: usize = 128;
pub const RECORD_BYTES: usize = 32;
pub const MAX_BOOT_ID_BYTES: usize = 64;

/// The longest payload of one record.
pub const MAX_PAYLOAD_BYTES: usize = 64 << 20;

pub type ChainId = [u8; 16];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub layer: u64,
    pub chain: ChainId,
    pub boot_id: Vec<u8>,
    pub is_first: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum BadHeader {
    Damaged(&'static str),
    UnknownFormat(u32),
}

impl Header {
    /// `boot_id` has at most MAX_BOOT_ID_BYTES bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[16..24].copy_from_slice(&self.layer.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.chain);
        bytes[40..42].copy_from_slice(&(self.boot_id.len() as u16).to_le_bytes());
        bytes[42..42 + self.boot_id.len()].copy_from_slice(&self.boot_id);
        bytes[106] = self.is_first.into();
        sign(bytes, MAGIC, FORMAT)
    }

    pub fn decode(file: &[u8]) -> Result<Header, BadHeader> {
        let bytes = signed::<HEADER_BYTES>(file, MAGIC, FORMAT)?;
        let length = usize::from(u16::from_le_bytes([bytes[40], bytes[41]]));
        if length > MAX_BOOT_ID_BYTES {
            return Err(BadHeader::Damaged("the boot id is too long"));
        }
        let mut chain = [0; 16];
        chain.copy_from_slice(&bytes[24..40]);
        Ok(Header {
            layer: u64_at(bytes, 16),
            chain,
            boot_id: bytes[42..42 + length].to_vec(),
            is_first: bytes[106] == 1,
        })
    }

    /// The start value of the checksum of each record of this file.
    pub fn seed(&self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.chain), &self.layer.to_le_bytes())
    }
}

/// A header that begins with magic, format and checksum: 8, 4 and 4 bytes.
pub fn sign<const N: usize>(mut bytes: [u8; N], magic: &[u8; 8], format: u32) -> [u8; N] {
    bytes[0..8].copy_from_slice(magic);
    bytes[8..12].copy_from_slice(&format.to_le_bytes());
    let crc = crc32c::crc32c(&bytes);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The header of a file, as `sign` made it.
pub fn signed<'a, const N: usize>(
    file: &'a [u8],
    magic: &[u8; 8],
    format: u32,
) -> Result<&'a [u8; N], BadHeader> {
    let Some(bytes) = file.first_chunk::<N>() else {
        return Err(BadHeader::Damaged("the file is shorter than its header"));
    };
    let mut unsigned = *bytes;
    unsigned[12..16].fill(0);
    if &bytes[0..8] != magic || u32_at(bytes, 12) != crc32c::crc32c(&unsigned) {
        return Err(BadHeader::Damaged("the header fails its checksum"));
    }
    match u32_at(bytes, 8) {
        found if found == format => Ok(bytes),
        found => Err(BadHeader::UnknownFormat(found)),
    }
}

/// A valid record, as it stands at the start of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    pub length: usize,
    pub sequence: u64,
    pub synced: u64,
    pub ordinal: u32,
    pub before: u32,
}

impl Record {
    /// Appends the record to `out`. The payload has `self.length` bytes, at most MAX_PAYLOAD_BYTES.
    pub fn encode(&self, seed: u32, payload: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&(self.length as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.synced.to_le_bytes());
        out.extend_from_slice(&self.ordinal.to_le_bytes());
        out.extend_from_slice(&self.before.to_le_bytes());
        out.extend_from_slice(payload);
        let crc = checksum(seed, &out[start..]);
        out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    }

    /// The record at the start of `bytes`, if a whole and valid one stands there.
    pub fn decode(seed: u32, bytes: &[u8]) -> Option<Record> {
        let record = Record::peek(bytes)?;
        let whole = bytes.get(..record.stored_bytes())?;
        (checksum(seed, whole) == u32_at(bytes, 4)).then_some(record)
    }

    /// The fields at the start of `bytes`, unless no writer would write them; the checksum is not
    /// checked.
    pub fn peek(bytes: &[u8]) -> Option<Record> {
        if bytes.len() < RECORD_BYTES {
            return None;
        }
        let record = Record {
            length: u32_at(bytes, 0) as usize,
            sequence: u64_at(bytes, 8),
            synced: u64_at(bytes, 16),
            ordinal: u32_at(bytes, 24),
            before: u32_at(bytes, 28),
        };
        let credible = record.synced < record.sequence
            && record.ordinal > 0
            && u64::from(record.ordinal) + u64::from(record.before) <= record.sequence
            && record.length <= MAX_PAYLOAD_BYTES;
        credible.then_some(record)
    }

    /// Sequence number of the first record of the same file.
    pub fn first_of_file(&self) -> u64 {
        self.sequence - u64::from(self.ordinal) + 1
    }

    pub fn stored_bytes(&self) -> usize {
        RECORD_BYTES + self.length
    }
}

fn checksum(seed: u32, record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(seed, &record[..4]), &record[8..])
}

/// `<layer, 16 hex>.log`
pub fn path_of(dir: &Path, layer: u64) -> PathBuf {
    dir.join(format!("{layer:016x}.log"))
}

/// The number in `<16 hex><end>`; None for any other name.
pub fn number_in(path: &Path, end: &str) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let digits = name.strip_suffix(end)?;
    let strict = digits.len() == 16
        && digits
            .bytes()
            .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    strict.then(|| u64::from_str_radix(digits, 16).ok())?
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        Header {
            layer: 7,
            chain: *b"0123456789abcdef",
            boot_id: b"boot".to_vec(),
            is_first: true,
        }
    }

    #[test]
    fn a_header_reads_back_and_any_flipped_bit_is_seen() {
        let bytes = header().encode();
        assert_eq!(Header::decode(&bytes), Ok(header()));
        for bit in 0..HEADER_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(
                matches!(Header::decode(&damaged), Err(BadHeader::Damaged(_))),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn another_format_is_named_not_called_damage() {
        let mut bytes = header().encode();
        bytes[8..16].fill(0);
        bytes[8] = 2;
        let crc = crc32c::crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::decode(&bytes), Err(BadHeader::UnknownFormat(2)));
    }

    #[test]
    fn a_record_is_valid_in_its_own_file_only() {
        let record = Record {
            length: 5,
            sequence: 9,
            synced: 3,
            ordinal: 2,
            before: 6,
        };
        let mut bytes = Vec::new();
        record.encode(header().seed(), b"hello", &mut bytes);
        assert_eq!(Record::decode(header().seed(), &bytes), Some(record));
        assert_eq!(
            Record::decode(
                Header {
                    layer: 8,
                    ..header()
                }
                .seed(),
                &bytes
            ),
            None
        );
        assert_eq!(
            Record::decode(
                Header {
                    chain: [1; 16],
                    ..header()
                }
                .seed(),
                &bytes
            ),
            None
        );
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::decode(header().seed(), &damaged), None, "bit {bit}");
        }
    }

    /// The example of docs/format/journal.md, read from there.
    #[test]
    fn the_documented_example_is_what_is_written() {
        let page = include_str!("../../../docs/format/journal.md");
        let mut chain = [0; 16];
        chain
            .iter_mut()
            .enumerate()
            .for_each(|(index, byte)| *byte = index as u8);
        let header = Header {
            layer: 5,
            chain,
            boot_id: Vec::new(),
            is_first: false,
        };
        let record = Record {
            length: 5,
            sequence: 3,
            synced: 2,
            ordinal: 1,
            before: 2,
        };
        let mut bytes = Vec::new();
        record.encode(header.seed(), b"hello", &mut bytes);
        let lines: Vec<String> = bytes.chunks(16).map(hex).collect();
        assert!(
            page.contains(&format!("`{:08x}`", header.seed())),
            "seed {:08x}",
            header.seed()
        );
        assert!(
            page.contains(&format!("    {}\n", lines.join("\n    "))),
            "{lines:#?}"
        );
    }

    fn hex(bytes: &[u8]) -> String {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn names_are_strict() {
        assert_eq!(
            number_in(&path_of(Path::new("/x"), 0xab), ".log"),
            Some(0xab)
        );
        for name in [
            "1.log",
            "00000000000000AB.log",
            "00000000000000ab.new",
            "+0000000000000ab.log",
            ".log",
        ] {
            assert_eq!(number_in(Path::new(name), ".log"), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Header::decode(&bytes);
            let _ = Record::decode(1, &bytes);
        }
    }
}
