//! Checksums of a chunk's blocks: each read of a part is checked at the cost of the blocks that it
//! touches.
//!
//! Segments are never synced, and the kernel may lose pages that it could not write and read zeros
//! later. That a file was written or verified a moment ago proves nothing.

use std::fs::File;
use std::io::IoSliceMut;

use rustix::io::preadv;

/// A page: a random read of 4 KiB takes 3 µs instead of 2, where blocks of 16 KiB take 11; half a
/// KiB of sums for an average chunk.
pub const BLOCK_BYTES: u64 = 4 << 10;
const BLOCK: usize = BLOCK_BYTES as usize;

/// crc32c of each block of a chunk; the last block may be short.
#[derive(Clone, Default)]
pub struct BlockSums(Box<[u32]>);

impl BlockSums {
    pub fn of(data: &[u8]) -> BlockSums {
        BlockSums(data.chunks(BLOCK).map(crc32c::crc32c).collect())
    }

    /// It has none: of a chunk without bytes, or not computed yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn from_bytes(bytes: &[u8]) -> BlockSums {
        let (sums, _) = bytes.as_chunks();
        BlockSums(sums.iter().map(|sum| u32::from_le_bytes(*sum)).collect())
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|sum| sum.to_le_bytes()).collect()
    }

    /// Fills `buffer` from `skip` on, which lies in the `raw_len` bytes of the chunk, which begins
    /// at `start` in the file; false when it cannot be read or a block that it touches is not what
    /// was stored.
    pub fn read(
        &self,
        file: &File,
        start: u64,
        raw_len: u64,
        skip: u64,
        buffer: &mut [u8],
    ) -> bool {
        if buffer.is_empty() {
            return true;
        }
        // The rest of the first and last block.
        let end = skip + buffer.len() as u64;
        let before = (skip % BLOCK_BYTES) as usize;
        let behind = (end.next_multiple_of(BLOCK_BYTES).min(raw_len) - end) as usize;
        let mut edges = [0; 2 * BLOCK];
        let (head, tail) = edges.split_at_mut(BLOCK);
        let (head, tail) = (&mut head[..before], &mut tail[..behind]);
        if !read_all(file, start + skip - before as u64, [head, buffer, tail]) {
            return false;
        }
        let first = (skip / BLOCK_BYTES) as usize;
        let Some(sums) = self.0.get(first..) else {
            return false;
        };
        blocks_match([head, buffer, tail], sums)
    }
}

/// Fills the parts one behind the other from one place of the file.
fn read_all(file: &File, offset: u64, parts: [&mut [u8]; 3]) -> bool {
    let wanted: usize = parts.iter().map(|part| part.len()).sum();
    let mut slices = parts.map(IoSliceMut::new);
    let mut left = &mut slices[..];
    let mut done = 0;
    while done < wanted {
        match preadv(file, left, offset + done as u64) {
            Ok(0) => return false,
            Ok(count) => {
                done += count;
                IoSliceMut::advance_slices(&mut left, count);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Whether the parts, concatenated from the start of a block on, have these sums.
fn blocks_match(parts: [&[u8]; 3], sums: &[u32]) -> bool {
    let mut sums = sums.iter();
    let (mut crc, mut room) = (0, BLOCK);
    for mut part in parts {
        while !part.is_empty() {
            let (now, rest) = part.split_at(part.len().min(room));
            crc = crc32c::crc32c_append(crc, now);
            (part, room) = (rest, room - now.len());
            if room == 0 {
                if sums.next() != Some(&crc) {
                    return false;
                }
                (crc, room) = (0, BLOCK);
            }
        }
    }
    room == BLOCK || sums.next() == Some(&crc)
}
