//! Ranges whose bytes the local disk has lost without a power loss. Either their segment is
//! missing when the journal is replayed, or they fail their checksum when a commit reads them
//! (`lose_unreadable`).
//!
//! The working copy opens all the same, and everything else in it is as it was. A lost range is an
//! extent that is neither staged nor in a chunk. Reads, copies and fsync of it give EIO, until it
//! is overwritten, cut off, or removed with its file. The journal records the loss durably.
//! Otherwise, after a power loss, the record that staged the range would be skipped and older
//! bytes would show.
//!
//! Nothing here publishes or repairs. Commits ask for `lost_files` and refuse.

use std::collections::{BTreeSet, HashSet};

use cowfs_base::{Ino, Segment};

use crate::changes::EXTENTS;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::error::Result;
use crate::extents::Extent;
use crate::state::State;

/// An inode, and the directory and name it has there.
pub type NamedInode = (Ino, Ino, Vec<u8>);

/// The most lost ranges in one record.
const RECORD_RANGES: usize = 4096;
/// A page: what a disk loses at least.
const PIECE_BYTES: u64 = 4096;

impl Engine {
    /// (inode, bytes lost) of each named file that has lost bytes.
    pub fn lost_files(&self) -> Result<Vec<(Ino, u64)>> {
        let state = self.read()?;
        let mut files: Vec<(Ino, u64)> = state
            .lost
            .iter()
            .filter(|ino| state.inodes.get(**ino).is_some_and(|inode| inode.nlink > 0))
            .map(|ino| (*ino, state.lost_bytes(*ino)))
            .filter(|(_, bytes)| *bytes > 0)
            .collect();
        files.sort_unstable();
        Ok(files)
    }

    /// Marks the staged bytes of a file that cannot be read, or fail their checksum, as lost;
    /// returns how many. Reads all of them, so call it only after a read of the file has failed. An
    /// error other than EIO (no free descriptor, say) tells nothing about the bytes: it is
    /// returned, and nothing is marked.
    pub fn lose_unreadable(&self, ino: Ino) -> Result<u64> {
        let staging = &self.disk()?.staging;
        let pieces: Vec<Extent> = {
            let state = self.read()?;
            let extents = state.content(ino)?.extents.iter();
            extents
                .filter(|extent| extent.chunk.is_none() && extent.staged.is_some())
                .flat_map(pieces)
                .collect()
        };
        let mut lost: Vec<Extent> = Vec::new();
        for piece in pieces {
            let Some(staged) = piece.staged else { continue };
            match staging.check(staged.segment(), staged.offset, piece.length) {
                Err(error) if is_loss(&error) => lost.push(piece),
                outcome => outcome?,
            }
        }
        let mut state = self.change()?;
        let mut effects: Vec<Effect<'static>> = Vec::new();
        for piece in &lost {
            let now = state
                .content(ino)?
                .extents
                .overlapping(piece.offset, piece.end());
            // Bytes written, moved or committed meanwhile are not the bytes that were read.
            let same = now.filter(|extent| extent.chunk.is_none() && extent.is_backed_as(piece));
            effects.extend(same.map(|extent| {
                let part = extent.clip(piece.offset, piece.end());
                Effect::lose(ino, part.offset, part.length)
            }));
        }
        for effects in effects.chunks(RECORD_RANGES) {
            Engine::record(&mut state, effects)?;
        }
        Ok(state.lost_bytes(ino))
    }

    /// A name of each of these inodes, as far as the directories in memory have one. Looks at every
    /// entry.
    pub fn names_of(&self, inodes: &[Ino]) -> Result<Vec<NamedInode>> {
        let mut wanted: HashSet<Ino> = inodes.iter().copied().collect();
        let mut found = Vec::new();
        let state = self.read()?;
        for inode in state.inodes.iter() {
            for (name, _, child) in inode.directory().into_iter().flat_map(|all| all.after(0)) {
                if wanted.remove(&child) {
                    found.push((child, inode.ino, name.to_vec()));
                }
            }
        }
        Ok(found)
    }
}

/// A checksum failure has a message and no error number.
fn is_loss(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), None | Some(libc::EIO))
}

/// Cuts an extent into pieces, so that few readable bytes are lost along with unreadable ones.
fn pieces(extent: &Extent) -> impl Iterator<Item = Extent> {
    let (from, end) = (extent.offset, extent.end());
    let starts = (from..end).step_by(PIECE_BYTES as usize);
    starts.map(move |at| extent.clip(at, at + PIECE_BYTES))
}

/// Marks ranges mapped in absent segments as lost, and journals that. Returns whether there were
/// any.
pub(crate) fn lose_missing(state: &mut State, present: &BTreeSet<Segment>) -> Result<bool> {
    let is_missing = |extent: &&Extent| {
        let staged = extent.staged.filter(|_| extent.chunk.is_none());
        staged.is_some_and(|staged| !present.contains(&staged.segment()))
    };
    let mut lost: Vec<Effect<'static>> = Vec::new();
    let is_marked = |ino: &Ino| state.changes.has(*ino, EXTENTS);
    let nameless = state.orphans.iter().copied();
    let nameless = nameless.filter(|ino| !is_marked(ino));
    for ino in state.changes.marked(EXTENTS).chain(nameless) {
        let inode = state.inodes.get(ino);
        let content = inode.and_then(|inode| inode.content.as_deref());
        let extents = content
            .into_iter()
            .flat_map(|content| content.extents.iter());
        let missing = extents.filter(is_missing);
        lost.extend(missing.map(|extent| Effect::lose(ino, extent.offset, extent.length)));
    }
    for effects in lost.chunks(RECORD_RANGES) {
        Engine::record(state, effects)?;
    }
    Ok(!lost.is_empty())
}

impl State {
    /// How many bytes of a file are lost.
    pub fn lost_bytes(&self, ino: Ino) -> u64 {
        if !self.lost.contains(&ino) {
            return 0;
        }
        let inode = self.inodes.get(ino);
        let content = inode.and_then(|inode| inode.content.as_deref());
        let extents = content
            .into_iter()
            .flat_map(|content| content.extents.iter());
        let lost = extents.filter(|extent| extent.is_lost());
        lost.map(|extent| extent.length).sum()
    }
}
