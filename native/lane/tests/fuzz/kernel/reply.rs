//! The kernel's view of a reply: its header, and the references that it counts.

use cowfs_fuse_abi::{REPLY_HEADER_BYTES, opcode};

const ENTRY_BYTES: usize = 128;
const DIRENT_BYTES: usize = 24;
const ENTRY_ATTR_AT: usize = 40;
const ATTR_REPLY_AT: usize = 16;
/// In attributes; the group follows.
const UID_AT: usize = 68;

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

/// User and group of each inode that a reply has attributes of; whom an ACL names, as both.
pub fn reply_owners(number: u32, body: &[u8]) -> Vec<(u32, u32)> {
    if number == opcode::READDIRPLUS {
        let entries = listed_entries(body).into_iter();
        return entries.filter_map(|(_, entry)| owner(entry)).collect();
    }
    if number == opcode::GETXATTR {
        return acl_names(body);
    }
    let attributes = match number {
        opcode::GETATTR | opcode::SETATTR => body.get(ATTR_REPLY_AT..),
        _ => reply_node(number, body).and(body.get(ENTRY_ATTR_AT..)),
    };
    attributes.and_then(owner_in).into_iter().collect()
}

fn acl_names(value: &[u8]) -> Vec<(u32, u32)> {
    let (entries, rest) = value.get(4..).unwrap_or(&[]).as_chunks::<8>();
    if value.get(..4) != Some(&[2, 0, 0, 0]) || !rest.is_empty() {
        return Vec::new();
    }
    let named = entries.iter().filter(|entry| matches!(entry[0], 2 | 8));
    let ids = named.map(|[.., a, b, c, d]| u32::from_le_bytes([*a, *b, *c, *d]));
    ids.map(|id| (id, id)).collect()
}

fn owner(entry: &[u8]) -> Option<(u32, u32)> {
    entry.get(ENTRY_ATTR_AT..).and_then(owner_in)
}

fn owner_in(attributes: &[u8]) -> Option<(u32, u32)> {
    let number = |at: usize| Some(u32::from_le_bytes(*attributes.get(at..)?.first_chunk()?));
    Some((number(UID_AT)?, number(UID_AT + 4)?))
}

/// The inodes whose counts a READDIRPLUS reply raises.
pub fn listed_nodes(body: &[u8]) -> Vec<u64> {
    let entries = listed_entries(body).into_iter();
    entries.map(|(node, _)| node).collect()
}

/// Node and entry of what a READDIRPLUS reply lists, but for "." and "..".
fn listed_entries(body: &[u8]) -> Vec<(u64, &[u8])> {
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
            nodes.push((node, entry));
        }
        rest = rest
            .get(name_at + (length as usize).next_multiple_of(8)..)
            .unwrap_or(&[]);
    }
    nodes
}
