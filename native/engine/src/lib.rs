//! The in-memory file system of one mount: namespace, extents, handles, layers.
//!
//! It answers from memory and local disk only and knows no network, SQL, Python or FUSE bytes. What it has not got it names
//! (`Error::NotResident`); the caller loads it from the base version and asks again. Every change is in the journal, and
//! every written byte in staging, before the call that made it returns.
//!
//! ```text
//! engine      opening, locks, one record per operation      layers     freeze, commit, join
//! layer_pages, key_order      a frozen layer, for a commit  file_rows  what the commit has made of its files
//! state       everything in memory; applies effects         recovery   what the journal needs, replay
//! durable     fsync, and what a failed one leaves behind
//! effect      one change, and its spelling in the journal   residency  rows and chunks of the base version come in
//! changes     what differs from the last commit             staged     segments that may go, quiet files
//! reclaim     overwritten bytes, without a commit           lost       bytes that the local disk has not kept
//! checkpoint  long journals, without a commit               survey     what is live in which segment
//! entry_set   the set of entries changed in a layer         evict, away     what can be loaded again leaves
//! refused     mapped stores that could not be staged
//! inode, directory, extents, content                        the tables
//! activity    lets upkeep sleep while nothing changes
//! interlude   a place for tests between the halves of an operation
//! namespace, rename, attributes, handle, read, write, allocation, share, listing, xattr        the operations
//! ```

mod activity;
mod ahead;
mod allocation;
mod attributes;
mod away;
mod backing;
mod changes;
mod checkpoint;
mod content;
mod directory;
mod durable;
mod effect;
mod engine;
mod entry_set;
mod error;
mod evict;
mod extents;
mod file_rows;
mod handle;
mod inode;
mod interlude;
mod key_order;
mod layer_pages;
mod layers;
mod listing;
mod lost;
mod namespace;
mod punching;
mod read;
mod reclaim;
mod recovery;
mod refused;
mod relief;
mod rename;
mod residency;
mod row;
mod share;
mod staged;
mod state;
mod survey;
mod write;
mod xattr;

pub use attributes::{AttrChange, Clears, depends_on_groups};
pub use backing::LocalFile;
pub use checkpoint::CHECKPOINT_BYTES;
pub use content::XattrPair;
pub use cowfs_staging::SEGMENT_BYTES;
pub use engine::{Engine, Options};
pub use error::{Error, Missing, Result};
pub use file_rows::{FileContent, FileRows};
pub use listing::DirectoryEntry;
pub use lost::NamedInode;
pub use recovery::Recovery;
pub use refused::RefusedStore;
pub use rename::{RENAME_EXCHANGE, RENAME_NOREPLACE};
pub use row::{
    Attr, CODEC_RAW, CODEC_ZSTD, Caller, ChunkRef, ExtentRow, INODE_HAS_XATTRS, InodeRow,
    LayerExtent, NAME_MAX_BYTES, SIZE_MAX_BYTES, TARGET_MAX_BYTES,
};
pub use xattr::{XATTR_CREATE, XATTR_REPLACE, XATTR_VALUE_MAX_BYTES};
