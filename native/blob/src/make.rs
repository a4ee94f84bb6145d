//! Makes a blob from raw bytes.

use std::cell::RefCell;

use zstd::bulk::Compressor;

const LEVEL: i32 = 3;
/// A saving below 3 % is not worth decompressing on every read.
const KEEP_NUMERATOR: usize = 97;
const KEEP_DENOMINATOR: usize = 100;
/// The smallest frame with any content is larger than what so few bytes could save.
const MIN_COMPRESSED_BYTES: usize = 32;
/// A blob that is longer is tried first: as many parts of it, evenly spread from its beginning to
/// its end, and as long, as one frame.
const SAMPLED_FROM_BYTES: usize = 128 << 10;
const SAMPLE_PARTS: usize = 8;
const SAMPLE_PART_BYTES: usize = 4 << 10;
/// A thread keeps a buffer of this size for the next blob: enough for a chunk of a file.
const KEPT_BYTES: usize = 2 << 20;

/// Named and compressed. `stored` None: as it is.
#[derive(Debug)]
pub struct Blob {
    /// BLAKE3 of the raw bytes, keyed where the store has a key.
    pub name: [u8; 32],
    /// One zstd frame.
    pub stored: Option<Vec<u8>>,
}

impl Blob {
    /// The blob of these bytes. `key`: of a store that names its blobs by one. `compresses`: where
    /// that pays.
    pub fn of(raw: &[u8], key: Option<&[u8; 32]>, compresses: bool) -> Blob {
        Blob {
            name: name_of(raw, key),
            stored: if compresses { compressed(raw) } else { None },
        }
    }
}

/// The name of these bytes. `key`: that of a store with keyed names.
pub fn name_of(raw: &[u8], key: Option<&[u8; 32]>) -> [u8; 32] {
    let name = match key {
        Some(key) => blake3::keyed_hash(key, raw),
        None => blake3::hash(raw),
    };
    *name.as_bytes()
}

/// One zstd frame of `raw`, if that saves at least 3 %.
///
/// If a sample of a long blob saves less, nothing more is tried. That misses repetitions over more
/// than the sample's length, and compressible data between the sample's parts, less than an eighth
/// of the blob.
///
/// An attempt that does not pay costs no memory: its output goes to a buffer that the thread keeps,
/// since pages of a new one would cost more than the attempt.
pub fn compressed(raw: &[u8]) -> Option<Vec<u8>> {
    thread_local! {
        static ROOM: RefCell<(Option<Compressor<'static>>, Vec<u8>)> = const { RefCell::new((None, Vec::new())) };
    }
    if raw.len() < MIN_COMPRESSED_BYTES {
        return None;
    }
    ROOM.with_borrow_mut(|(compressor, room)| {
        if compressor.is_none() {
            *compressor = Compressor::new(LEVEL).ok();
        }
        let compressor = compressor.as_mut()?;
        if raw.len() > SAMPLED_FROM_BYTES {
            attempt(compressor, &sample(raw), room)?;
        }
        let length = attempt(compressor, raw, room);
        let stored = length.map(|length| room[..length].to_vec());
        if room.len() > KEPT_BYTES {
            *room = Vec::new();
        }
        stored
    })
}

/// Returns the length of the frame that is now in `room`; None if it does not save enough.
fn attempt(compressor: &mut Compressor<'static>, raw: &[u8], room: &mut Vec<u8>) -> Option<usize> {
    let most = raw.len() * KEEP_NUMERATOR / KEEP_DENOMINATOR;
    if room.len() < most {
        room.resize(most, 0);
    }
    // A frame that is longer fails.
    compressor.compress_to_buffer(raw, &mut room[..most]).ok()
}

fn sample(raw: &[u8]) -> [u8; SAMPLE_PARTS * SAMPLE_PART_BYTES] {
    let mut sample = [0; SAMPLE_PARTS * SAMPLE_PART_BYTES];
    let last = raw.len() - SAMPLE_PART_BYTES;
    for (number, part) in sample.chunks_exact_mut(SAMPLE_PART_BYTES).enumerate() {
        let at = last * number / (SAMPLE_PARTS - 1);
        part.copy_from_slice(&raw[at..at + SAMPLE_PART_BYTES]);
    }
    sample
}
