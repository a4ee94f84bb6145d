//! Ranges whose bytes the local disk has not kept, although no power was lost: their segment is missing when the journal is
//! replayed. They cost what was in them, not the working copy: it opens, everything else in it is as it was, and such a range
//! (an extent that is neither staged nor in a chunk) gives EIO to readers, copies and fsync until it is overwritten, cut off
//! or removed with its file. That it is lost stands in the journal from then on, durably: after a power loss the record that
//! staged it would be passed over, and older bytes would show.
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

/// So many lost ranges are named by one record.
const RECORD_RANGES: usize = 4096;

impl Engine {
    /// (inode, bytes lost) of each file with a name of which something is lost.
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

    /// A name of each of these inodes, as far as the directories in memory have one. Looks at every entry.
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

/// Marks what is mapped in segments that are not there as lost, and says so in the journal. Returns whether there was any.
pub(crate) fn lose_missing(state: &mut State, present: &BTreeSet<Segment>) -> Result<bool> {
    let is_missing = |extent: &&Extent| {
        let staged = extent.staged.filter(|_| extent.chunk.is_none());
        staged.is_some_and(|staged| !present.contains(&staged.segment()))
    };
    let mut lost: Vec<Effect<'static>> = Vec::new();
    for ino in state.changes.marked(EXTENTS) {
        let inode = state.inodes.get(ino);
        let content = inode.and_then(|inode| inode.content.as_deref());
        let extents = content
            .into_iter()
            .flat_map(|content| content.extents.iter());
        lost.extend(extents.filter(is_missing).map(|extent| Effect::Lose {
            ino,
            offset: extent.offset,
            length: extent.length,
        }));
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
