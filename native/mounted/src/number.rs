//! Numbers of a mount's inodes. A node is an attachment and an inode there.
//!
//! ```text
//! node      attachment << 48 | inode: how the kernel names it, in each request and reply
//! st_ino    attachment << 37 + inode: what programs see, below 2^53, because some of them (Node,
//!           JSON) compute with doubles
//! ```
//!
//! Attachment 0 is the mount's own volume, whose nodes are its plain inodes in both. Others are
//! what is shown beside it. Inodes are smaller than 2^48: an engine takes in no other
//! (`InodeRow::check`). `st_ino` is unique in the mount as long as inodes are smaller than 2^37;
//! beyond that it is unique within its attachment.

use cowfs_base::{INO_BITS, Ino, LAST_INO, ROOT_INO};

/// A thing that the mount shows. Its number is given to another one once the kernel refers to
/// nothing of it.
pub type Attachment = u16;

/// The volume's own engine.
pub(crate) const OWN: Attachment = 0;
/// The last number of a version: `st_ino` of the largest inode there is below 2^53.
pub(crate) const LAST_VERSION: Attachment = u16::MAX - (1 << (INO_BITS - SHOWN_INO_BITS));
/// No engine's: `.cowfs`, `.cowfs/versions`, and links in the latter, one to each version.
pub(crate) const FOLDER: Attachment = Attachment::MAX;

/// The directory in the root of the mount.
pub const HIDDEN_NAME: &[u8] = b".cowfs";
/// The directory in `HIDDEN_NAME`.
pub(crate) const VERSIONS_DIR: &[u8] = b"versions";

pub(crate) const HIDDEN_INO: Ino = node_of(FOLDER, 1);
pub(crate) const VERSIONS_INO: Ino = node_of(FOLDER, 2);

const SHOWN_INO_BITS: u32 = 37;

/// How the kernel names an inode.
pub(crate) const fn node_of(attachment: Attachment, ino: Ino) -> u64 {
    ((attachment as u64) << INO_BITS) | ino
}

/// The attachment of a node, and its inode there.
pub(crate) const fn place_of(node: u64) -> (Attachment, Ino) {
    ((node >> INO_BITS) as Attachment, node & LAST_INO)
}

pub(crate) const fn is_own(node: u64) -> bool {
    node >> INO_BITS == OWN as u64
}

/// The link to a version.
pub(crate) const fn link_to(version: Attachment) -> u64 {
    VERSIONS_INO + version as u64
}

/// The version that a link leads to; None: it is no link.
pub(crate) fn version_of_link(node: u64) -> Option<Attachment> {
    let version = node.checked_sub(VERSIONS_INO)?;
    let version = Attachment::try_from(version).ok()?;
    (1..=LAST_VERSION).contains(&version).then_some(version)
}

/// Whether it is the root directory of a version beside the volume.
pub(crate) const fn is_version(node: u64) -> bool {
    let (attachment, ino) = place_of(node);
    ino == ROOT_INO && attachment != OWN && attachment != FOLDER
}

/// The number of a node that programs see.
pub const fn shown_ino(node: u64) -> u64 {
    let (attachment, ino) = place_of(node);
    ((attachment as u64) << SHOWN_INO_BITS) + ino
}

/// The node of a number that programs see, where inodes are below 2^37: for a server whose kernel
/// interface has one number for both.
pub const fn node_of_shown(shown: u64) -> u64 {
    let ino = shown & ((1 << SHOWN_INO_BITS) - 1);
    node_of((shown >> SHOWN_INO_BITS) as Attachment, ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_see_plain_inodes_and_never_more_than_53_bits() {
        for ino in [1, 2, 1 << 37, LAST_INO] {
            assert_eq!(shown_ino(ino), ino);
        }
        assert!(shown_ino(node_of(LAST_VERSION, LAST_INO)) < 1 << 53);
        assert!(shown_ino(link_to(LAST_VERSION)) < 1 << 53);
        let links = [HIDDEN_INO, VERSIONS_INO, link_to(1), link_to(LAST_VERSION)];
        let versions = links.map(version_of_link);
        assert_eq!(versions, [None, None, Some(1), Some(LAST_VERSION)]);
        assert_eq!(version_of_link(node_of(OWN, 5)), None);
        let seen = [OWN, 1, 2, LAST_VERSION, FOLDER].map(|attachment| {
            let nodes = [1, 2, (1 << 37) - 1].map(|ino| node_of(attachment, ino));
            assert_eq!(nodes, nodes.map(|node| node_of_shown(shown_ino(node))));
            nodes.map(shown_ino)
        });
        assert!(seen.as_flattened().is_sorted_by(|one, next| one < next));
    }
}
