//! The common ground of the engine's crates: identifiers, owners, error numbers, time, locks, crash
//! points for tests, reasons of failed calls.
//!
//! Nothing here does I/O. Numbers named `_ns` are nanoseconds, lengths and offsets are bytes.

mod clock;
mod errno;
pub mod failpoints;
pub mod faults;
mod owners;
pub mod sync;

pub use clock::{monotonic_ns, now_ns};
pub use errno::Errno;
pub use owners::Owners;

/// An inode number. Never used twice within a volume.
pub type Ino = u64;

/// The number of a staging segment.
pub type Segment = u64;

/// The number of a layer: the changes one commit publishes.
pub type Layer = u64;

/// The inode number of a volume's root directory.
pub const ROOT_INO: Ino = 1;

/// How many bits the number of an inode has in a volume. In a mount the bits above say which
/// version it is of.
pub const INO_BITS: u32 = 48;

/// The largest number of an inode.
pub const LAST_INO: Ino = (1 << INO_BITS) - 1;

/// A sparse file may claim 8 EiB, and two of them would not fit in the 64 bits of a version's
/// total: of one file so many bytes count at most.
pub const COUNTED_BYTES: u64 = 1 << 43;

/// The attributes of an inode at one moment. `blocks` counts 512-byte units of mapped data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the fields of stat(2)")]
pub struct Attr {
    pub ino: Ino,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub size: u64,
    pub blocks: u64,
    pub atime_ns: i64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
}

/// BLAKE3 of a chunk's raw bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkHash(pub [u8; 32]);

impl std::fmt::Debug for ChunkHash {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{self}")
    }
}

impl std::fmt::Display for ChunkHash {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_prints_as_64_hex_digits() {
        let mut raw = [0; 32];
        raw[0] = 0xab;
        raw[31] = 0x01;
        let text = ChunkHash(raw).to_string();
        assert_eq!(text.len(), 64);
        assert!(text.starts_with("ab00") && text.ends_with("0001"));
    }

    #[test]
    fn monotonic_time_does_not_go_back() {
        let first = monotonic_ns();
        assert!(monotonic_ns() >= first);
        assert!(now_ns() > 1_600_000_000_000_000_000);
    }
}
