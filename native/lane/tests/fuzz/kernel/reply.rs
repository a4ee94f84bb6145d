//! What the kernel sees in a reply: its header, and what it counts.

use cowfs_fuse_abi::{REPLY_HEADER_BYTES, opcode};

const ENTRY_BYTES: usize = 128;
const DIRENT_BYTES: usize = 24;

/// Error and number of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHeader {
    pub error: i32,
    pub unique: u64,
}

impl ReplyHeader {
    /// Header and body of one whole reply; None unless its length is that of `message`.
    pub fn parse(message: &[u8]) -> Option<(ReplyHeader, &[u8])> {
        let length = u32::from_le_bytes(*message.first_chunk()?);
        let error = i32::from_le_bytes(*message.get(4..)?.first_chunk()?);
        let unique = u64::from_le_bytes(*message.get(8..)?.first_chunk()?);
        let body = message.get(REPLY_HEADER_BYTES..)?;
        (length as usize == message.len()).then_some((ReplyHeader { error, unique }, body))
    }
}

/// The inode whose count the reply to such a request raises.
pub fn reply_node(number: u32, body: &[u8]) -> Option<u64> {
    let has_entry = matches!(
        number,
        opcode::LOOKUP
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::SYMLINK
            | opcode::LINK
            | opcode::CREATE
            | opcode::TMPFILE
    );
    let node = u64::from_le_bytes(*body.first_chunk()?);
    (has_entry && body.len() >= ENTRY_BYTES && node != 0).then_some(node)
}

/// The handle that the reply to such a request opens.
pub fn reply_file_handle(number: u32, body: &[u8]) -> Option<u64> {
    let at = match number {
        opcode::OPEN | opcode::OPENDIR => 0,
        opcode::CREATE | opcode::TMPFILE => ENTRY_BYTES,
        _ => return None,
    };
    Some(u64::from_le_bytes(*body.get(at..)?.first_chunk()?))
}

/// The inodes whose counts a READDIRPLUS reply raises.
pub fn listed_nodes(body: &[u8]) -> Vec<u64> {
    let mut nodes = Vec::new();
    let mut rest = body;
    while let Some(entry) = rest.get(..ENTRY_BYTES + DIRENT_BYTES) {
        let (Some(node), Some(length)) = (
            entry.first_chunk().copied().map(u64::from_le_bytes),
            entry[ENTRY_BYTES + 16..]
                .first_chunk()
                .copied()
                .map(u32::from_le_bytes),
        ) else {
            break;
        };
        let name_at = ENTRY_BYTES + DIRENT_BYTES;
        let Some(name) = rest
            .get(name_at..)
            .and_then(|behind| behind.get(..length as usize))
        else {
            break;
        };
        if node != 0 && name != b"." && name != b".." {
            nodes.push(node);
        }
        rest = rest
            .get(name_at + (length as usize).next_multiple_of(8)..)
            .unwrap_or(&[]);
    }
    nodes
}
