//! What comes in from the base version, and leaves again.
//!
//! ```text
//! residency     rows and chunks come in
//! ahead         what sequential readers will want
//! backing       whole files, for passthrough
//! evict         what can be loaded again leaves
//! reads         what was read, for profiles
//! ```

pub(crate) mod ahead;
pub(crate) mod backing;
pub(crate) mod evict;
pub(crate) mod reads;
pub(crate) mod residency;
