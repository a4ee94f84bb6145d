//! A blob as packs have it: its name, and its stored bytes.
//!
//! ```text
//! Blob     raw bytes ─▶ name, one zstd frame where it saves at least 3 %
//! Opener   stored bytes ─▶ raw bytes, of the length and name that an index says; or nothing
//! Run      bytes of a pack, as they arrive ─▶ each blob among them, opened
//! ```
//!
//! The same rules as `cowfs/format/codec.py`, which explains them: a blob has 1 byte to 16 MiB; it
//! is stored as it is, or as one zstd frame that declares its content size, has no dictionary and
//! no bytes behind it. An index is not trusted: no allocation exceeds the limit for a blob, and
//! only bytes with the right name are returned. No I/O here; any thread may call.

mod make;
mod open;
mod run;

pub use make::{Blob, compressed, name_of};
pub use open::{MAX_RAW_BYTES, Opener, Stored};
pub use run::Run;

/// Stored as it is.
pub const CODEC_RAW: u32 = 0;
/// One zstd frame.
pub const CODEC_ZSTD: u32 = 1;
