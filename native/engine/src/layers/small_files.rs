//! Small files as a commit stores them, many with one call: their kind, and their bytes.
//!
//! Most files of most trees were written once and are short. A call for the extents of each, and
//! another for its bytes, costs more than processing the bytes. A checksum covers up to 16 KiB, so
//! each of a hundred such files would read and check all of them. Here bytes that follow each other
//! in a segment are read and checked together.
//!
//! A small file has at most one staged extent, too short for a cut or a hole (`SMALL_BYTES`). Files
//! come in the order of the request, and end before the first that is something else, cannot be
//! read, or is one too many. The caller handles that one.

use cowfs_base::{Ino, Layer, Segment};

use crate::engine::Engine;
use crate::error::Result;
use crate::extents::ExtentMap;
use crate::file_rows::{FileRows, Record};
use crate::layers::BATCH;
use crate::read::readable_staged;
use crate::state::State;

/// A file that is as long or longer may have holes, or several chunks.
const SMALL_BYTES: u64 = 64 << 10;
/// The most bytes read by one call.
const BYTES_AT_ONCE: u64 = 4 << 20;

/// The content of one of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SmallContent {
    /// It has no bytes.
    Empty,
    /// It was stored before.
    Stored(Record),
    /// All its bytes, which lie in the file from `offset` on: `length` of the bytes that were read,
    /// from `at` on.
    #[allow(missing_docs, reason = "said above")]
    Staged {
        offset: u64,
        at: usize,
        length: usize,
    },
}

/// One of the files, and its data version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in `layer_contents`")]
pub struct SmallFile {
    pub ino: Ino,
    pub version: u64,
    pub content: SmallContent,
}

impl SmallFile {
    /// Whether its bytes were read.
    pub fn is_staged(&self) -> bool {
        matches!(self.content, SmallContent::Staged { .. })
    }
}

/// Files, and the bytes of the non-empty ones.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "said above")]
pub struct SmallFiles {
    pub files: Vec<SmallFile>,
    pub bytes: Vec<u8>,
}

/// A file whose bytes were not read yet.
struct Found {
    ino: Ino,
    version: u64,
    content: FoundContent,
}

enum FoundContent {
    Known(SmallContent),
    Staged(Range),
}

#[derive(Clone, Copy)]
struct Range {
    offset: u64, // in the file
    length: u64,
    segment: Segment,
    at: u64, // in the segment
}

impl Engine {
    /// Files of `layer_contents` behind `after`, in its order, at most `limit`. `stored`: tables of
    /// files stored before; the first that has a file in this version counts.
    pub fn layer_small_files(
        &self,
        layer: Layer,
        after: Ino,
        limit: usize,
        stored: &[&FileRows],
    ) -> Result<SmallFiles> {
        let keys = self.layer_keys(layer)?;
        let mut inodes = keys.content_inodes(after).peekable();
        let mut batch = Batch::new(limit, stored);
        while !batch.is_full && inodes.peek().is_some() {
            let state = self.read()?;
            let frozen = state.frozen_layer(layer)?;
            for ino in inodes.by_ref().take(BATCH) {
                if state.frozen_row(frozen, ino).is_none() {
                    continue;
                }
                let Some((version, extents)) = state.frozen_extents(frozen, ino) else {
                    continue;
                };
                batch.add(&state, ino, version, extents);
                if batch.is_full {
                    break;
                }
            }
        }
        self.read_found(batch.found)
    }

    /// These files as they are now.
    pub fn live_small_files(&self, inodes: &[Ino]) -> Result<SmallFiles> {
        let mut batch = Batch::new(inodes.len(), &[]);
        let mut inodes = inodes.iter().peekable();
        while !batch.is_full && inodes.peek().is_some() {
            let state = self.read()?;
            for ino in inodes.by_ref().take(BATCH) {
                match state.content(*ino) {
                    Ok(content) => batch.add(&state, *ino, content.version, &content.extents),
                    Err(_) => batch.is_full = true,
                }
                if batch.is_full {
                    break;
                }
            }
        }
        self.read_found(batch.found)
    }

    /// Reads files up to the first that fails its checksum.
    fn read_found(&self, mut found: Vec<Found>) -> Result<SmallFiles> {
        let mut order: Vec<(Range, usize)> = found
            .iter()
            .enumerate()
            .filter_map(|(number, file)| match file.content {
                FoundContent::Staged(range) => Some((range, number)),
                FoundContent::Known(_) => None,
            })
            .collect();
        order.sort_unstable_by_key(|(range, _)| (range.segment, range.at));
        let total: u64 = order.iter().map(|(range, _)| range.length).sum();
        let mut bytes = vec![0; total as usize];
        let (mut first, mut start) = (0, 0);
        let mut readable = found.len();
        while first < order.len() {
            let end = run_end(&order, first);
            let length: u64 = order[first..end]
                .iter()
                .map(|(range, _)| range.length)
                .sum();
            let part = &mut bytes[start..start + length as usize];
            let run = order[first].0;
            if self.read_staged(run.segment, run.at, part).is_err() {
                readable = readable.min(self.first_unreadable(&order[first..end], part));
            }
            let mut at = start;
            for (range, number) in &order[first..end] {
                found[*number].content = FoundContent::Known(SmallContent::Staged {
                    offset: range.offset,
                    at,
                    length: range.length as usize,
                });
                at += range.length as usize;
            }
            (first, start) = (end, at);
        }
        found.truncate(readable);
        let files = found.into_iter().map(|file| SmallFile {
            ino: file.ino,
            version: file.version,
            content: match file.content {
                FoundContent::Known(content) => content,
                FoundContent::Staged(_) => unreachable!("all were read"),
            },
        });
        Ok(SmallFiles {
            files: files.collect(),
            bytes,
        })
    }

    /// Reads the files of a run one by one; the number of the first file that cannot be read.
    fn first_unreadable(&self, run: &[(Range, usize)], mut part: &mut [u8]) -> usize {
        let mut first = usize::MAX;
        for (range, number) in run {
            let (own, rest) = part.split_at_mut(range.length as usize);
            if self.read_staged(range.segment, range.at, own).is_err() {
                first = first.min(*number);
            }
            part = rest;
        }
        first
    }
}

/// The end of the ranges that follow each other in their segment.
fn run_end(order: &[(Range, usize)], first: usize) -> usize {
    let follows = |pair: &[(Range, usize)]| {
        let (before, behind) = (pair[0].0, pair[1].0);
        before.segment == behind.segment && before.at + before.length == behind.at
    };
    let pairs = order[first..].windows(2);
    first + 1 + pairs.take_while(|pair| follows(pair)).count()
}

struct Batch<'a> {
    found: Vec<Found>,
    limit: usize,
    bytes: u64,
    stored: &'a [&'a FileRows],
    is_full: bool,
}

impl<'a> Batch<'a> {
    fn new(limit: usize, stored: &'a [&'a FileRows]) -> Batch<'a> {
        Batch {
            found: Vec::new(),
            limit,
            bytes: 0,
            stored,
            is_full: limit == 0,
        }
    }

    /// Full afterwards if the file is none of these, or the last that there is room for.
    fn add(&mut self, state: &State, ino: Ino, version: u64, extents: &ExtentMap) {
        let content = self.content(state, ino, version, extents);
        self.is_full = content.is_none() || self.found.len() + 1 == self.limit;
        self.found.extend(content.map(|content| Found {
            ino,
            version,
            content,
        }));
    }

    fn content(
        &mut self,
        state: &State,
        ino: Ino,
        version: u64,
        extents: &ExtentMap,
    ) -> Option<FoundContent> {
        let stored = self.stored.iter();
        let mut stored = stored.filter(|rows| rows.version(ino) == Some(version));
        if let Some(record) = stored.next().and_then(|rows| rows.record(ino)) {
            return Some(FoundContent::Known(SmallContent::Stored(record)));
        }
        if extents.len() > 1 {
            return None;
        }
        let Some(extent) = extents.iter().next() else {
            return Some(FoundContent::Known(SmallContent::Empty));
        };
        if extent.chunk.is_some() || extent.length >= SMALL_BYTES {
            return None;
        }
        let (segment, at) = readable_staged(state, extent)?;
        self.bytes += extent.length;
        let has_room = self.bytes <= BYTES_AT_ONCE || self.found.is_empty();
        has_room.then_some(FoundContent::Staged(Range {
            offset: extent.offset,
            length: extent.length,
            segment,
            at,
        }))
    }
}
