//! What the local disk holds of written bytes: syncs, space, and bytes that the disk has not kept.
//!
//! ```text
//! durable                     fsync, and what a failed one leaves behind
//! staged, survey              segments that may go; what is live in which segment
//! reclaim, punching           overwritten bytes are given back without a commit
//! relief                      room on a full disk
//! lost, refused               bytes that the disk has lost, and mapped stores that it did not take
//! ```

pub(crate) mod durable;
pub(crate) mod lost;
pub(crate) mod punching;
pub(crate) mod reclaim;
pub(crate) mod refused;
pub(crate) mod relief;
pub(crate) mod staged;
pub(crate) mod survey;
