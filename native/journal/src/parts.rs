//! The result of a scan: logs and checkpoints, each with its data. Records stay in the files, and
//! can be read from there any number of times.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::checkpoint::{CheckpointRecords, CheckpointScan};
use crate::format::{BadHeader, ChainId, HEADER_BYTES, Header};
use crate::records::Records;
use crate::{JournalError, corrupt};

/// The result of `scan`: logs and checkpoints in order.
#[derive(Debug)]
pub struct Scan {
    /// Ascending, without gaps, starting at `after_layer` + 1.
    pub parts: Vec<Part>,
    /// Bytes of torn tails that were cut from the files.
    pub cut_bytes: u64,
    /// At least one part was written before the machine last started.
    pub power_loss: bool,
}

impl Scan {
    /// Number of valid records in all parts.
    pub fn records(&self) -> u64 {
        self.parts.iter().map(Part::records).sum()
    }

    /// Every lower inode number may have been used, as the last checkpoint has it; 0 without one.
    pub fn next_ino(&self) -> u64 {
        let of = |part: &Part| match part {
            Part::Log(_) => 0,
            Part::Checkpoint(checkpoint) => checkpoint.header.next_ino,
        };
        self.parts.iter().map(of).max().unwrap_or(0)
    }

    /// Bytes of the logs' records, and of checkpoints.
    pub fn size_bytes(&self) -> (u64, u64) {
        let (mut logs, mut checkpoints) = (0, 0);
        for part in &self.parts {
            match part {
                Part::Log(layer) => logs += layer.valid_bytes - HEADER_BYTES as u64,
                Part::Checkpoint(checkpoint) => checkpoints += checkpoint.file_bytes,
            }
        }
        (logs, checkpoints)
    }

    /// The newest layer that has a file; the next journal must be of a greater one.
    pub fn last_layer(&self) -> Option<u64> {
        self.parts.last().map(Part::last_layer)
    }
}

/// One file of the journal.
#[derive(Debug)]
pub enum Part {
    /// The log of one layer.
    Log(LayerScan),
    /// A checkpoint that replaces some layers' logs.
    Checkpoint(CheckpointScan),
}

impl Part {
    /// How many records it holds.
    pub fn records(&self) -> u64 {
        match self {
            Part::Log(layer) => layer.records,
            Part::Checkpoint(checkpoint) => checkpoint.records,
        }
    }

    /// The layer, or the last of those it stands for.
    pub fn last_layer(&self) -> u64 {
        match self {
            Part::Log(layer) => layer.layer,
            Part::Checkpoint(checkpoint) => checkpoint.header.last,
        }
    }

    /// Another boot wrote it: bytes in staging that were never synced may be missing.
    pub fn power_loss(&self) -> bool {
        match self {
            Part::Log(layer) => layer.power_loss,
            Part::Checkpoint(checkpoint) => checkpoint.power_loss,
        }
    }

    /// The payloads in the order they were appended; may be read as often as you like.
    pub fn payloads(&self) -> Result<Payloads<'_>, JournalError> {
        Ok(match self {
            Part::Log(layer) => Payloads::Log(layer.payloads()?),
            Part::Checkpoint(checkpoint) => Payloads::Checkpoint(checkpoint.read()?),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Part::Log(layer) => &layer.path,
            Part::Checkpoint(checkpoint) => &checkpoint.path,
        }
    }

    pub(crate) fn chain(&self) -> ChainId {
        match self {
            Part::Log(layer) => layer.header.chain,
            Part::Checkpoint(checkpoint) => checkpoint.header.chain,
        }
    }

    pub(crate) fn boot_id(&self) -> &[u8] {
        match self {
            Part::Log(layer) => &layer.header.boot_id,
            Part::Checkpoint(checkpoint) => &checkpoint.header.boot_id,
        }
    }
}

/// The payloads of one part. Not an iterator: all of them pass through one buffer.
pub enum Payloads<'a> {
    #[doc(hidden)]
    Log(LogPayloads<'a>),
    #[doc(hidden)]
    Checkpoint(CheckpointRecords<'a>),
}

impl Payloads<'_> {
    /// The next payload; None behind the last. Corrupt if the file has changed since `scan`.
    pub fn read(&mut self) -> Result<Option<&[u8]>, JournalError> {
        match self {
            Payloads::Log(log) => log.read(),
            Payloads::Checkpoint(checkpoint) => checkpoint.read(),
        }
    }
}

/// The data of one layer's file. The records stay in it.
#[derive(Debug)]
pub struct LayerScan {
    /// Its number.
    pub layer: u64,
    /// Another boot wrote it: bytes in staging that were never synced may be missing.
    pub power_loss: bool,
    /// How many records it holds.
    pub records: u64,
    pub(crate) path: PathBuf,
    pub(crate) header: Header,
    pub(crate) file_bytes: u64,
    pub(crate) valid_bytes: u64,
}

impl LayerScan {
    fn payloads(&self) -> io::Result<LogPayloads<'_>> {
        Ok(LogPayloads {
            layer: self,
            records: self.read_from_start(self.valid_bytes)?,
        })
    }

    pub(crate) fn load(
        path: PathBuf,
        layer: u64,
        boot_id: &str,
    ) -> Result<LayerScan, JournalError> {
        let file = File::open(&path)?;
        let file_bytes = file.metadata()?.len();
        let mut start = Vec::with_capacity(HEADER_BYTES);
        file.take(HEADER_BYTES as u64).read_to_end(&mut start)?;
        let header = match Header::decode(&start) {
            Ok(header) if header.layer == layer => header,
            Ok(header) => {
                return Err(corrupt(
                    &path,
                    16,
                    format!("the header is layer {}'s", header.layer),
                ));
            }
            Err(BadHeader::Damaged(reason)) => return Err(corrupt(&path, 0, reason.into())),
            Err(BadHeader::UnknownFormat(format)) => {
                return Err(JournalError::UnsupportedFormat { path, format });
            }
        };
        let power_loss = header.boot_id != boot_id.as_bytes();
        Ok(LayerScan {
            layer,
            power_loss,
            records: 0,
            path,
            header,
            file_bytes,
            valid_bytes: HEADER_BYTES as u64,
        })
    }

    pub(crate) fn read_from_start(&self, end: u64) -> io::Result<Records> {
        Records::open(&self.path, self.header.seed(), HEADER_BYTES as u64, end)
    }
}

/// The payloads of one log.
pub struct LogPayloads<'a> {
    layer: &'a LayerScan,
    records: Records,
}

impl LogPayloads<'_> {
    fn read(&mut self) -> Result<Option<&[u8]>, JournalError> {
        if self.records.at() == self.layer.valid_bytes {
            return Ok(None);
        }
        match self.records.read()? {
            Some(_) => Ok(Some(self.records.payload())),
            None => Err(corrupt(
                &self.layer.path,
                self.records.at(),
                "a record has changed since it was looked at".into(),
            )),
        }
    }
}
