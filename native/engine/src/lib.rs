//! The in-memory file system of one mount: namespace, extents, handles, layers.
//!
//! It answers from memory and local disk only and knows no network, SQL, Python or FUSE bytes. It
//! names missing data (`Error::NotResident`); the caller loads them from the base version and calls
//! again. Every change is in the journal, and every written byte in staging, before the call that
//! made it returns.
//!
//! ```text
//! engine      opening, locks, one record per operation; error and row: its results and inputs
//! tables      everything in memory, and the changes since the last commit
//! operations  the operations of a file system
//! layers      freeze, commit, join; the journal's effects, its replay and checkpoints; a frozen layer, for a commit
//! disk        written bytes on the local disk: sync, space, loss
//! base        loading from the base version, and eviction
//! activity    lets maintenance threads sleep while nothing changes
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
pub(crate) use disk::{freeable, lost, punching, reclaim, refused, relief, staged, survey};
pub(crate) use layers::{
    checkpoint, cookies, effect, file_rows, nameless, recovery, requests, small_files,
};
pub(crate) use operations::{acl, attributes, handle, listing, namespace, read, rename, xattr};
pub(crate) use tables::{
    amount, away, changes, content, directory, entry_set, extents, inode, key_order, ranges, state,
};

pub use acl::{ACL_ACCESS, ACL_DEFAULT, is_acl, kept_acl, shown_acl};
pub use amount::HELD_XATTRS_MAX_BYTES;
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
pub use handle::HandleId;
pub use listing::DirectoryEntry;
pub use lost::NamedInode;
pub use punching::Punching;
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
pub use xattr::{
    XATTR_CREATE, XATTR_NAMES_MAX_BYTES, XATTR_REPLACE, XATTR_VALUE_MAX_BYTES,
    XATTR_VALUES_MAX_BYTES,
};
