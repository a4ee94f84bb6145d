//! Opens a blob: from stored bytes back to the named bytes.

use zstd::bulk::Decompressor;
use zstd::zstd_safe;

use crate::{CODEC_RAW, CODEC_ZSTD};

/// No blob is longer.
pub const MAX_RAW_BYTES: u32 = 16 << 20;

/// A blob as an index names it: where its stored bytes lie in a pack, and their kind.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "the fields of an extent's row")]
pub struct Stored {
    pub offset: u64,
    pub stored_length: u32,
    pub raw_length: u32,
    pub codec: u32,
    pub name: [u8; 32],
}

impl Stored {
    /// Whether a blob can have these lengths.
    pub fn is_possible(&self) -> bool {
        let lengths = match self.codec {
            CODEC_RAW => self.stored_length == self.raw_length,
            CODEC_ZSTD => self.stored_length <= self.raw_length,
            _ => false,
        };
        lengths && self.stored_length > 0 && self.raw_length <= MAX_RAW_BYTES
    }
}

/// Opens blobs one after the other, with one context and one buffer.
#[derive(Default)]
pub struct Opener {
    key: Option<[u8; 32]>,
    decompressor: Option<Decompressor<'static>>,
    raw: Vec<u8>,
}

impl Opener {
    /// `key`: of a store that names its blobs by one.
    pub fn new(key: Option<[u8; 32]>) -> Opener {
        Opener {
            key,
            ..Opener::default()
        }
    }

    /// The raw bytes; None if the stored bytes are not this blob.
    pub fn open<'a>(&'a mut self, stored: &'a [u8], blob: &Stored) -> Option<&'a [u8]> {
        if !blob.is_possible() || stored.len() != blob.stored_length as usize {
            return None;
        }
        let raw = match blob.codec {
            CODEC_RAW => stored,
            _ => expand(
                stored,
                blob.raw_length as usize,
                &mut self.decompressor,
                &mut self.raw,
            )?,
        };
        let name = match &self.key {
            Some(key) => blake3::keyed_hash(key, raw),
            None => blake3::hash(raw),
        };
        (*name.as_bytes() == blob.name).then_some(raw)
    }
}

/// One frame of `length` bytes, and nothing else.
fn expand<'a>(
    stored: &[u8],
    length: usize,
    decompressor: &mut Option<Decompressor<'static>>,
    raw: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    let declared = zstd_safe::get_frame_content_size(stored).ok()??;
    let is_one_frame = declared == length as u64
        && zstd_safe::get_dict_id_from_frame(stored).is_none()
        && zstd_safe::find_frame_compressed_size(stored) == Ok(stored.len());
    if !is_one_frame {
        return None;
    }
    if raw.len() < length {
        raw.resize(length, 0);
    }
    let raw = &mut raw[..length];
    if decompressor.is_none() {
        *decompressor = Decompressor::new().ok();
    }
    let written = decompressor
        .as_mut()?
        .decompress_to_buffer(stored, raw)
        .ok()?;
    (written == length).then_some(raw)
}
