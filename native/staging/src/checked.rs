//! Reading staged bytes against the checksums they were appended with (`sums.rs`).
//!
//! All bytes for a version, a copy, or a new place are read here: a disk that lost a write-back
//! returns zeros or earlier content of the file, and no error. A failed check is EIO.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use crate::sums::{RUN_BYTES, Sum, combine};
use crate::{Staging, checksum, crc_of, ends_early_is_eio, lost, missing_is_eio, segment::Segment};

const CHECKED_AT_ONCE_BYTES: u64 = 1 << 20;

impl Staging {
    /// Tells what a range of a segment of an earlier process must look like, as a record of the
    /// journal has it. Unknown segments are ignored.
    pub fn note(&self, segment: u64, offset: u64, length: u64, crc: u32) {
        if let (Some(segment), Ok(length)) = (self.find(segment), u32::try_from(length))
            && end_of(offset, length.into()).is_ok()
        {
            segment.note_sums(&[Sum {
                offset,
                length,
                crc,
            }]);
        }
    }

    /// What the appended bytes of a segment must look like. A sync that begins now covers all of
    /// them. None: unknown segment.
    pub fn sums(&self, segment: u64) -> Option<Vec<Sum>> {
        Some(self.find(segment)?.sums().all())
    }

    /// As `read_at`, and verifies the bytes against their checksums; EIO if they fail, or were
    /// never appended.
    pub fn read_checked(&self, segment: u64, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.compare(segment, offset, buffer)
            .map_err(|error| match self.find(segment) {
                Some(_) => error,
                // Removed meanwhile, and a hole punched into its file perhaps.
                None => Errno::IO.into(),
            })
    }

    fn compare(&self, number: u64, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let segment = self.find(number).ok_or(io::Error::from(Errno::IO))?;
        let ends_early = |error| ends_early_is_eio(number, error);
        let file = self
            .file(&segment)
            .map_err(|error| missing_is_eio(number, error))?;
        let end = end_of(offset, buffer.len() as u64)?;
        let sums = short_sums(&segment, &file, offset, end)?;
        file.read_exact_at(buffer, offset).map_err(ends_early)?;
        for sum in sums {
            let (from, to) = (sum.offset.max(offset), sum.end().min(end));
            let part = &buffer[(from - offset) as usize..(to - offset) as usize];
            let before = checksum(&file, sum.offset, from - sum.offset).map_err(ends_early)?;
            let behind = checksum(&file, to, sum.end() - to).map_err(ends_early)?;
            let upto = combine(before, crc_of(part), part.len() as u64);
            let found = combine(upto, behind, sum.end() - to);
            if found != sum.crc {
                return Err(mismatch(number, &sum, found));
            }
        }
        Ok(())
    }

    /// Whether bytes of the segment may be lost.
    pub fn is_doubted(&self, segment: u64) -> bool {
        self.find(segment)
            .is_some_and(|segment| segment.is_doubted())
    }

    /// Segments with bytes that the kernel has lost.
    pub fn failed_segments(&self) -> Vec<u64> {
        let segments = self.map();
        let failed = segments.values().filter(|segment| segment.has_failed());
        failed.map(|segment| segment.number).collect()
    }

    /// Reads a range and compares it with its checksums; EIO when bytes of it are lost.
    pub fn check(&self, segment: u64, offset: u64, length: u64) -> io::Result<()> {
        let mut buffer = vec![0; length.min(CHECKED_AT_ONCE_BYTES) as usize];
        let (mut at, end) = (offset, end_of(offset, length)?);
        while at < end {
            let part = (end - at).min(buffer.len() as u64) as usize;
            self.read_checked(segment, at, &mut buffer[..part])?;
            at += part as u64;
        }
        Ok(())
    }

    /// Checks all known runs of a segment once, so that its reads need not be checked.
    pub fn check_segment(&self, segment: u64) -> io::Result<()> {
        let found = self.find(segment).ok_or(io::Error::from(Errno::NOENT))?;
        if !found.is_doubted() {
            return Ok(());
        }
        let sums = found.sums().all();
        for sum in sums {
            self.check(segment, sum.offset, sum.length.into())?;
        }
        found.set_trusted();
        Ok(())
    }

    /// crc32c of bytes as they were appended, for a record that names them. Reads, and checks, at
    /// most two runs; the others' sums are known. EIO as in `read_checked`.
    pub fn checksum(&self, segment: u64, offset: u64, length: u64) -> io::Result<u32> {
        let runs = self.runs(segment, offset, length)?;
        Ok(runs
            .iter()
            .fold(0, |crc, run| combine(crc, run.crc, run.length.into())))
    }

    /// The same, run by run: for records that each cover a single run, so that a lost run takes no
    /// other bytes with it.
    pub fn runs(&self, segment: u64, offset: u64, length: u64) -> io::Result<Vec<Sum>> {
        let found = self.find(segment).ok_or(io::Error::from(Errno::IO))?;
        let file = self
            .file(&found)
            .map_err(|error| missing_is_eio(segment, error))?;
        let end = end_of(offset, length)?;
        let (mut at, mut runs) = (offset, Vec::new());
        for sum in short_sums(&found, &file, offset, end)? {
            let to = sum.end().min(end);
            let part = if (at, to) == (sum.offset, sum.end()) {
                sum.crc
            } else {
                let mut bytes = vec![0; (to - at) as usize];
                self.read_checked(segment, at, &mut bytes)?;
                crc_of(&bytes)
            };
            runs.push(Sum {
                offset: at,
                length: (to - at) as u32,
                crc: part,
            });
            at = to;
        }
        Ok(runs)
    }
}

fn end_of(offset: u64, length: u64) -> io::Result<u64> {
    offset.checked_add(length).ok_or(Errno::IO.into())
}

/// The sums of a range, none longer than a run: long ones are checked whole and cut.
fn short_sums(segment: &Segment, file: &File, from: u64, to: u64) -> io::Result<Vec<Sum>> {
    let covering = || {
        let covering = segment.sums().covering(from, to);
        covering.ok_or_else(|| {
            let range = format_args!("no checksum is known of bytes {from} to {to}");
            lost(segment.number, range)
        })
    };
    let sums = covering()?;
    if !sums.iter().any(Sum::is_long) {
        return Ok(sums);
    }
    for long in sums.into_iter().filter(Sum::is_long) {
        let parts = parts_of(file, segment.number, long)?;
        segment.sums().cut(long, &parts);
    }
    covering()
}

/// The sums of a long sum's runs; EIO when together they are another.
fn parts_of(file: &File, number: u64, long: Sum) -> io::Result<Vec<Sum>> {
    let (mut parts, mut offset, mut whole) = (Vec::new(), long.offset, 0);
    while offset < long.end() {
        let length = RUN_BYTES.min(long.end() - offset);
        let crc =
            checksum(file, offset, length).map_err(|error| ends_early_is_eio(number, error))?;
        whole = combine(whole, crc, length);
        parts.push(Sum {
            offset,
            length: length as u32,
            crc,
        });
        offset += length;
    }
    if whole == long.crc {
        Ok(parts)
    } else {
        Err(mismatch(number, &long, whole))
    }
}

fn mismatch(number: u64, sum: &Sum, found: u32) -> io::Error {
    let (from, to, crc) = (sum.offset, sum.end(), sum.crc);
    let what = format_args!("bytes {from} to {to} have checksum {found:08x} instead of {crc:08x}");
    lost(number, what)
}
