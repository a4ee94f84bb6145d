//! The order of eviction when the directory holds too much.
//!
//! ```text
//! new chunks ─▶ segments "once" ──oldest first──▶ deleted; what was read again since ─▶ segments "kept", whole files, blocks
//!                                                                                         ──oldest first──▶ the same
//! ```
//!
//! Whole segments are deleted. Segments of new chunks go first while they hold more than an eighth
//! of the total. So data that is read once, however much, passes through them and displaces nothing
//! that is in use. A chunk that was read again moves to a segment of the other kind, and moves
//! again there each time it was read since. At most half of a segment is moved, so that each
//! deletion makes room. When the disk is full, nothing is moved.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::time::SystemTime;

use crate::account;
use crate::record::Record;
use crate::segments::{self, Kind, Listed, Segments};
use crate::slab::PAGE;
use crate::writer::Writer;

/// The part of the total that chunks read only once may always hold.
const ONCE_PART: u64 = 8;
/// The most bytes moved at a time.
const MOVED_BYTES: usize = 4 << 20;

enum Victim {
    Segment(Listed),
    File(account::Listed),
}

impl Victim {
    fn bytes(&self) -> u64 {
        match self {
            Victim::Segment(segment) => segment.data_bytes + segment.index_bytes,
            Victim::File(file) => file.bytes,
        }
    }

    fn used(&self) -> SystemTime {
        match self {
            Victim::Segment(segment) => segment.used,
            Victim::File(file) => file.used,
        }
    }
}

/// Bytes of all segments.
pub fn segment_bytes(dir: &Path) -> u64 {
    let found = segments::list(dir);
    found
        .iter()
        .map(|found| found.data_bytes + found.index_bytes)
        .sum()
}

/// Deletes the least recently used data until about `wanted_bytes` are gone; returns how many bytes
/// this call has freed. Other processes may do the same at the same time: their deletions count as
/// gone, not as freed here. `moves`: keep the chunks that were read again.
pub fn make_room(
    dir: &Path,
    segments: &Segments,
    writer: &Writer,
    wanted_bytes: u64,
    moves: bool,
) -> u64 {
    let (mut once, mut others) = victims(dir, segments, writer);
    let mut once_bytes: u64 = once.iter().map(Victim::bytes).sum();
    let held_bytes = once_bytes + others.iter().map(Victim::bytes).sum::<u64>();
    let (mut left_bytes, mut freed_bytes) = (wanted_bytes, 0);
    while left_bytes > 0 {
        let is_once = once_bytes > held_bytes / ONCE_PART || others.is_empty();
        let queue = if is_once { &mut once } else { &mut others };
        let Some(victim) = queue.pop_front() else {
            break;
        };
        let bytes = victim.bytes();
        if is_once {
            once_bytes -= bytes;
        }
        match victim {
            Victim::File(file) => match fs::remove_file(&file.path) {
                Ok(()) => freed_bytes += bytes,
                Err(error) if error.kind() == ErrorKind::NotFound => (),
                Err(_) => continue,
            },
            Victim::Segment(segment) => {
                let moved_bytes = match moves && !writer.is_own(&segment.name) {
                    true => move_used(segments, writer, &segment).min(bytes),
                    false => 0,
                };
                if segment.name.remove(segments.dir()) {
                    freed_bytes += bytes - moved_bytes;
                }
                segments.gone(&segment.name);
                left_bytes += moved_bytes;
            }
        }
        left_bytes = left_bytes.saturating_sub(bytes);
    }
    freed_bytes
}

/// Segments of new chunks, and all else; both in the order in which they go.
fn victims(
    dir: &Path,
    segments: &Segments,
    writer: &Writer,
) -> (VecDeque<Victim>, VecDeque<Victim>) {
    let found = segments::list(segments.dir())
        .into_iter()
        .map(Victim::Segment);
    let mut all: Vec<Victim> = found
        .chain(account::list_all(dir).into_iter().map(Victim::File))
        .collect();
    let is_own = |victim: &Victim| match victim {
        Victim::Segment(segment) => writer.is_own(&segment.name),
        Victim::File(_) => false,
    };
    all.sort_by_cached_key(|victim| (is_own(victim), victim.used()));
    all.into_iter().partition(
        |victim| matches!(victim, Victim::Segment(segment) if segment.name.kind == Kind::Once),
    )
}

/// Copies the chunks that were read again to other segments; returns how many bytes.
fn move_used(segments: &Segments, writer: &Writer, segment: &Listed) -> u64 {
    let name = &segment.name;
    let index = segments::read_index(&name.index(segments.dir()), 0);
    let data = File::open(name.data(segments.dir()));
    let (Some((records, _)), Ok(data)) = (index, data) else {
        return 0;
    };
    let (mut moved_bytes, mut bytes, mut batch) = (0, Vec::new(), Vec::new());
    for (record, at) in records {
        let raw_len = u64::from(record.raw_len);
        if !record.is_used || !segments.is_current(name, &record, at) {
            continue;
        }
        if moved_bytes + raw_len > segment.data_bytes / 2 {
            break;
        }
        if let Some(record) = read_to(&data, record, &mut bytes) {
            moved_bytes += raw_len;
            batch.push(record);
        }
        if bytes.len() >= MOVED_BYTES && !append(segments, writer, &mut bytes, &mut batch) {
            return moved_bytes;
        }
    }
    append(segments, writer, &mut bytes, &mut batch);
    moved_bytes
}

/// Appends the chunk to `bytes`; returns its record for the new place, None if it is damaged.
fn read_to(data: &File, record: Record, bytes: &mut Vec<u8>) -> Option<Record> {
    let (start, length) = (bytes.len(), record.raw_len as usize);
    bytes.resize(start + length, 0);
    let is_read = record.sums.read(
        data,
        record.offset.into(),
        length as u64,
        0,
        &mut bytes[start..],
    );
    if !is_read {
        bytes.truncate(start);
        return None;
    }
    bytes.resize(bytes.len().next_multiple_of(PAGE), 0);
    Some(Record {
        offset: start as u32,
        stored_s: segments::now_s(),
        is_used: false,
        ..record
    })
}

fn append(
    segments: &Segments,
    writer: &Writer,
    bytes: &mut Vec<u8>,
    batch: &mut Vec<Record>,
) -> bool {
    let is_appended = batch.is_empty()
        || writer
            .append(segments, Kind::Kept, bytes, std::mem::take(batch))
            .is_ok();
    bytes.clear();
    is_appended
}
