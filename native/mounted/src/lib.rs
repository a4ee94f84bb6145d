//! What a mount shows: the engine of its volume, and other versions of the volume to look at, each
//! with a read-only engine of its own, under `.cowfs/versions`.
//!
//! ```text
//! mounted      calls about files, each to the engine that its node belongs to
//! attachments  the versions beside the volume, and their engines, which come and go
//! folder       the directories `.cowfs` and `.cowfs/versions`, which no engine has
//! number       which attachment and inode a node is, and the number that programs see
//! error        why a call could not be answered
//! ```
//!
//! Nothing of this is ever part of a volume: a change below `.cowfs` is EROFS, and callers of the
//! volume's own engine, such as commits and uploads, never see it. A volume that has an entry
//! `.cowfs` of its own keeps it, and its mount shows that one.
//!
//! A mount whose versions are not viewed pays one comparison of a number per call.

mod attachments;
mod error;
mod folder;
mod mounted;
mod number;

pub use error::{Error, Missing, Result};
pub use folder::Target;
pub use mounted::Mounted;
pub use number::{Attachment, HIDDEN_NAME, node_of_shown, shown_ino};
