//! Reading back what a crash left: which records count, and whether what is missing had been acknowledged.
//!
//! Layers are read in order, and the files of a chain (format.rs) as one log. Where that log first fails (a record is
//! damaged, or is not the next one) everything behind it is searched, byte by byte, for valid records:
//!
//! ```text
//! who wrote it      valid records behind the failure        verdict
//! this boot         none                                    torn tail of the append the process died in: cut
//!                   some                                    Corrupt: appends are whole and in order, so this one was
//! another boot      none that proves                        power loss took records nobody had synced: cut
//! (power loss)      one that says the failed one was synced Corrupt
//! any               a later chain                           Corrupt: a chain starts only when those before it are durable
//! ```
//!
//! A missing layer or an unreadable header is Corrupt always: a file gets its name when its header is durable.
//! Files are changed (cut, last one first, then fsynced) only after all of them have passed; scanning again finds the same.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::format::{self, BadHeader, HEADER_BYTES, Header, RECORD_BYTES, Record};
use crate::records::{Records, Search};
use crate::{JournalError, layer_files};

/// What `scan` found: layers in order.
#[derive(Debug)]
pub struct Scan {
    /// Ascending, without gaps, starting at `after_layer` + 1.
    pub layers: Vec<LayerScan>,
    /// Bytes of torn tails that were cut from the files.
    pub cut_bytes: u64,
    /// At least one layer was written before the machine last started.
    pub power_loss: bool,
}

impl Scan {
    /// Number of valid records in all layers.
    pub fn records(&self) -> u64 {
        self.layers.iter().map(|layer| layer.records).sum()
    }

    /// Bytes of all valid records.
    pub fn size_bytes(&self) -> u64 {
        let sizes = self.layers.iter().map(LayerScan::size_bytes);
        sizes.sum()
    }

    /// The newest layer that has a file; the next journal must be of a greater one.
    pub fn last_layer(&self) -> Option<u64> {
        self.layers.last().map(|layer| layer.layer)
    }
}

/// What is known of one layer's file. The records stay in it.
#[derive(Debug)]
pub struct LayerScan {
    /// Its number.
    pub layer: u64,
    /// Another boot wrote it: bytes in staging that were never synced may be missing.
    pub power_loss: bool,
    /// How many records it holds.
    pub records: u64,
    path: PathBuf,
    header: Header,
    file_bytes: u64,
    valid_bytes: u64,
}

impl LayerScan {
    /// The payloads in the order they were appended; may be read as often as you like.
    pub fn payloads(&self) -> Result<Payloads<'_>, JournalError> {
        Ok(Payloads {
            layer: self,
            records: self.read_from_start(self.valid_bytes)?,
        })
    }

    /// Bytes of the valid records.
    pub fn size_bytes(&self) -> u64 {
        self.valid_bytes - HEADER_BYTES as u64
    }

    fn load(path: PathBuf, layer: u64, boot_id: &str) -> Result<LayerScan, JournalError> {
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

    fn read_from_start(&self, end: u64) -> io::Result<Records> {
        Records::open(&self.path, self.header.seed(), HEADER_BYTES as u64, end)
    }

    /// Accepts records while they are valid and the next ones; false at the first that is not.
    fn accept(&mut self, place: &mut Place) -> io::Result<bool> {
        let mut records = self.read_from_start(self.file_bytes)?;
        while let Some(record) = records.read()? {
            if u64::from(record.ordinal) != self.records + 1 || !place.fits(&record) {
                return Ok(false);
            }
            *place = Place {
                next_sequence: record.sequence.checked_add(1),
                before: Some(record.before),
            };
            self.valid_bytes = records.at();
            self.records += 1;
        }
        Ok(self.valid_bytes == self.file_bytes)
    }

    /// Valid records of this file from `valid_bytes` on, wherever they start. `next_sequence`: what follows the
    /// last record accepted in this file, if there is one.
    fn valid_behind(
        &self,
        next_sequence: Option<u64>,
    ) -> io::Result<Search<impl Fn(&Record) -> bool + use<>>> {
        let fitting = (self.file_bytes - self.valid_bytes) / RECORD_BYTES as u64 + 1;
        let most_ordinal = self.records.saturating_add(fitting);
        let is_credible = move |record: &Record| {
            u64::from(record.ordinal) <= most_ordinal
                && next_sequence.is_none_or(|next| record.sequence <= next.saturating_add(fitting))
        };
        Search::open(
            &self.path,
            self.header.seed(),
            self.valid_bytes,
            self.file_bytes,
            is_credible,
        )
    }
}

/// The payloads of one layer. Not an iterator: all of them pass through one buffer.
pub struct Payloads<'a> {
    layer: &'a LayerScan,
    records: Records,
}

impl Payloads<'_> {
    /// The next payload; None behind the last. Corrupt: it is not what `scan` saw any more.
    pub fn read(&mut self) -> Result<Option<&[u8]>, JournalError> {
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

/// Reads the journals of all layers greater than `after_layer` and cuts torn tails.
///
/// The caller holds the working copy's lock. An error leaves every file as it was.
pub fn scan(dir: &Path, after_layer: u64, boot_id: &str) -> Result<Scan, JournalError> {
    let mut layers = load_layers(dir, after_layer, boot_id)?;
    let mut start = 0;
    while start < layers.len() {
        let chain = layers[start].header.chain;
        let end = start
            + layers[start..]
                .iter()
                .take_while(|layer| layer.header.chain == chain)
                .count();
        let is_last_chain = end == layers.len();
        accept_chain(&mut layers[start..end], is_last_chain)?;
        start = end;
    }
    let mut cut_bytes = 0;
    for layer in layers.iter_mut().rev() {
        cut_bytes += cut(layer)?;
    }
    let power_loss = layers.iter().any(|layer| layer.power_loss);
    Ok(Scan {
        layers,
        cut_bytes,
        power_loss,
    })
}

fn load_layers(
    dir: &Path,
    after_layer: u64,
    boot_id: &str,
) -> Result<Vec<LayerScan>, JournalError> {
    let mut layers: Vec<LayerScan> = Vec::new();
    let mut expected = after_layer.saturating_add(1);
    for found in layer_files(dir)?
        .into_iter()
        .filter(|found| found.layer > after_layer)
    {
        if found.layer != expected {
            let missing = format::path_of(dir, expected);
            return Err(corrupt(
                &missing,
                0,
                format!(
                    "layer {expected} is missing, layer {} is there",
                    found.layer
                ),
            ));
        }
        let layer = LayerScan::load(found.path, found.layer, boot_id)?;
        if let Some(before) = layers.last()
            && before.header.chain == layer.header.chain
            && before.header.boot_id != layer.header.boot_id
        {
            return Err(corrupt(
                &layer.path,
                42,
                "one process wrote it under two boots".into(),
            ));
        }
        layers.push(layer);
        expected = expected.saturating_add(1);
    }
    Ok(layers)
}

/// Where in a chain the next record stands. None: not known, for a commit may have removed the chain's first files.
#[derive(Debug, Clone, Copy)]
struct Place {
    next_sequence: Option<u64>,
    /// Records in the file before.
    before: Option<u32>,
}

impl Place {
    fn fits(&self, record: &Record) -> bool {
        self.next_sequence
            .is_none_or(|next| next == record.sequence)
            && self.before.is_none_or(|before| before == record.before)
    }
}

/// Marks in each file of one chain how far it is valid.
fn accept_chain(chain: &mut [LayerScan], is_last_chain: bool) -> Result<(), JournalError> {
    let mut place = Place {
        next_sequence: None,
        before: None,
    };
    if chain.first().is_some_and(|layer| layer.header.is_first) {
        place = Place {
            next_sequence: Some(1),
            before: Some(0),
        };
    }
    let Some(failed) = first_failing(chain, &mut place)? else {
        return Ok(());
    };
    let at = &chain[failed];
    let refuse = |reason: &str| Err(corrupt(&at.path, at.valid_bytes, reason.into()));
    if !is_last_chain {
        return refuse(
            "an invalid record in a layer that was durable before a later one was begun",
        );
    }
    if at.power_loss {
        if proves_loss(&chain[failed..], place)? {
            return refuse("an invalid record, which a later one says was synced");
        }
    } else if behind(&chain[failed..], place)
        .next()
        .transpose()?
        .is_some()
    {
        return refuse("an invalid record with valid ones behind it");
    }
    Ok(())
}

/// The index of the first file that is not valid to its end.
fn first_failing(chain: &mut [LayerScan], place: &mut Place) -> io::Result<Option<usize>> {
    for (index, layer) in chain.iter_mut().enumerate() {
        if !layer.accept(place)? {
            return Ok(Some(index));
        }
        place.before = u32::try_from(layer.records).ok();
    }
    Ok(None)
}

/// Valid records behind the failure in the first of these files, each with the index of its file.
fn behind(
    failed: &[LayerScan],
    place: Place,
) -> impl Iterator<Item = io::Result<(usize, Record)>> + '_ {
    failed.iter().enumerate().flat_map(move |(index, layer)| {
        // Only within a file does the room for lost records bound how many there were: one before it may have lost any number.
        let next_sequence = place
            .next_sequence
            .filter(|_| index == 0 && layer.records > 0);
        let (found, error) = match layer.valid_behind(next_sequence) {
            Ok(found) => (Some(found), None),
            Err(error) => (None, Some(Err(error))),
        };
        let found = found.into_iter().flatten();
        found
            .map(move |record| record.map(|record| (index, record)))
            .chain(error)
    })
}

/// Whether a valid record behind the failure says that a lost one had been synced.
fn proves_loss(failed: &[LayerScan], place: Place) -> io::Result<bool> {
    let mut first_lost = place.next_sequence;
    for found in behind(failed, place) {
        let (index, record) = found?;
        let lost = *first_lost.get_or_insert_with(|| first_lost_before(index, &record, place));
        if record.synced >= lost {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The number of the first record that is lost when nothing of its chain was accepted, from a record in the failed file
/// (index 0) or a later one.
fn first_lost_before(index: usize, behind: &Record, place: Place) -> u64 {
    let missing_before = match index {
        0 => place
            .before
            .map_or(0, |accepted| behind.before.saturating_sub(accepted)),
        1 => behind.before,
        _ => 1, // at least one of the file before it, or of one before that
    };
    behind
        .first_of_file()
        .saturating_sub(u64::from(missing_before))
        .max(1)
}

/// Cuts the file to its valid records, durably; returns the bytes cut.
fn cut(layer: &mut LayerScan) -> Result<u64, JournalError> {
    let torn = layer.file_bytes - layer.valid_bytes;
    if torn > 0 {
        let file = OpenOptions::new().write(true).open(&layer.path)?;
        file.set_len(layer.valid_bytes)?;
        file.sync_all()?;
        layer.file_bytes = layer.valid_bytes;
    }
    Ok(torn)
}

fn corrupt(path: &Path, offset: u64, reason: String) -> JournalError {
    JournalError::Corrupt {
        path: path.to_path_buf(),
        offset,
        reason,
    }
}
