//! Written bytes on the local disk: syncs, space, and bytes that the disk has lost.
//!
//! ```text
//! durable                     fsync, and the consequences of a failed one
//! staged, survey              removable segments; live bytes of each segment
//! reclaim, punching           overwritten bytes are freed without a commit
//! relief, freeable            room on a full disk; how much there can be
//! lost, refused               bytes that the disk has lost, and mapped stores that it refused
//! ```

pub(crate) mod durable;
pub(crate) mod freeable;
pub(crate) mod lost;
pub(crate) mod punching;
pub(crate) mod reclaim;
pub(crate) mod refused;
pub(crate) mod relief;
pub(crate) mod staged;
pub(crate) mod survey;
