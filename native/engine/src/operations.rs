//! The file system's operations, one file for each family. Each records its effect before it
//! returns.

pub(crate) mod acl;
pub(crate) mod allocation;
pub(crate) mod attributes;
pub(crate) mod handle;
pub(crate) mod listing;
pub(crate) mod namespace;
pub(crate) mod quota;
pub(crate) mod read;
pub(crate) mod rename;
pub(crate) mod share;
pub(crate) mod write;
pub(crate) mod xattr;
