//! Checkpoints: the combined effects of layers `first` to `last`, in one file, `<last, 16
//! hex>.ckpt`, that replaces their logs. Integers are little-endian.
//!
//! ```text
//! header, 160 bytes                                     record, 8 bytes and its payload
//!   0   8  "cowfsckp"                                     0  4  payload length, at most 64 MiB
//!   8   4  format, 1                                      4  4  crc32c, started from the one before
//!  12   4  crc32c of the header, this field zero                (the header's, then each record's), of bytes 0..4 and payload
//!  16   8  first layer                                    8     payload
//!  24   8  last layer
//!  32  16  chain id of the last layer's log             trailer, 16 bytes, at the end of the file
//!  48   8  sequence number of that log's last record      0  4  ff ff ff ff
//!  56   8  first inode number that was never used         4  4  crc32c, as a record's, of bytes 0..4 and 8..16
//!  64   4  number of records in that log                  8  8  number of records
//!  68   2  length of the boot id
//!  70  64  boot id, zero padded
//! 134  26  zero, ignored when read
//! ```
//!
//! A checkpoint is whole or absent: it is written under a temporary name, synced, renamed, and its
//! directory synced. So a damaged file under the final name means corruption, never a crash. The
//! checksums form a chain, which detects a record that is missing, doubled, moved or cut. Sequence
//! number and count tie the log of the next layer to it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cowfs_base::failpoints::hit;

use crate::format::{
    BadHeader, ChainId, MAX_BOOT_ID_BYTES, MAX_PAYLOAD_BYTES, sign, signed, u32_at, u64_at,
};
use crate::{JournalError, corrupt};

const MAGIC: &[u8; 8] = b"cowfsckp";
const FORMAT: u32 = 1;
pub const HEADER_BYTES: usize = 160;
const HEAD_BYTES: usize = 8;
const TRAILER: u32 = u32::MAX;
const BUFFER_BYTES: usize = 256 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub first: u64,
    pub last: u64,
    pub chain: ChainId,
    /// Number of the last record of the chain that is in it.
    pub sequence: u64,
    /// Every lower inode number may have been used.
    pub next_ino: u64,
    /// How many the last layer's log had.
    pub records: u32,
    pub boot_id: Vec<u8>,
}

impl Header {
    /// `boot_id` has at most MAX_BOOT_ID_BYTES bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[16..24].copy_from_slice(&self.first.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.last.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.chain);
        bytes[48..56].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.next_ino.to_le_bytes());
        bytes[64..68].copy_from_slice(&self.records.to_le_bytes());
        bytes[68..70].copy_from_slice(&(self.boot_id.len() as u16).to_le_bytes());
        bytes[70..70 + self.boot_id.len()].copy_from_slice(&self.boot_id);
        sign(bytes, MAGIC, FORMAT)
    }

    pub fn decode(file: &[u8]) -> Result<Header, BadHeader> {
        let bytes = signed::<HEADER_BYTES>(file, MAGIC, FORMAT)?;
        let length = usize::from(u16::from_le_bytes([bytes[68], bytes[69]]));
        let (first, last) = (u64_at(bytes, 16), u64_at(bytes, 24));
        if length > MAX_BOOT_ID_BYTES || first == 0 || first > last {
            return Err(BadHeader::Damaged("the header is impossible"));
        }
        let mut chain = [0; 16];
        chain.copy_from_slice(&bytes[32..48]);
        Ok(Header {
            first,
            last,
            chain,
            sequence: u64_at(bytes, 48),
            next_ino: u64_at(bytes, 56),
            records: u32_at(bytes, 64),
            boot_id: bytes[70..70 + length].to_vec(),
        })
    }
}

fn chained(before: u32, length: u32, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(
        crc32c::crc32c_append(before, &length.to_le_bytes()),
        payload,
    )
}

/// A checkpoint that is being written. If it is dropped before `finish`, no file remains.
pub struct Checkpoint {
    file: BufWriter<File>,
    path: PathBuf,
    crc: u32,
    records: u64,
    bytes: u64,
    is_finished: bool,
}

impl Checkpoint {
    pub(crate) fn create(dir: &Path, header: &Header) -> io::Result<Checkpoint> {
        let path = path_of(dir, header.last);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(fresh(&path))?;
        let mut checkpoint = Checkpoint {
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
            path,
            crc: 0,
            records: 0,
            bytes: HEADER_BYTES as u64,
            is_finished: false,
        };
        let bytes = header.encode();
        checkpoint.crc = u32_at(&bytes, 12);
        checkpoint.file.write_all(&bytes)?;
        Ok(checkpoint)
    }

    /// Adds one record, of at most MAX_PAYLOAD_BYTES.
    pub fn append(&mut self, payload: &[u8]) -> io::Result<()> {
        if payload.len() > MAX_PAYLOAD_BYTES {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let length = payload.len() as u32;
        self.put(length, payload)?;
        self.records += 1;
        Ok(())
    }

    /// Makes it durable and gives it its name; returns its bytes. Only now it counts. After an
    /// error it may or may not count: the logs that it would replace must stay.
    pub fn finish(mut self) -> io::Result<u64> {
        let records = self.records.to_le_bytes();
        hit("checkpoint-written");
        self.put(TRAILER, &records)?;
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        hit("checkpoint-synced");
        std::fs::rename(fresh(&self.path), &self.path)?;
        self.is_finished = true;
        hit("checkpoint-named");
        let dir = self.path.parent().unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()?;
        Ok(self.bytes)
    }

    fn put(&mut self, length: u32, payload: &[u8]) -> io::Result<()> {
        self.crc = chained(self.crc, length, payload);
        self.file.write_all(&length.to_le_bytes())?;
        self.file.write_all(&self.crc.to_le_bytes())?;
        self.file.write_all(payload)?;
        self.bytes += (HEAD_BYTES + payload.len()) as u64;
        Ok(())
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        if !self.is_finished {
            // If this fails, the next open deletes the file.
            let _ = std::fs::remove_file(fresh(&self.path));
        }
    }
}

/// A checkpoint that was found whole. The records stay in the file.
#[derive(Debug)]
pub struct CheckpointScan {
    /// How many records it holds.
    pub records: u64,
    /// Another boot wrote it.
    pub power_loss: bool,
    pub(crate) header: Header,
    pub(crate) path: PathBuf,
    pub(crate) file_bytes: u64,
}

impl CheckpointScan {
    /// Reads the header only.
    pub(crate) fn load(
        path: PathBuf,
        last: u64,
        boot_id: &str,
    ) -> Result<CheckpointScan, JournalError> {
        let file = File::open(&path)?;
        let file_bytes = file.metadata()?.len();
        let mut start = Vec::with_capacity(HEADER_BYTES);
        file.take(HEADER_BYTES as u64).read_to_end(&mut start)?;
        let header = match Header::decode(&start) {
            Ok(header) if header.last == last => header,
            Ok(header) => {
                let reason = format!("the header is layer {}'s", header.last);
                return Err(corrupt(&path, 24, reason));
            }
            Err(BadHeader::Damaged(reason)) => return Err(corrupt(&path, 0, reason.into())),
            Err(BadHeader::UnknownFormat(format)) => {
                return Err(JournalError::UnsupportedFormat { path, format });
            }
        };
        Ok(CheckpointScan {
            records: 0,
            power_loss: header.boot_id != boot_id.as_bytes(),
            header,
            path,
            file_bytes,
        })
    }

    /// Reads all of it: whole and undamaged, or Corrupt.
    pub(crate) fn check(&mut self) -> Result<(), JournalError> {
        let mut records = self.read()?;
        while records.read()?.is_some() {}
        self.records = records.count;
        Ok(())
    }

    pub(crate) fn read(&self) -> Result<CheckpointRecords<'_>, JournalError> {
        let mut file = BufReader::with_capacity(BUFFER_BYTES, File::open(&self.path)?);
        let mut header = [0; HEADER_BYTES];
        file.read_exact(&mut header)?;
        Ok(CheckpointRecords {
            scan: self,
            file,
            at: HEADER_BYTES as u64,
            crc: u32_at(&header, 12),
            count: 0,
            payload: Vec::new(),
        })
    }
}

/// The records of a checkpoint, one after the other.
pub struct CheckpointRecords<'a> {
    scan: &'a CheckpointScan,
    file: BufReader<File>,
    at: u64,
    crc: u32,
    count: u64,
    payload: Vec<u8>,
}

impl CheckpointRecords<'_> {
    /// The next payload; None behind the last, when the file is whole.
    pub fn read(&mut self) -> Result<Option<&[u8]>, JournalError> {
        let mut head = [0; HEAD_BYTES];
        self.take(HEAD_BYTES as u64)?;
        self.file.read_exact(&mut head)?;
        let (length, crc) = (u32_at(&head, 0), u32_at(&head, 4));
        let bytes = match length {
            TRAILER => 8,
            length => length as usize,
        };
        if bytes > MAX_PAYLOAD_BYTES {
            return Err(self.damaged("an impossible record"));
        }
        self.take(bytes as u64)?;
        self.payload.resize(bytes, 0);
        self.file.read_exact(&mut self.payload)?;
        self.crc = chained(self.crc, length, &self.payload);
        if self.crc != crc {
            return Err(self.damaged("a record that fails its checksum"));
        }
        if length != TRAILER {
            self.count += 1;
            return Ok(Some(&self.payload));
        }
        if u64_at(&self.payload, 0) != self.count || self.at != self.scan.file_bytes {
            return Err(self.damaged("a trailer that does not end it"));
        }
        Ok(None)
    }

    fn take(&mut self, bytes: u64) -> Result<(), JournalError> {
        if self.scan.file_bytes - self.at < bytes {
            return Err(self.damaged("the file ends early"));
        }
        self.at += bytes;
        Ok(())
    }

    fn damaged(&self, reason: &str) -> JournalError {
        corrupt(&self.scan.path, self.at, reason.into())
    }
}

/// `<last layer, 16 hex>.ckpt`
pub fn path_of(dir: &Path, last: u64) -> PathBuf {
    dir.join(format!("{last:016x}.ckpt"))
}

fn fresh(path: &Path) -> PathBuf {
    path.with_extension("ckpt.new")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> Header {
        Header {
            first: 3,
            last: 5,
            chain: std::array::from_fn(|index| index as u8),
            sequence: 40,
            next_ino: 100,
            records: 7,
            boot_id: Vec::new(),
        }
    }

    fn written(dir: &Path, payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut checkpoint = Checkpoint::create(dir, &header()).unwrap();
        for payload in payloads {
            checkpoint.append(payload).unwrap();
        }
        let bytes = checkpoint.finish().unwrap();
        let file = std::fs::read(path_of(dir, 5)).unwrap();
        assert_eq!(file.len() as u64, bytes);
        file
    }

    fn read(dir: &Path) -> Result<Vec<Vec<u8>>, JournalError> {
        let mut scan = CheckpointScan::load(path_of(dir, 5), 5, "")?;
        scan.check()?;
        let mut records = scan.read()?;
        let mut payloads = Vec::new();
        while let Some(payload) = records.read()? {
            payloads.push(payload.to_vec());
        }
        assert_eq!(payloads.len() as u64, scan.records);
        Ok(payloads)
    }

    /// The example of docs/format/journal.md, read from there.
    #[test]
    fn the_documented_example_is_what_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = written(dir.path(), &[b"hello".to_vec()]);
        let page = include_str!("../../../docs/format/journal.md");
        let hex = |bytes: &[u8]| {
            let digits: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            digits.join(" ")
        };
        let lines: Vec<_> = file[HEADER_BYTES..].chunks(16).map(hex).collect();
        let crc = format!("`{:08x}`", u32_at(&file, 12));
        assert!(page.contains(&crc), "{crc}");
        let example = format!("    {}\n", lines.join("\n    "));
        assert!(page.contains(&example), "{example}");
    }

    #[test]
    fn one_that_is_not_finished_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut checkpoint = Checkpoint::create(dir.path(), &header()).unwrap();
        checkpoint.append(b"x").unwrap();
        drop(checkpoint);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
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

    fn payloads() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..8)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_comes_back_and_any_flipped_bit_or_cut_is_seen(payloads in payloads(), at in any::<prop::sample::Index>(), cuts in any::<bool>()) {
            let dir = tempfile::tempdir().unwrap();
            let mut file = written(dir.path(), &payloads);
            prop_assert_eq!(read(dir.path()).unwrap(), payloads);
            if cuts {
                file.truncate(at.index(file.len()));
            } else {
                let bit = at.index(file.len() * 8);
                file[bit / 8] ^= 1 << (bit % 8);
            }
            std::fs::write(path_of(dir.path(), 5), &file).unwrap();
            let is_seen = matches!(read(dir.path()), Err(JournalError::Corrupt { .. }));
            prop_assert!(is_seen);
        }

        #[test]
        fn records_that_are_moved_doubled_or_left_out_are_seen(payloads in payloads(), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(), keeps in any::<bool>()) {
            let dir = tempfile::tempdir().unwrap();
            let file = written(dir.path(), &payloads);
            let mut pieces = vec![&file[..HEADER_BYTES]];
            let mut at = HEADER_BYTES;
            for payload in &payloads {
                pieces.push(&file[at..at + HEAD_BYTES + payload.len()]);
                at += HEAD_BYTES + payload.len();
            }
            pieces.push(&file[at..]);
            let from = from.index(pieces.len());
            let piece = if keeps { pieces[from] } else { pieces.remove(from) };
            pieces.insert(to.index(pieces.len() + 1), piece);
            let other = pieces.concat();
            std::fs::write(path_of(dir.path(), 5), &other).unwrap();
            prop_assert!(other == file || read(dir.path()).is_err());
        }

        #[test]
        fn any_bytes_at_all_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), keep in 0..200_usize) {
            let dir = tempfile::tempdir().unwrap();
            let file = written(dir.path(), &[b"hello".to_vec()]);
            let other = [&file[..keep.min(file.len())], &bytes].concat();
            std::fs::write(path_of(dir.path(), 5), &other).unwrap();
            prop_assert!(other == file || read(dir.path()).is_err());
        }
    }
}
