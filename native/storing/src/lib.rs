//! Many small files at once on their way into packs: named, looked up, compressed, put one behind
//! the other as a pack has them, and their rows.
//!
//! ```text
//! SmallFiles of the engine ─▶ named ─┬─ known here, or the caller says where ──────────────┬─▶ rows
//!                                    └─ missing ─▶ compressed ─▶ poured into packs ─▶ places ┘
//! ```
//!
//! A file is at most one chunk, so that nothing is cut. The cost of a chunk in Python, a call and
//! some objects for each step, is more than hashing and compressing so few bytes. For the chunks of
//! large files that cost does not matter; they go another way
//! (`cowfs/version/publish/contents.py`).
//!
//! The order of calls is that of the picture. The caller decides which places are reliable, and
//! which catalogues there are. Equal files of one batch are one chunk. No I/O here. Naming and
//! compressing use all cores.

mod pour;

use std::thread;

use cowfs_base::ChunkHash;
use cowfs_blob::{CODEC_RAW, CODEC_ZSTD, compressed, name_of};
use cowfs_chunking::{ChunkPlaces, Hash, Pack, Place, RECORD_BYTES};
use cowfs_engine::{ChunkRef, ExtentRow, FileRows, SmallContent, SmallFile, SmallFiles};
use hashbrown::{HashMap, HashSet};

pub use pour::Poured;

/// Fewer chunks are not worth a thread: to start one takes as long as to compress ten.
const ITEMS_MIN: usize = 128;
const THREADS_MAX: usize = 8;
const PREFIX_BYTES: usize = 8;

/// A batch of small files.
pub struct Batch {
    files: Vec<SmallFile>,
    bytes: Vec<u8>,
    chunks: Vec<Chunk>,
    /// Number of the chunk of each file that has one to be stored.
    chunk_of: Vec<Option<u32>>,
    next: usize,
}

struct Chunk {
    hash: Hash,
    at: usize,
    length: usize,
    state: State,
}

enum State {
    /// `is_doubted`: it was placed before, and it is for the caller to say whether that still
    /// counts.
    Missing { is_doubted: bool },
    /// To be poured; None: stored as it is.
    Ready(Option<Vec<u8>>),
    /// `is_told`: the table of places has it already.
    Placed {
        place: Place,
        is_fresh: bool,
        is_told: bool,
    },
}

impl Batch {
    /// Names the files' chunks. `key`: of a store that names its blobs by one.
    pub fn new(small: SmallFiles, key: Option<&[u8; 32]>) -> Batch {
        let ranges: Vec<(usize, usize)> = small.files.iter().filter_map(staged).collect();
        let hashes = in_parallel(&ranges, |(at, length)| {
            name_of(&small.bytes[*at..*at + *length], key)
        });
        let mut numbers: HashMap<Hash, u32> = HashMap::with_capacity(hashes.len());
        let mut chunks: Vec<Chunk> = Vec::with_capacity(hashes.len());
        let mut named = hashes.into_iter().zip(&ranges);
        let chunk_of = small.files.iter().map(|file| {
            staged(file)?;
            let (hash, (at, length)) = named.next().expect("as many as there are ranges");
            Some(*numbers.entry(hash).or_insert_with(|| {
                chunks.push(Chunk {
                    hash,
                    at: *at,
                    length: *length,
                    state: State::Missing { is_doubted: false },
                });
                (chunks.len() - 1) as u32
            }))
        });
        let chunk_of = chunk_of.collect();
        Batch {
            files: small.files,
            bytes: small.bytes,
            chunks,
            chunk_of,
            next: 0,
        }
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there is no file.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The files, in their order.
    pub fn files(&self) -> &[SmallFile] {
        &self.files
    }

    /// How many bytes of files were read.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Looks the chunks up where they were placed before. `packs` says where that is.
    pub fn look_up(&mut self, places: &ChunkPlaces) {
        for chunk in &mut self.chunks {
            if let Some(place) = places.get(&chunk.hash) {
                chunk.state = State::Placed {
                    place,
                    is_fresh: false,
                    is_told: true,
                };
            }
        }
    }

    /// Some of these packs are unreliable: chunks found in them are missing again.
    pub fn doubt(&mut self, packs: &[Pack]) {
        for chunk in &mut self.chunks {
            if let State::Placed { place, .. } = &chunk.state
                && packs.contains(&place.pack)
            {
                chunk.state = State::Missing { is_doubted: true };
            }
        }
    }

    /// Number and hash of the chunks that were not found yet.
    pub fn missing(&self) -> impl Iterator<Item = (usize, &Hash)> {
        let chunks = self.chunks.iter().enumerate();
        chunks
            .filter(|(_, chunk)| matches!(chunk.state, State::Missing { .. }))
            .map(|(number, chunk)| (number, &chunk.hash))
    }

    /// The missing chunks that may be known: that were doubted, whose hash is among `noted`, or
    /// begins as an entry of one of these catalogues does (`cowfs/format/catalogue.py`; the entries
    /// alone).
    pub fn missing_in(&self, catalogues: &[&[u8]], noted: &HashSet<&[u8]>) -> Vec<(usize, &Hash)> {
        let is_doubted = |number: usize| {
            matches!(
                self.chunks[number].state,
                State::Missing { is_doubted: true }
            )
        };
        let may_be_known = |(number, hash): &(usize, &Hash)| {
            is_doubted(*number)
                || noted.contains(&hash[..])
                || catalogues.iter().any(|entries| has_prefix(entries, hash))
        };
        self.missing().filter(may_be_known).collect()
    }

    /// The chunk with this number is in the store. False if there is no such chunk.
    pub fn found(&mut self, number: usize, place: Place) -> bool {
        let chunk = self.chunks.get_mut(number);
        chunk.is_some_and(|chunk| {
            chunk.state = State::Placed {
                place,
                is_fresh: false,
                is_told: false,
            };
            true
        })
    }

    /// All chunks that are missing still are to be poured. `compresses`: where that pays.
    pub fn compress(&mut self, compresses: bool) {
        let missing: Vec<(usize, usize, usize)> = self
            .missing()
            .map(|(number, _)| (number, self.chunks[number].at, self.chunks[number].length))
            .collect();
        let stored = in_parallel(&missing, |(_, at, length)| {
            let raw = &self.bytes[*at..*at + *length];
            if compresses { compressed(raw) } else { None }
        });
        for ((number, _, _), stored) in missing.into_iter().zip(stored) {
            self.chunks[number].state = State::Ready(stored);
        }
    }

    /// Packs in which chunks of the batch lie, each once.
    pub fn packs(&self) -> Vec<Pack> {
        let mut packs: Vec<Pack> = Vec::new();
        for chunk in &self.chunks {
            if let State::Placed { place, .. } = &chunk.state
                && packs.last() != Some(&place.pack)
            {
                packs.push(place.pack);
            }
        }
        packs.sort_unstable();
        packs.dedup();
        packs
    }

    /// Finishes the batch when everything is placed: records the places in the table, and gives
    /// each file its rows. `number`: of a pack in the index. Returns false, and does nothing, if a
    /// chunk has no place, or a pack no number.
    pub fn finish(
        &mut self,
        places: &mut ChunkPlaces,
        number: impl Fn(&Pack) -> Option<u64>,
        rows: &mut FileRows,
    ) -> bool {
        let refs = self.chunks.iter().map(|chunk| match &chunk.state {
            State::Placed { place, .. } => {
                Some(chunk_ref(&chunk.hash, place, number(&place.pack)?))
            }
            _ => None,
        });
        let Some(refs) = refs.collect::<Option<Vec<ChunkRef>>>() else {
            return false;
        };
        for chunk in &mut self.chunks {
            if let State::Placed {
                place,
                is_fresh,
                is_told,
            } = &mut chunk.state
                && !*is_told
            {
                places.put(&chunk.hash, place, *is_fresh);
                *is_told = true;
            }
        }
        for (file, chunk) in self.files.iter().zip(&self.chunk_of) {
            match &file.content {
                SmallContent::Empty => rows.put(file.ino, file.version, &[]),
                SmallContent::Stored(stored) => rows.put_record(stored),
                SmallContent::Staged { offset, length, .. } => {
                    let number = chunk.expect("every staged file has a chunk");
                    let row = ExtentRow {
                        offset: *offset,
                        length: *length as u64,
                        chunk: refs[number as usize].clone(),
                        skip: 0,
                    };
                    rows.put(file.ino, file.version, &[row]);
                }
            }
        }
        true
    }
}

/// Whether an entry begins as the hash does. Entries must ascend; otherwise some are not found.
fn has_prefix(entries: &[u8], hash: &Hash) -> bool {
    let entries = entries.as_chunks::<RECORD_BYTES>().0;
    let prefix = &hash[..PREFIX_BYTES];
    let at = entries.partition_point(|entry| &entry[..PREFIX_BYTES] < prefix);
    entries
        .get(at)
        .is_some_and(|entry| &entry[..PREFIX_BYTES] == prefix)
}

fn staged(file: &SmallFile) -> Option<(usize, usize)> {
    match file.content {
        SmallContent::Staged { at, length, .. } => Some((at, length)),
        _ => None,
    }
}

fn chunk_ref(hash: &Hash, place: &Place, pack: u64) -> ChunkRef {
    ChunkRef {
        hash: ChunkHash(*hash),
        pack,
        offset: place.offset.into(),
        stored_length: place.stored_length,
        raw_length: place.raw_length,
        codec: place.codec.into(),
    }
}

fn codec_of(stored: Option<&Vec<u8>>) -> u8 {
    (if stored.is_some() {
        CODEC_ZSTD
    } else {
        CODEC_RAW
    }) as u8
}

/// One result for each item, in order.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = cores
        .min(THREADS_MAX)
        .min(items.len().div_ceil(ITEMS_MIN))
        .max(1);
    if threads == 1 {
        return items.iter().map(work).collect();
    }
    let (first, rest) = items.split_at(items.len().div_ceil(threads));
    thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = rest
            .chunks(first.len())
            .map(|part| {
                let run = move || part.iter().map(work).collect::<Vec<R>>();
                let builder = thread::Builder::new().name("cowfs-cut".into());
                (part, builder.spawn_scoped(scope, run).ok())
            })
            .collect();
        let mut results: Vec<R> = first.iter().map(work).collect();
        for (part, other) in others {
            match other {
                Some(other) => results.extend(other.join().expect("the work does not panic")),
                None => results.extend(part.iter().map(work)), // no more threads can be started
            }
        }
        results
    })
}
