//! Why a call could not be answered.

use cowfs_base::Errno;

use crate::number::{Attachment, OWN};

/// Result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// The data that must be there before a call can be answered. The caller provides it and calls
/// again.
#[derive(Debug, Clone)]
pub enum Missing {
    /// Something that an engine lacks; 0: the volume's.
    Of(Attachment, cowfs_engine::Missing),
    /// The engine of the version with this id: `Mounted::open_version`.
    Closed(Attachment, Vec<u8>),
    /// The target of a name in `.cowfs/versions`: `Mounted::name_version`, or the call must fail.
    Name(Vec<u8>),
    /// The names in `.cowfs/versions`: `Mounted::list_versions`.
    Names,
}

impl Missing {
    /// In a word.
    pub fn name(&self) -> &'static str {
        match self {
            Missing::Of(_, missing) => missing.name(),
            Missing::Closed(..) => "closed",
            Missing::Name(_) => "name",
            Missing::Names => "names",
        }
    }
}

/// Every way a call ends without an answer: as the engine's.
#[derive(Debug, Clone)]
pub enum Error {
    /// As a system call would fail.
    Os(Errno),
    /// Something is not here.
    NotResident(Missing),
    /// As `cowfs_engine::Error::JournalCorrupt`.
    JournalCorrupt(String),
}

impl Error {
    /// An error of the engine of an attachment.
    pub(crate) fn of(attachment: Attachment, error: cowfs_engine::Error) -> Error {
        match error {
            cowfs_engine::Error::Os(errno) => Error::Os(errno),
            cowfs_engine::Error::NotResident(missing) => {
                Error::NotResident(Missing::Of(attachment, missing))
            }
            cowfs_engine::Error::JournalCorrupt(reason) => Error::JournalCorrupt(reason),
        }
    }
}

impl From<cowfs_engine::Error> for Error {
    fn from(error: cowfs_engine::Error) -> Error {
        Error::of(OWN, error)
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        Error::Os(errno)
    }
}
