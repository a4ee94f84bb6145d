//! Segment numbers that are never used twice, although segments are removed and processes die.
//!
//! `next-segment` holds the lowest unclaimed number, as `<16 hex> <crc32c of those, 8 hex>\n`. A
//! process claims `CLAIMED_AT_ONCE` numbers before it uses the first, and abandons those that it
//! did not use. Opening claims nothing, so that a full disk can be opened.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

const CLAIMED_AT_ONCE: u64 = 256;

pub struct Numbers {
    dir: PathBuf,
    next: u64,
    claimed_end: u64,
}

impl Numbers {
    /// `newest`: the highest number that has a segment, or 0.
    pub fn open(dir: &Path, newest: u64) -> io::Result<Numbers> {
        let unclaimed = match File::open(record_path(dir)) {
            Ok(mut file) => {
                let mut text = String::new();
                file.read_to_string(&mut text).map_err(|_| damaged(dir))?;
                parse(&text).ok_or_else(|| damaged(dir))?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => 1,
            Err(error) => return Err(error),
        };
        let next = unclaimed.max(newest.saturating_add(1));
        Ok(Numbers {
            dir: dir.to_path_buf(),
            next,
            claimed_end: next,
        })
    }

    /// The next number; fsyncs once in 256 calls.
    pub fn take(&mut self) -> io::Result<u64> {
        if self.next == self.claimed_end {
            self.claim()?;
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    fn claim(&mut self) -> io::Result<()> {
        let end = self
            .next
            .checked_add(CLAIMED_AT_ONCE)
            .ok_or_else(|| io::Error::other("segment numbers are used up"))?;
        let fresh = self.dir.join("next-segment.new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&fresh)?;
        file.write_all(text(end).as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&fresh, record_path(&self.dir))?;
        File::open(&self.dir)?.sync_all()?;
        self.claimed_end = end;
        Ok(())
    }
}

fn record_path(dir: &Path) -> PathBuf {
    dir.join("next-segment")
}

fn text(number: u64) -> String {
    let digits = format!("{number:016x}");
    let crc = crc32c::crc32c(digits.as_bytes());
    format!("{digits} {crc:08x}\n")
}

fn parse(found: &str) -> Option<u64> {
    let number = u64::from_str_radix(found.get(..16)?, 16).ok()?;
    (text(number) == found).then_some(number)
}

fn damaged(dir: &Path) -> io::Error {
    let path = record_path(dir);
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{} is damaged", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_over_restarts_and_claims() {
        let dir = tempfile::tempdir().unwrap();
        let mut last = 0;
        for _ in 0..3 {
            let mut numbers = Numbers::open(dir.path(), 0).unwrap();
            for _ in 0..CLAIMED_AT_ONCE + 5 {
                let number = numbers.take().unwrap();
                assert!(number > last);
                last = number;
            }
        }
        assert_eq!(
            Numbers::open(dir.path(), 1_000_000)
                .unwrap()
                .take()
                .unwrap(),
            1_000_001
        );
    }

    #[test]
    fn a_damaged_record_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for bad in [
            "",
            "1",
            "00000000000000ff 00000000\n",
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
        ] {
            std::fs::write(record_path(dir.path()), bad).unwrap();
            let error = Numbers::open(dir.path(), 0).err().expect(bad);
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
