//! The blobs among bytes of a pack that arrive piece by piece.
//!
//! A blob that lies whole in a piece is opened in place. If only a part of a blob has arrived, that
//! part is kept until the rest follows. So a request of any length costs the memory of one blob.

use std::mem::take;

use crate::{Opener, Stored};

/// A part of a pack, and the blobs that are wanted of it.
pub struct Run {
    opener: Opener,
    wanted: Vec<Stored>,
    /// Where the next piece begins in the pack.
    at: u64,
    settled: usize,
    failed: Vec<usize>,
    /// The first bytes of the next blob.
    begun: Vec<u8>,
}

impl Run {
    /// `start`: where the first piece begins. `wanted`: in order of offset; of two that overlap
    /// only one may be found. `key`: as of `Opener`.
    pub fn new(start: u64, wanted: Vec<Stored>, key: Option<[u8; 32]>) -> Run {
        Run {
            opener: Opener::new(key),
            wanted,
            at: start,
            settled: 0,
            failed: Vec::new(),
            begun: Vec::new(),
        }
    }

    /// The bytes that follow. `keep` gets each blob that is whole by now, with its name.
    pub fn take(&mut self, piece: &[u8], mut keep: impl FnMut(&[u8; 32], &[u8])) {
        let end = self.at.saturating_add(piece.len() as u64);
        while let Some(&blob) = self.wanted.get(self.settled) {
            let from = blob.offset.saturating_add(self.begun.len() as u64);
            if !blob.is_possible() || from < self.at {
                self.settle(false);
                continue;
            }
            if from >= end {
                break;
            }
            let blob_end = blob.offset.saturating_add(blob.stored_length.into());
            let here = &piece[(from - self.at) as usize..(blob_end.min(end) - self.at) as usize];
            if self.begun.is_empty() && blob_end <= end {
                let is_kept = open(&mut self.opener, here, &blob, &mut keep);
                self.settle(is_kept);
                continue;
            }
            self.begun
                .reserve_exact(blob.stored_length as usize - self.begun.len());
            self.begun.extend_from_slice(here);
            if blob_end > end {
                break;
            }
            let begun = take(&mut self.begun);
            let is_kept = open(&mut self.opener, &begun, &blob, &mut keep);
            self.begun = begun;
            self.settle(is_kept);
        }
        self.at = end;
    }

    /// The next blob, whose stored bytes were come by in another way.
    pub fn take_next(&mut self, stored: &[u8], mut keep: impl FnMut(&[u8; 32], &[u8])) {
        if let Some(&blob) = self.wanted.get(self.settled) {
            let is_kept = open(&mut self.opener, stored, &blob, &mut keep);
            self.settle(is_kept);
        }
    }

    /// How many of the wanted were given to `keep`, or have failed: the first ones.
    pub fn settled(&self) -> usize {
        self.settled
    }

    /// The settled blobs whose bytes failed the check.
    pub fn failed(&self) -> &[usize] {
        &self.failed
    }

    fn settle(&mut self, is_kept: bool) {
        if !is_kept {
            self.failed.push(self.settled);
        }
        self.settled += 1;
        self.begun.clear(); // what of it had arrived, also if `take_next` brought the whole
    }
}

fn open(
    opener: &mut Opener,
    stored: &[u8],
    blob: &Stored,
    keep: &mut impl FnMut(&[u8; 32], &[u8]),
) -> bool {
    match opener.open(stored, blob) {
        Some(raw) => {
            keep(&blob.name, raw);
            true
        }
        None => false,
    }
}
