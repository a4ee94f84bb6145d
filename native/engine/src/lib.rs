//! The in-memory file system of one mount: namespace, extents, handles, layers.
//!
//! It answers from memory and local disk only and knows no network, SQL, Python or FUSE bytes. What
//! it has not got it names (`Error::NotResident`); the caller loads it from the base version and
//! asks again. Every change is in the journal, and every written byte in staging, before the call
//! that made it returns.
//!
//! ```text
//! engine      opening, locks, one record per operation; error and row: what it answers and takes
//! tables      everything in memory, and what of it differs from the last commit
//! operations  those of a file system
//! layers      freeze, commit, join; the journal's effects, its replay and checkpoints; a frozen layer, for a commit
//! disk        what the local disk holds, loses and gives back
//! base        what comes in from the base version, and leaves again
//! activity    lets upkeep sleep while nothing changes
//! interlude   a place for tests between the halves of an operation
//! ```

mod activity;
mod base;
mod disk;
mod engine;
mod error;
mod interlude;
mod layers;
mod operations;
mod row;
mod tables;

// The folders are for readers; inside of the crate every module goes by its own name.
pub(crate) use base::{ahead, backing, evict, reads};
pub(crate) use disk::{lost, reclaim, refused, relief, staged, survey};
pub(crate) use layers::{checkpoint, effect, file_rows, recovery, small_files};
pub(crate) use operations::{acl, attributes, handle, listing, namespace, read, rename, xattr};
pub(crate) use tables::{
    amount, away, changes, content, directory, entry_set, extents, inode, key_order, state,
};

pub use acl::{ACL_ACCESS, ACL_DEFAULT, is_acl, kept_acl, shown_acl};
pub use attributes::{AttrChange, Clears, depends_on_groups};
pub use backing::LocalFile;
pub use checkpoint::CHECKPOINT_BYTES;
pub use content::{ContentRows, XattrPair};
pub use cowfs_base::Attr;
pub use cowfs_cache::Lent;
pub use cowfs_staging::SEGMENT_BYTES;
pub use engine::{Engine, Options};
pub use error::{Error, Missing, Result};
pub use file_rows::{FileContent, FileRows, Record};
pub use listing::DirectoryEntry;
pub use lost::NamedInode;
pub use read::ReadBytes;
pub use reads::ReadRange;
pub use recovery::Recovery;
pub use refused::RefusedStore;
pub use rename::{RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT};
pub use row::{
    Caller, ChunkRef, ExtentRow, INODE_HAS_XATTRS, InodeRow, LayerExtent, NAME_MAX_BYTES,
    SIZE_MAX_BYTES, TARGET_MAX_BYTES,
};
pub use small_files::{SmallContent, SmallFile, SmallFiles};
pub use state::DIRECTORY_RUN;
pub use xattr::{XATTR_CREATE, XATTR_REPLACE, XATTR_VALUE_MAX_BYTES};
