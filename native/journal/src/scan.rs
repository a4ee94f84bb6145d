//! Reads the journal after a crash: which records count, and whether missing ones had been
//! acknowledged.
//!
//! Layers are read in order, and the files of a chain (format.rs) as one log. Where that log first
//! fails (a record is damaged, or is not the next one) everything behind it is searched, byte by
//! byte, for valid records:
//!
//! ```text
//! who wrote it      valid records behind the failure        verdict
//! this boot         none                                    torn tail of the append the process died in: cut
//!                   some                                    Corrupt: appends are whole and in order, so this one was
//! another boot      none that proves                        power loss took records that were never synced: cut
//! (power loss)      one that says the failed one was synced Corrupt
//! any               a later chain                           Corrupt: a chain starts only when those before it are durable
//! ```
//!
//! A missing layer or an unreadable header is Corrupt always: a file gets its name when its header
//! is durable. So is any damage in a checkpoint, and a log before one fails as one before a later
//! chain does. A following log of the checkpoint's chain must continue at the checkpoint's end;
//! logs and checkpoints that it covers are there only because its writer had no time to delete
//! them. Files are changed (cut, last one first, then fsynced) only after all of them have passed;
//! scanning again finds the same.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use crate::checkpoint::CheckpointScan;
use crate::format::{self, RECORD_BYTES, Record};
use crate::parts::{LayerScan, Part, Scan};
use crate::records::Search;
use crate::{JournalError, JournalFiles, corrupt};

/// Reads checkpoints and journals of all layers greater than `after_layer`, cuts torn tails, and
/// deletes what a checkpoint has replaced and what interrupted writers left.
///
/// The caller holds the working copy's lock. An error leaves every file as it was.
pub fn scan(dir: &Path, after_layer: u64, boot_id: &str) -> Result<Scan, JournalError> {
    let found = JournalFiles::list(dir)?;
    let mut parts = load_parts(dir, &found, after_layer, boot_id)?;
    let mut start = 0;
    while start < parts.len() {
        let end = start + run_length(&parts[start..]);
        let place = Place::behind(start.checked_sub(1).map(|at| &parts[at]), &parts[start]);
        let is_last = end == parts.len();
        accept_run(&mut parts[start..end], place, is_last)?;
        start = end;
    }
    let mut cut_bytes = 0;
    for part in parts.iter_mut().rev() {
        if let Part::Log(layer) = part {
            cut_bytes += cut(layer)?;
        }
    }
    let power_loss = parts.iter().any(Part::power_loss);
    found.remove_replaced(after_layer, &parts)?;
    Ok(Scan {
        parts,
        cut_bytes,
        power_loss,
    })
}

/// A checkpoint alone, or the logs of one chain that follow each other.
fn run_length(parts: &[Part]) -> usize {
    let is_same = |part: &&Part| matches!(part, Part::Log(_)) && part.chain() == parts[0].chain();
    match parts[0] {
        Part::Checkpoint(_) => 1,
        Part::Log(_) => parts.iter().take_while(is_same).count(),
    }
}

/// For each layer the checkpoint that reaches furthest, or its log.
fn load_parts(
    dir: &Path,
    found: &JournalFiles,
    after_layer: u64,
    boot_id: &str,
) -> Result<Vec<Part>, JournalError> {
    let mut checkpoints = Vec::new();
    for file in found.checkpoints.iter().rev() {
        if file.layer > after_layer {
            checkpoints.push(CheckpointScan::load(
                file.path.clone(),
                file.layer,
                boot_id,
            )?);
        }
    }
    let mut parts: Vec<Part> = Vec::new();
    let mut expected = following(dir, after_layer)?;
    loop {
        let covers =
            |scan: &CheckpointScan| (scan.header.first..=scan.header.last).contains(&expected);
        let log = found.logs.iter().find(|file| file.layer == expected);
        let part = match (checkpoints.iter().position(covers), log) {
            (Some(at), _) => Part::Checkpoint(checkpoints.swap_remove(at)),
            (None, Some(file)) => Part::Log(LayerScan::load(file.path.clone(), expected, boot_id)?),
            (None, None) => break,
        };
        check_boot(parts.last(), &part)?;
        expected = following(dir, part.last_layer())?;
        parts.push(part);
    }
    let behind = found.last_layer().filter(|last| *last >= expected);
    // The log of the next layer is there before a checkpoint is.
    let is_due = matches!(parts.last(), Some(Part::Checkpoint(_)));
    if behind.is_some() || is_due {
        let there = behind.map_or(String::new(), |last| format!(", layer {last} is there"));
        return Err(corrupt(
            &format::path_of(dir, expected),
            0,
            format!("layer {expected} is missing{there}"),
        ));
    }
    Ok(parts)
}

/// The number of the layer behind this one. No real journal counts that far: a number at the end of
/// all numbers is damage.
fn following(dir: &Path, layer: u64) -> Result<u64, JournalError> {
    let next = layer.checked_add(1).filter(|next| *next < u64::MAX);
    next.ok_or_else(|| {
        let reason = format!("no layer can follow layer {layer}");
        corrupt(&format::path_of(dir, layer), 0, reason)
    })
}

fn check_boot(before: Option<&Part>, part: &Part) -> Result<(), JournalError> {
    match before {
        Some(before) if before.chain() == part.chain() && before.boot_id() != part.boot_id() => {
            let reason = "one process wrote it under two boots";
            Err(corrupt(part.path(), 42, reason.into()))
        }
        _ => Ok(()),
    }
}

/// The position of the next record in a chain. None if it is not known, because a commit may have
/// removed the chain's first files.
#[derive(Debug, Clone, Copy)]
struct Place {
    next_sequence: Option<u64>,
    /// Records in the file before.
    before: Option<u32>,
}

impl Place {
    /// The position of the first record of the run that starts with `part`.
    fn behind(before: Option<&Part>, part: &Part) -> Place {
        match (before, part) {
            (Some(Part::Checkpoint(checkpoint)), part)
                if checkpoint.header.chain == part.chain() =>
            {
                Place {
                    next_sequence: checkpoint.header.sequence.checked_add(1),
                    before: Some(checkpoint.header.records),
                }
            }
            (_, Part::Log(layer)) if layer.header.is_first => Place {
                next_sequence: Some(1),
                before: Some(0),
            },
            _ => Place {
                next_sequence: None,
                before: None,
            },
        }
    }

    fn fits(&self, record: &Record) -> bool {
        self.next_sequence
            .is_none_or(|next| next == record.sequence)
            && self.before.is_none_or(|before| before == record.before)
    }
}

/// Marks in each log of a run how far it is valid, or checks its one checkpoint. is_last: no
/// following file depends on this one being durable.
fn accept_run(run: &mut [Part], mut place: Place, is_last: bool) -> Result<(), JournalError> {
    let mut chain: Vec<&mut LayerScan> = Vec::new();
    for part in run {
        match part {
            Part::Log(layer) => chain.push(layer),
            Part::Checkpoint(checkpoint) => checkpoint.check()?,
        }
    }
    let Some(failed) = first_failing(&mut chain, &mut place)? else {
        return Ok(());
    };
    let at = &chain[failed];
    let refuse = |reason: &str| Err(corrupt(&at.path, at.valid_bytes, reason.into()));
    if !is_last {
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
fn first_failing(chain: &mut [&mut LayerScan], place: &mut Place) -> io::Result<Option<usize>> {
    for (index, layer) in chain.iter_mut().enumerate() {
        if !layer.accept(place)? {
            return Ok(Some(index));
        }
        place.before = u32::try_from(layer.records).ok();
    }
    Ok(None)
}

/// Valid records behind the failure in the first of these files, each with the index of its file.
fn behind<'a>(
    failed: &'a [&mut LayerScan],
    place: Place,
) -> impl Iterator<Item = io::Result<(usize, Record)>> + 'a {
    failed.iter().enumerate().flat_map(move |(index, layer)| {
        // Only within a file does the room for lost records bound how many there were: one before
        // it may have lost any number.
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
fn proves_loss(failed: &[&mut LayerScan], place: Place) -> io::Result<bool> {
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

/// The number of the first lost record if no record of its chain was accepted, derived from a
/// record in the failed file (index 0) or a later one.
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

impl LayerScan {
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

    /// Valid records of this file from `valid_bytes` on, wherever they start. `next_sequence`: what
    /// follows the last record accepted in this file, if there is one.
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
