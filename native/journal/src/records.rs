//! Reading a journal file: one record behind the other through one buffer, and the search for valid
//! records behind damage.
//!
//! A file may be gigabytes long: nothing here holds more of it than the record at hand, or a window
//! of the search.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::format::{RECORD_BYTES, Record};

/// Guessed: large enough that system calls cost little beside checksums.
const BUFFER_BYTES: usize = 256 << 10;

/// The valid records of a file, in order, from a place on.
pub struct Records {
    file: BufReader<File>,
    seed: u32,
    at: u64,
    end: u64,
    stored: Vec<u8>,
}

impl Records {
    /// Reads [at, end) of the file, which is at least that long.
    pub fn open(path: &Path, seed: u32, at: u64, end: u64) -> io::Result<Records> {
        let mut file = BufReader::with_capacity(BUFFER_BYTES, File::open(path)?);
        file.seek(SeekFrom::Start(at))?;
        Ok(Records {
            file,
            seed,
            at,
            end,
            stored: Vec::new(),
        })
    }

    /// The next record; its payload is then in `payload`. None at the end, or if the next record is
    /// incomplete or invalid.
    pub fn read(&mut self) -> io::Result<Option<Record>> {
        let left = self.end - self.at;
        if left < RECORD_BYTES as u64 {
            return Ok(None);
        }
        self.stored.resize(RECORD_BYTES, 0);
        self.file.read_exact(&mut self.stored)?;
        let Some(record) = Record::peek(&self.stored) else {
            return Ok(None);
        };
        if record.stored_bytes() as u64 > left {
            return Ok(None);
        }
        self.stored.resize(record.stored_bytes(), 0);
        self.file.read_exact(&mut self.stored[RECORD_BYTES..])?;
        let found = Record::decode(self.seed, &self.stored);
        if found.is_some() {
            self.at += self.stored.len() as u64;
        }
        Ok(found)
    }

    /// The payload of the record that `read` gave.
    pub fn payload(&self) -> &[u8] {
        &self.stored[RECORD_BYTES..]
    }

    /// Where the next record starts.
    pub fn at(&self) -> u64 {
        self.at
    }
}

/// Valid records of a file wherever they start, as far as `is_credible` says that they can be: the
/// checksum of a record that claims megabytes should not be tried at every other byte of a large
/// tail.
pub struct Search<F> {
    file: File,
    seed: u32,
    at: u64,
    end: u64,
    window: Vec<u8>,
    window_at: u64,
    is_credible: F,
}

impl<F: Fn(&Record) -> bool> Search<F> {
    /// Looks through [at, end) of the file.
    pub fn open(
        path: &Path,
        seed: u32,
        at: u64,
        end: u64,
        is_credible: F,
    ) -> io::Result<Search<F>> {
        Ok(Search {
            file: File::open(path)?,
            seed,
            at,
            end,
            window: Vec::new(),
            window_at: at,
            is_credible,
        })
    }

    fn peek(&mut self) -> io::Result<Option<Record>> {
        let skipped = self.at - self.window_at;
        if skipped + RECORD_BYTES as u64 > self.window.len() as u64 {
            self.window_at = self.at;
            let length = (self.end - self.at).min(BUFFER_BYTES as u64) as usize;
            self.window.resize(length, 0);
            self.file.read_exact_at(&mut self.window, self.at)?;
        }
        let place = (self.at - self.window_at) as usize;
        Ok(Record::peek(&self.window[place..]).filter(|record| {
            record.stored_bytes() as u64 <= self.end - self.at && (self.is_credible)(record)
        }))
    }

    fn verified(&self, record: Record) -> io::Result<Option<Record>> {
        let mut stored = vec![0; record.stored_bytes()];
        self.file.read_exact_at(&mut stored, self.at)?;
        Ok(Record::decode(self.seed, &stored))
    }
}

impl<F: Fn(&Record) -> bool> Iterator for Search<F> {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<io::Result<Record>> {
        while self.at + RECORD_BYTES as u64 <= self.end {
            let found = self.peek().and_then(|record| match record {
                Some(record) => self.verified(record),
                None => Ok(None),
            });
            match found {
                Ok(None) => self.at += 1,
                Ok(Some(record)) => {
                    self.at += record.stored_bytes() as u64;
                    return Some(Ok(record));
                }
                Err(error) => {
                    self.at = self.end;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
