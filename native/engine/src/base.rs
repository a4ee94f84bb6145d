//! Data of the base version: loading it, and evicting it again.
//!
//! ```text
//! residency     rows and chunks come in
//! ahead         read-ahead for sequential readers
//! backing       whole files, for passthrough
//! evict         drops rows that can be loaded again
//! reads         notes which ranges are read, for profiles
//! ```

pub(crate) mod ahead;
pub(crate) mod backing;
pub(crate) mod evict;
pub(crate) mod reads;
pub(crate) mod residency;
