//! The effects of an operation on the file system, and their encoding in the journal.
//!
//! An operation is a list of effects, written as one record and then applied; replay applies the
//! same list. Effects are absolute ("this inode's row is …"), so they mean the same on top of any
//! base version, whether or not it already has them.
//!
//! Record: version byte, then effects one after the other; numbers little-endian, fixed width. A
//! record leaves out values that follow from other effects (flags, mapped bytes). A record with an
//! effect that version 1 lacks has the version that introduced the effect (8: 2, 9: 3, 10 to 13: 4,
//! 14: 5, 15: 6, 16 and 17: 7, 18: 8). Any other record has version 1, so that an older build can read it.
//!
//! ```text
//! 1 put inode    ino u64, mode nlink uid gid rdev u32, size u64, atime mtime ctime i64 (ns), target (u16 length, bytes)
//! 2 put entry    parent u64, ino u64, name (u8 length, bytes)
//! 3 drop entry   parent u64, name
//! 4 map          ino u64, offset u64, length u64, segment u64, offset in it u64, crc32c of the bytes u32
//! 5 unmap        ino u64, from u64, to u64 (exclusive)
//! 6 put xattr    ino u64, name, value (u32 length, bytes)
//! 7 drop xattr   ino u64, name
//! 8 map chunk    ino u64, offset u64, length u64, chunk hash 32 bytes, pack u64, offset in it u64, stored length u32,
//!                raw length u32, codec u32, skip u32
//! 9 lose         ino u64, offset u64, length u64: mapped bytes that the local disk has not kept
//! 14 allocate    ino u64, from u64, to u64 (exclusive): the holes of the range count in st_blocks
//! 15 done        connection u64, unique u64, result u64: this request of the kernel is applied (`requests`)
//! 16 connection connection u64: records from here on are of this connection of the kernel (`nameless`)
//! 17 gone       ino u64: nothing refers any more to this inode, which has no name
//! 18 cookies     ino u64, count u32, for each: cookie u64, name: of these entries of a directory, and of no others, the
//!                cookie does not follow from name and inode (`cookies`)
//!
//! only where many records are said anew, in checkpoints and (11 to 13) for inodes without a name:
//! 10 remove inode   ino u64: it has no name any more
//! 11 clear xattrs   ino u64
//! 12 sums           segment u64, count u32, for each: offset u64, length u32, crc32c u32
//! 13 map summed     as map, without a checksum: sums before it in the file cover the bytes
//! ```
//!
//! Decoding treats its input as hostile: every length is checked, every unknown tag or version
//! refused.

use std::borrow::Cow;
use std::sync::Arc;

use cowfs_base::{ChunkHash, Ino, Segment};
use cowfs_staging::Sum;

use crate::extents::{Extent, Staged};
use crate::row::{ChunkRef, ExtentRow, InodeRow};

const VERSION: u8 = 1;
/// For records with chunks.
const VERSION_CHUNKS: u8 = 2;
/// For records with lost ranges.
const VERSION_LOST: u8 = 3;
/// For records of checkpoints.
const VERSION_CHECKPOINT: u8 = 4;
/// For records with allocated ranges.
const VERSION_ALLOCATED: u8 = 5;
/// For records with requests.
const VERSION_REQUESTS: u8 = 6;
/// For records about connections.
const VERSION_CONNECTIONS: u8 = 7;
/// For records with cookies.
const VERSION_COOKIES: u8 = 8;

/// One change of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect<'a> {
    PutInode(InodeRow),
    PutEntry {
        parent: Ino,
        name: &'a [u8],
        ino: Ino,
    },
    DropEntry {
        parent: Ino,
        name: &'a [u8],
    },
    /// In the journal an extent with a chunk has no `staged`, since staged bytes are then a cache.
    /// An extent with neither is lost: EIO until it is mapped or unmapped again. `crc`: of staged
    /// bytes alone; None in checkpoints, where `Sums` before it cover them.
    Map {
        ino: Ino,
        extent: Extent,
        crc: Option<u32>,
    },
    Unmap {
        ino: Ino,
        from: u64,
        to: u64,
    },
    /// The holes of the range were allocated.
    Allocate {
        ino: Ino,
        from: u64,
        to: u64,
    },
    PutXattr {
        ino: Ino,
        name: &'a [u8],
        value: &'a [u8],
    },
    DropXattr {
        ino: Ino,
        name: &'a [u8],
    },
    /// The inode has lost its last name.
    RemoveInode(Ino),
    ClearXattrs(Ino),
    /// Checksums of the bytes of a segment.
    Sums {
        segment: Segment,
        sums: Cow<'a, [Sum]>,
    },
    /// A request of the kernel is applied.
    Done {
        connection: u64,
        unique: u64,
        result: u64,
    },
    /// What follows is of this connection.
    Connection(u64),
    /// Nothing refers to this inode, which has no name.
    Gone(Ino),
    /// The cookies of a directory that are not natural.
    Cookies {
        ino: Ino,
        cookies: Vec<(Cow<'a, [u8]>, u64)>,
    },
}

impl Effect<'_> {
    /// The inode or directory it changes.
    pub fn subject(&self) -> Option<Ino> {
        Some(match self {
            Effect::Sums { .. } | Effect::Done { .. } => return None,
            Effect::Connection(_) | Effect::Gone(_) => return None,
            Effect::RemoveInode(ino) | Effect::ClearXattrs(ino) => *ino,
            Effect::PutInode(row) => row.ino,
            Effect::PutEntry { parent, .. } | Effect::DropEntry { parent, .. } => *parent,
            Effect::Map { ino, .. } | Effect::Unmap { ino, .. } => *ino,
            Effect::Allocate { ino, .. } => *ino,
            Effect::PutXattr { ino, .. } | Effect::DropXattr { ino, .. } => *ino,
            Effect::Cookies { ino, .. } => *ino,
        })
    }

    /// Bytes of a range lie in a segment, with this checksum.
    pub fn map(ino: Ino, offset: u64, length: u64, staged: Staged, crc: u32) -> Self {
        let extent = Extent::staged(offset, length, staged);
        let crc = Some(crc);
        Effect::Map { ino, extent, crc }
    }

    /// The bytes of a range are gone.
    pub fn lose(ino: Ino, offset: u64, length: u64) -> Self {
        let extent = Extent::lost(offset, length);
        let crc = None;
        Effect::Map { ino, extent, crc }
    }
}

/// Appends a record's version byte; `encode` its effects after it.
pub(crate) fn start_record() -> Vec<u8> {
    let mut record = Vec::with_capacity(256);
    record.push(VERSION);
    record
}

pub(crate) fn encode(effect: &Effect<'_>, record: &mut Vec<u8>) {
    let mut out = Writer(record);
    match effect {
        Effect::PutInode(row) => {
            out.u8(1)
                .u64(row.ino)
                .u32(row.mode)
                .u32(row.nlink)
                .u32(row.uid)
                .u32(row.gid)
                .u32(row.rdev)
                .u64(row.size);
            out.u64(row.atime_ns as u64)
                .u64(row.mtime_ns as u64)
                .u64(row.ctime_ns as u64);
            out.bytes(&(row.target.len() as u16).to_le_bytes())
                .bytes(&row.target);
        }
        Effect::PutEntry { parent, name, ino } => {
            out.u8(2).u64(*parent).u64(*ino).name(name);
        }
        Effect::DropEntry { parent, name } => {
            out.u8(3).u64(*parent).name(name);
        }
        Effect::Map { ino, extent, crc } => {
            match (&extent.chunk, extent.staged, crc) {
                (Some(_), _, _) => out.since(VERSION_CHUNKS, 8),
                (None, None, _) => out.since(VERSION_LOST, 9),
                (None, Some(_), Some(_)) => out.u8(4),
                (None, Some(_), None) => out.since(VERSION_CHECKPOINT, 13),
            };
            out.u64(*ino).u64(extent.offset).u64(extent.length);
            if let Some(chunk) = &extent.chunk {
                out.bytes(&chunk.hash.0).u64(chunk.pack).u64(chunk.offset);
                out.u32(chunk.stored_length).u32(chunk.raw_length);
                out.u32(chunk.codec).u32(extent.skip);
            } else if let Some(staged) = extent.staged {
                out.u64(staged.segment()).u64(staged.offset);
                if let Some(crc) = crc {
                    out.u32(*crc);
                }
            }
        }
        Effect::Unmap { ino, from, to } => {
            out.u8(5).u64(*ino).u64(*from).u64(*to);
        }
        Effect::Allocate { ino, from, to } => {
            out.since(VERSION_ALLOCATED, 14);
            out.u64(*ino).u64(*from).u64(*to);
        }
        Effect::PutXattr { ino, name, value } => {
            out.u8(6)
                .u64(*ino)
                .name(name)
                .u32(value.len() as u32)
                .bytes(value);
        }
        Effect::DropXattr { ino, name } => {
            out.u8(7).u64(*ino).name(name);
        }
        Effect::RemoveInode(ino) => {
            out.since(VERSION_CHECKPOINT, 10).u64(*ino);
        }
        Effect::ClearXattrs(ino) => {
            out.since(VERSION_CHECKPOINT, 11).u64(*ino);
        }
        Effect::Done {
            connection,
            unique,
            result,
        } => {
            out.since(VERSION_REQUESTS, 15);
            out.u64(*connection).u64(*unique).u64(*result);
        }
        Effect::Connection(connection) => {
            out.since(VERSION_CONNECTIONS, 16).u64(*connection);
        }
        Effect::Gone(ino) => {
            out.since(VERSION_CONNECTIONS, 17).u64(*ino);
        }
        Effect::Cookies { ino, cookies } => {
            out.since(VERSION_COOKIES, 18).u64(*ino);
            out.u32(cookies.len() as u32);
            for (name, cookie) in cookies {
                out.u64(*cookie).name(name);
            }
        }
        Effect::Sums { segment, sums } => {
            out.since(VERSION_CHECKPOINT, 12).u64(*segment);
            out.u32(sums.len() as u32);
            for sum in sums.iter() {
                out.u64(sum.offset).u32(sum.length).u32(sum.crc);
            }
        }
    }
}

/// The effects of one record, one after the other. An error comes last and describes the fault.
pub(crate) fn decode(record: &[u8]) -> Result<Effects<'_>, String> {
    let mut input = Reader(record);
    let version = input.u8()?;
    if !(VERSION..=VERSION_COOKIES).contains(&version) {
        return Err(format!("record version {version} is unknown"));
    }
    Ok(Effects { input, version })
}

pub(crate) struct Effects<'a> {
    input: Reader<'a>,
    version: u8,
}

impl<'a> Iterator for Effects<'a> {
    type Item = Result<Effect<'a>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.input.0.is_empty() {
            return None;
        }
        let effect = decode_effect(&mut self.input, self.version);
        if effect.is_err() {
            self.input.0 = &[];
        }
        Some(effect)
    }
}

fn decode_effect<'a>(input: &mut Reader<'a>, version: u8) -> Result<Effect<'a>, String> {
    Ok(match input.u8()? {
        1 => Effect::PutInode(decode_row(input)?),
        2 => {
            let (parent, ino) = (input.u64()?, input.u64()?);
            Effect::PutEntry {
                parent,
                name: input.name()?,
                ino,
            }
        }
        3 => Effect::DropEntry {
            parent: input.u64()?,
            name: input.name()?,
        },
        4 => {
            let (ino, extent) = decode_staged(input)?;
            let crc = Some(input.u32()?);
            Effect::Map { ino, extent, crc }
        }
        5 => Effect::Unmap {
            ino: input.u64()?,
            from: input.u64()?,
            to: input.u64()?,
        },
        6 => {
            let (ino, name) = (input.u64()?, input.name()?);
            let length = input.u32()? as usize;
            Effect::PutXattr {
                ino,
                name,
                value: input.take(length)?,
            }
        }
        7 => Effect::DropXattr {
            ino: input.u64()?,
            name: input.name()?,
        },
        8 if version >= VERSION_CHUNKS => decode_chunk(input)?,
        9 if version >= VERSION_LOST => Effect::lose(input.u64()?, input.u64()?, input.u64()?),
        tag @ 10..=13 if version >= VERSION_CHECKPOINT => decode_of_checkpoint(input, tag)?,
        14 if version >= VERSION_ALLOCATED => Effect::Allocate {
            ino: input.u64()?,
            from: input.u64()?,
            to: input.u64()?,
        },
        15 if version >= VERSION_REQUESTS => Effect::Done {
            connection: input.u64()?,
            unique: input.u64()?,
            result: input.u64()?,
        },
        16 if version >= VERSION_CONNECTIONS => Effect::Connection(input.u64()?),
        17 if version >= VERSION_CONNECTIONS => Effect::Gone(input.u64()?),
        18 if version >= VERSION_COOKIES => decode_cookies(input)?,
        tag => return Err(format!("effect {tag} is unknown")),
    })
}

fn decode_of_checkpoint<'a>(input: &mut Reader<'a>, tag: u8) -> Result<Effect<'a>, String> {
    Ok(match tag {
        10 => Effect::RemoveInode(input.u64()?),
        11 => Effect::ClearXattrs(input.u64()?),
        12 => {
            let (segment, count) = (input.u64()?, input.u32()?);
            // Not reserved: a damaged count may be anything.
            let mut sums = Vec::new();
            for _ in 0..count {
                let (offset, length, crc) = (input.u64()?, input.u32()?, input.u32()?);
                check_range(offset, length.into())?;
                sums.push(Sum {
                    offset,
                    length,
                    crc,
                });
            }
            Effect::Sums {
                segment,
                sums: sums.into(),
            }
        }
        _ => {
            let (ino, extent) = decode_staged(input)?;
            let crc = None;
            Effect::Map { ino, extent, crc }
        }
    })
}

fn decode_cookies<'a>(input: &mut Reader<'a>) -> Result<Effect<'a>, String> {
    let (ino, count) = (input.u64()?, input.u32()?);
    // Not reserved: a damaged count may be anything.
    let mut cookies = Vec::new();
    for _ in 0..count {
        let (cookie, name) = (input.u64()?, input.name()?);
        if cookie > i64::MAX as u64 {
            return Err(format!("the cookie {cookie} is impossible"));
        }
        cookies.push((name.into(), cookie));
    }
    Ok(Effect::Cookies { ino, cookies })
}

fn decode_staged(input: &mut Reader<'_>) -> Result<(Ino, Extent), String> {
    let (ino, offset, length) = (input.u64()?, input.u64()?, input.u64()?);
    let (segment, segment_offset) = (input.u64()?, input.u64()?);
    check_range(offset, length)?;
    check_range(segment_offset, length)?;
    let staged = Staged::new(segment, segment_offset).ok_or("segment 0 does not exist")?;
    Ok((ino, Extent::staged(offset, length, staged)))
}

fn check_range(offset: u64, length: u64) -> Result<(), String> {
    match offset.checked_add(length) {
        Some(_) => Ok(()),
        None => Err(format!(
            "{length} bytes at {offset} end behind every offset"
        )),
    }
}

fn decode_chunk<'a>(input: &mut Reader<'a>) -> Result<Effect<'a>, String> {
    let ino = input.u64()?;
    let row = ExtentRow {
        offset: input.u64()?,
        length: input.u64()?,
        chunk: ChunkRef {
            hash: ChunkHash(input.array()?),
            pack: input.u64()?,
            offset: input.u64()?,
            stored_length: input.u32()?,
            raw_length: input.u32()?,
            codec: input.u32()?,
        },
        skip: input.u32()?,
    };
    row.check()
        .map_err(|_| format!("an extent of inode {ino} is impossible"))?;
    let extent = Extent {
        offset: row.offset,
        length: row.length,
        staged: None,
        chunk: Some(Arc::new(row.chunk)),
        skip: row.skip,
    };
    let crc = None;
    Ok(Effect::Map { ino, extent, crc })
}

fn decode_row(input: &mut Reader<'_>) -> Result<InodeRow, String> {
    let row = InodeRow {
        ino: input.u64()?,
        mode: input.u32()?,
        nlink: input.u32()?,
        uid: input.u32()?,
        gid: input.u32()?,
        rdev: input.u32()?,
        size: input.u64()?,
        mapped_bytes: 0,
        atime_ns: input.u64()? as i64,
        mtime_ns: input.u64()? as i64,
        ctime_ns: input.u64()? as i64,
        flags: 0,
        target: {
            let length = usize::from(u16::from_le_bytes(input.array()?));
            input.take(length)?.into()
        },
    };
    row.check()
        .map_err(|_| format!("the row of inode {} is impossible", row.ino))?;
    Ok(row)
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    /// The tag of an effect that records have since this version.
    fn since(&mut self, version: u8, tag: u8) -> &mut Self {
        self.0[0] = self.0[0].max(version);
        self.u8(tag)
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn name(&mut self, name: &[u8]) -> &mut Self {
        debug_assert!(name.len() <= 255);
        self.u8(name.len() as u8).bytes(name)
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or("the record ends early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.take(N)
            .map(|bytes| bytes.try_into().expect("as many as asked for"))
    }

    fn u8(&mut self) -> Result<u8, String> {
        self.array().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    fn name(&mut self) -> Result<&'a [u8], String> {
        let length = usize::from(self.u8()?);
        let name = self.take(length)?;
        if name.is_empty() || name.contains(&0) {
            return Err("an impossible name".into());
        }
        Ok(name)
    }
}

#[cfg(test)]
#[path = "effect_tests.rs"]
mod tests;
