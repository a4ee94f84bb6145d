//! Why a call could not be answered.

use std::ops::Range;
use std::sync::Arc;

use cowfs_base::{Errno, Ino, faults};

use crate::row::ChunkRef;

/// Result of an engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// The data that must be loaded before a call can be answered. The caller loads it and calls again.
#[derive(Debug, Clone)]
pub enum Missing {
    /// An inode that was evicted, or that only a number names; there may be none of that number.
    Inode(Ino),
    /// Which directory a directory is in.
    Parent(Ino),
    /// The entries of a directory with their inodes.
    Directory(Ino),
    /// Extents and extended attributes of an inode.
    Content {
        /// The inode.
        ino: Ino,
        /// The bytes that the call reads: `absent_chunks` names what else it needs, once the
        /// extents are here. Empty: none.
        wanted: Range<u64>,
    },
    /// A file put together from its chunks, which seem to be here: `assemble_file`.
    File(Ino),
    /// Chunks of a file.
    Chunks {
        /// The file.
        ino: Ino,
        /// The chunks that this call needs.
        needed: Vec<Arc<ChunkRef>>,
    },
}

impl Missing {
    /// In a word.
    pub fn name(&self) -> &'static str {
        match self {
            Missing::Inode(_) => "inode",
            Missing::Parent(_) => "parent",
            Missing::Directory(_) => "directory",
            Missing::Content { .. } => "content",
            Missing::File(_) => "file",
            Missing::Chunks { .. } => "chunks",
        }
    }
}

/// Every way an engine call ends without an answer.
#[derive(Debug, Clone)]
pub enum Error {
    /// As a system call would fail.
    Os(Errno),
    /// Something is not in memory.
    NotResident(Missing),
    /// The journal has an invalid record with valid ones behind it, or one that cannot be applied.
    /// No file was changed.
    JournalCorrupt(String),
}

impl Error {
    /// EIO, with a noted reason.
    pub(crate) fn fault(reason: impl std::fmt::Display) -> Error {
        faults::note(reason);
        Error::Os(Errno::EIO)
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        Error::Os(errno)
    }
}

impl From<std::io::Error> for Error {
    /// An error with a message is noted, since only the number is passed on.
    fn from(error: std::io::Error) -> Error {
        if error.raw_os_error().is_none() {
            faults::note(&error);
        }
        Error::Os(error.into())
    }
}

impl From<cowfs_journal::JournalError> for Error {
    fn from(error: cowfs_journal::JournalError) -> Error {
        match error {
            cowfs_journal::JournalError::Io(error) => error.into(),
            other => Error::JournalCorrupt(other.to_string()),
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Os(errno) => write!(formatter, "{errno}"),
            Error::NotResident(missing) => write!(formatter, "not resident: {missing:?}"),
            Error::JournalCorrupt(reason) => write!(formatter, "corrupt journal: {reason}"),
        }
    }
}

impl std::error::Error for Error {}
