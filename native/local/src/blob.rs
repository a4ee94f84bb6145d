//! A blob as packs have it: its name, and its stored bytes.
//!
//! The same rules as `cowfs/format/codec.py`, which explains them: one zstd frame that declares its
//! content size, where it saves at least 3 %, else the bytes as they are.

use zstd::bulk::Compressor;

const LEVEL: i32 = 3;
const KEEP_NUMERATOR: usize = 97;
const KEEP_DENOMINATOR: usize = 100;
const MIN_COMPRESSED_BYTES: usize = 32;

/// Named and compressed. `stored` None: as it is.
#[derive(Debug)]
pub struct Blob {
    /// BLAKE3 of the raw bytes, keyed where the store has a key.
    pub name: [u8; 32],
    /// One zstd frame.
    pub stored: Option<Vec<u8>>,
}

/// Makes blobs one after the other.
pub struct Blobs {
    key: Option<[u8; 32]>,
    compressor: Compressor<'static>,
}

impl Blobs {
    /// `key`: of a store that names its blobs by one.
    pub fn new(key: Option<[u8; 32]>) -> std::io::Result<Blobs> {
        let compressor = Compressor::new(LEVEL)?;
        Ok(Blobs { key, compressor })
    }

    /// The blob of these bytes.
    pub fn make(&mut self, raw: &[u8]) -> std::io::Result<Blob> {
        let name = match &self.key {
            Some(key) => blake3::keyed_hash(key, raw),
            None => blake3::hash(raw),
        };
        let stored = match raw.len() < MIN_COMPRESSED_BYTES {
            true => None,
            false => Some(self.compressor.compress(raw)?),
        };
        let pays = |stored: &Vec<u8>| stored.len() * KEEP_DENOMINATOR <= raw.len() * KEEP_NUMERATOR;
        Ok(Blob {
            name: *name.as_bytes(),
            stored: stored.filter(pays),
        })
    }
}
