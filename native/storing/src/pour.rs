//! Blobs into the memory of a pack that is being made, as `cowfs/format/pack.py` lays it out.

use cowfs_chunking::{Pack, Place};

use crate::{Batch, State, codec_of};

/// The kind of blob that data packs have.
const CHUNK: u8 = 1;

/// The blobs appended to a pack.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Poured {
    /// Bytes of blobs.
    pub length: usize,
    /// Their entries.
    pub directory: Vec<u8>,
}

impl Batch {
    /// Whether every chunk has a place, now that all were found or compressed.
    pub fn is_poured(&self) -> bool {
        let mut left = self.chunks[self.next..].iter();
        left.all(|chunk| matches!(chunk.state, State::Placed { .. }))
    }

    /// Appends chunks that have no place yet to a pack, at `offset` of it, until blobs and entries
    /// have `target` bytes, or `room` has no room. `head`, `tail`: left free before and behind
    /// each.
    pub fn pour(
        &mut self,
        pack: &Pack,
        offset: u32,
        room: &mut [u8],
        target: usize,
        (head, tail): (usize, usize),
    ) -> Poured {
        let mut poured = Poured::default();
        while let Some(chunk) = self.chunks.get_mut(self.next) {
            let State::Ready(stored) = &chunk.state else {
                self.next += 1;
                continue;
            };
            let raw = &self.bytes[chunk.at..chunk.at + chunk.length];
            let data = stored.as_deref().unwrap_or(raw);
            let length = head + data.len() + tail;
            let is_full = poured.length + poured.directory.len() >= target;
            let Some(space) = room.get_mut(poured.length..poured.length + length) else {
                break;
            };
            if is_full {
                break;
            }
            space[..head].fill(0);
            space[head..head + data.len()].copy_from_slice(data);
            space[head + data.len()..].fill(0);
            let place = Place {
                pack: *pack,
                offset: offset + poured.length as u32,
                stored_length: length as u32,
                raw_length: chunk.length as u32,
                codec: codec_of(stored.as_ref()),
            };
            push_entry(&mut poured.directory, &chunk.hash, &place);
            poured.length += length;
            chunk.state = State::Placed {
                place,
                is_fresh: true,
                is_told: false,
            };
            self.next += 1;
        }
        poured
    }
}

fn push_entry(directory: &mut Vec<u8>, hash: &[u8; 32], place: &Place) {
    directory.extend_from_slice(hash);
    for number in [place.offset, place.stored_length, place.raw_length] {
        directory.extend_from_slice(&number.to_be_bytes());
    }
    directory.extend_from_slice(&[place.codec, CHUNK, 0, 0]);
}
