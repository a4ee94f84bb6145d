//! What a mount shows: the engine of its volume, and other versions of the volume to look at, each
//! with a read-only engine of its own, under `.cowfs/versions`.
//!
//! ```text
//! mounted  calls about files, each to the engine that its number belongs to
//! versions the engines beside the volume's; they come and go
//! folder   the directories `.cowfs` and `.cowfs/versions`, which no engine has
//! number   which engine an inode or a handle belongs to
//! error    why a call could not be answered
//! ```
//!
//! Nothing of this is ever part of a volume: a change below `.cowfs` is EROFS, and callers of the
//! volume's own engine, such as commits and uploads, never see it. A volume that has an entry
//! `.cowfs` of its own keeps it, and its mount shows that one.
//!
//! A mount whose versions are not viewed pays one comparison of a number per call.

mod error;
mod folder;
mod mounted;
mod number;
mod versions;

pub use error::{Error, Missing, Result};
pub use folder::Target;
pub use mounted::Mounted;
pub use number::{HIDDEN_NAME, Version};
