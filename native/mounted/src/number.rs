//! Numbers of inodes and handles as the kernel gets them: which engine they belong to is in the
//! highest 16 bits, 0 for the volume's own. Numbers of inodes are smaller than 2^48: an engine takes
//! in no other (`InodeRow::check`). No process opens 2^48 handles.

use cowfs_base::{INO_BITS, Ino, LAST_INO, ROOT_INO};

/// One of the versions beside the volume, as long as the mount lives.
pub type Version = u16;

/// The volume's own engine.
pub(crate) const OWN: Version = 0;
/// No engine's: `.cowfs`, `.cowfs/versions`, and links in the latter.
pub(crate) const FOLDER: Version = Version::MAX;

/// The directory in the root of the mount.
pub const HIDDEN_NAME: &[u8] = b".cowfs";
/// The directory in `HIDDEN_NAME`.
pub(crate) const VERSIONS_DIR: &[u8] = b"versions";

pub(crate) const HIDDEN_INO: Ino = outer(FOLDER, 1);
pub(crate) const VERSIONS_INO: Ino = outer(FOLDER, 2);
pub(crate) const FIRST_LINK_INO: Ino = outer(FOLDER, 3);

/// The number that the kernel gets.
pub(crate) const fn outer(version: Version, number: u64) -> u64 {
    ((version as u64) << INO_BITS) | number
}

/// The version of a number, and the number there.
pub(crate) const fn inner(number: u64) -> (Version, u64) {
    ((number >> INO_BITS) as Version, number & LAST_INO)
}

pub(crate) const fn is_own(number: u64) -> bool {
    number >> INO_BITS == OWN as u64
}

/// Whether it is the root directory of a version beside the volume.
pub(crate) const fn is_version(ino: Ino) -> bool {
    let (version, ino) = inner(ino);
    ino == ROOT_INO && version != OWN && version != FOLDER
}
