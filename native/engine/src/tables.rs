//! The tables of one mount in memory, and what of them differs from the last commit.
//!
//! ```text
//! state                                   everything in memory; applies effects
//! inode, directory, extents, content      the tables
//! changes, entry_set                      what differs from the last commit
//! ranges                                  a set of byte ranges
//! key_order                               pages of a table in the order of its keys
//! amount                                  how much there is, and may be
//! away                                    what was evicted
//! ```

pub(crate) mod amount;
pub(crate) mod away;
pub(crate) mod changes;
pub(crate) mod content;
pub(crate) mod directory;
pub(crate) mod entry_set;
pub(crate) mod extents;
pub(crate) mod inode;
pub(crate) mod key_order;
pub(crate) mod ranges;
pub(crate) mod state;
