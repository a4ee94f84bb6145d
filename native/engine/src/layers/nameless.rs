//! Files and directories without a name that programs still have open.
//!
//! They are in no version, and the kernel's references to them end with its connection. So they are
//! journaled only where another server may go on with the connection (`note_requests`):
//!
//! - The first record in each log says which connection it is (`Effect::Connection`). A replay drops
//!   what an earlier connection left without a name, and keeps what its own did.
//! - A log begun by a freeze or a checkpoint tells them anew (`carry_over`), since the logs before
//!   it go. One that cannot be told, because its content is not here or the disk is full, is gone
//!   for the next server: it gets `Effect::Gone`, and nothing more of it is journaled.
//! - Once nothing refers to one any more, the next record says so (`Effect::Gone`), and the next
//!   server need not keep it.
//! - If `Effect::Gone` cannot be written, each later record tries again. Until then the next server
//!   would have the inode as the older logs say, so a change of an inode that is left out fails.
//!
//! A server that goes on does not know how many references the kernel holds (`Away::is_unknown`).
//! The kernel gives back those to an inode without a name all at once, when it forgets the inode.

use std::collections::{BTreeSet, HashSet};

use cowfs_base::{Ino, Segment};
use cowfs_staging::Sum;

use crate::cookies::carry_cookies;
use crate::effect::Effect;
use crate::engine::{Disk, Engine};
use crate::error::Result;
use crate::inode::Inode;
use crate::state::State;

/// The most sums in one record.
const RECORD_SUMS: usize = 4096;

/// What the journal has of inodes without a name.
#[derive(Default)]
pub(crate) struct Nameless {
    /// The connection that the replayed records are of; 0: none said so.
    replayed: u64,
    /// The current log says which connection it is of.
    is_begun: bool,
    /// Destroyed or left out, and the journal does not say so yet.
    gone: Vec<Ino>,
    /// Not journaled, though they have no name.
    left_out: BTreeSet<Ino>,
}

impl State {
    /// Whether the journal gets the changes of an inode that is there.
    pub fn is_journaled(&self, ino: Ino) -> bool {
        let inode = self.inodes.get(ino);
        inode.is_some_and(|inode| {
            inode.nlink > 0
                || (self.requests.connection() != 0 && !self.nameless.left_out.contains(&ino))
        })
    }

    /// What the next record has to say in front of its own effects.
    pub fn effects_ahead(&self) -> Vec<Effect<'static>> {
        let connection = self.requests.connection();
        let begins = connection != 0 && !self.nameless.is_begun;
        let connection = begins.then_some(Effect::Connection(connection));
        let gone = self.nameless.gone.iter().map(|ino| Effect::Gone(*ino));
        connection.into_iter().chain(gone).collect()
    }

    /// Whether the journal still has an inode that is left out, as it was before.
    pub fn owes_gone(&self) -> bool {
        let gone = &self.nameless.gone;
        gone.iter().any(|ino| self.nameless.left_out.contains(ino))
    }

    /// The journal has `effects_ahead`.
    pub fn note_ahead(&mut self) {
        self.nameless.is_begun = self.requests.connection() != 0;
        self.nameless.gone.clear();
    }

    /// Records from here on are of this connection.
    pub fn begin_connection(&mut self, connection: u64) {
        if connection != self.nameless.replayed {
            self.destroy_nameless();
            self.nameless.replayed = connection;
        }
    }

    fn destroy_nameless(&mut self) {
        for ino in self.orphans.clone() {
            self.destroy(ino);
        }
    }

    /// An inode without a name is destroyed.
    pub fn note_gone(&mut self, ino: Ino) {
        if self.requests.connection() != 0 && !self.nameless.left_out.remove(&ino) {
            self.nameless.gone.push(ino);
        }
    }

    /// An inode has a name again, and all of it is journaled.
    pub fn note_named(&mut self, ino: Ino) {
        self.nameless.left_out.remove(&ino);
    }

    /// All records are applied: keeps the inodes without a name of this connection, and no others.
    pub fn end_replay(&mut self) {
        let connection = self.requests.connection();
        if connection == 0 || connection != self.nameless.replayed {
            self.destroy_nameless();
        }
        // A replay of the same records finds the same.
        self.nameless.gone.clear();
        for ino in self.orphans.clone() {
            let Some(inode) = self.inodes.get_mut(ino) else {
                continue;
            };
            inode.set_references(None);
            if let Some(directory) = inode.directory_mut() {
                directory.is_resident = true; // it was empty when it lost its name
            } else if inode.is_file() {
                // The kernel knows which ones may get a name.
                self.unnamed.insert(ino);
            }
        }
    }
}

/// Writes down in a journal just begun what those before it say about the kernel's requests, about
/// inodes without a name, and about positions in directories; `listed`: as `carry_cookies`.
pub(crate) fn carry_over(state: &mut State, disk: &Disk, listed: &HashSet<Ino>) {
    state.nameless.is_begun = false;
    // If the disk is full, a server that is killed right now may repeat a request.
    let _ = Engine::journal(state, &state.requests.unanswered());
    if state.requests.connection() == 0 {
        return;
    }
    carry_cookies(state, listed);
    let told = |ino: &Ino| !state.nameless.left_out.contains(ino);
    let all: Vec<Ino> = state.orphans.iter().copied().filter(told).collect();
    let has_sums = all.is_empty() || carry_sums(state, disk, &all).is_ok();
    for ino in all {
        if !has_sums || carry(state, ino).is_err() {
            state.nameless.gone.push(ino);
            state.nameless.left_out.insert(ino);
        }
    }
    if state.owes_gone() {
        // Otherwise with the next record.
        let _ = append(state, &[]);
    }
}

/// The checksums of the bytes that `carry` names.
fn carry_sums(state: &mut State, disk: &Disk, all: &[Ino]) -> Result<()> {
    let contents = all.iter().filter_map(|ino| state.inodes.get(*ino));
    let extents = contents
        .filter_map(|inode| inode.content.as_deref())
        .flat_map(|content| content.extents.iter())
        .filter(|extent| extent.chunk.is_none());
    let segments: BTreeSet<Segment> = extents
        .filter_map(|extent| extent.staged)
        .map(|staged| staged.segment())
        .collect();
    for segment in segments {
        let sums: Vec<Sum> = disk.staging.sums(segment).unwrap_or_default();
        for sums in sums.chunks(RECORD_SUMS) {
            let sums = sums.into();
            append(state, &[Effect::Sums { segment, sums }])?;
        }
    }
    Ok(())
}

/// One record with all of an inode: in part it would have wrong bytes. ENODATA if not all of it is
/// in memory.
fn carry(state: &mut State, ino: Ino) -> Result<()> {
    let Some(inode) = state.inodes.get(ino) else {
        return Ok(());
    };
    let (row, content) = (inode.row(), content_of(inode)?);
    let xattrs = content.map(|content| content.xattrs.pairs().to_vec());
    let mut effects = vec![Effect::PutInode(row)];
    if let Some(content) = content {
        effects.push(Effect::ClearXattrs(ino));
        effects.extend(
            xattrs
                .iter()
                .flatten()
                .map(|(name, value)| Effect::PutXattr { ino, name, value }),
        );
        let (from, to) = (0, u64::MAX);
        effects.push(Effect::Unmap { ino, from, to });
        let allocated = content.extents.allocated();
        effects.extend(allocated.map(|(from, to)| Effect::Allocate { ino, from, to }));
        effects.extend(content.extents.iter().map(|extent| Effect::Map {
            ino,
            extent: extent.clone(),
            crc: None,
        }));
    }
    append(state, &effects)
}

/// None: the row says that there is none. ENODATA: it is not here.
fn content_of(inode: &Inode) -> Result<Option<&crate::content::Content>> {
    match inode.content.as_deref() {
        None if inode.mapped_bytes() > 0 || inode.has_xattrs() => {
            Err(cowfs_base::Errno::ENODATA.into())
        }
        content => Ok(content),
    }
}

/// Writes one record, with what has to stand in front of it.
pub(crate) fn append(state: &mut State, effects: &[Effect<'_>]) -> Result<()> {
    let ahead = state.effects_ahead();
    Engine::journal(state, ahead.iter().chain(effects))?;
    state.note_ahead();
    Ok(())
}

impl Engine {
    /// The kernel refers to inodes of which this process has told it nothing: for a server that goes
    /// on with a connection. Call after `replay`.
    pub fn expect_earlier_references(&self) -> Result<()> {
        let mut state = self.fill()?;
        state.away.unknown_below = state.next_ino;
        let all: Vec<Ino> = state.inodes.iter().map(|inode| inode.ino).collect();
        for ino in all {
            if let Some(inode) = state.inodes.get_mut(ino) {
                inode.set_references(None);
            }
        }
        Ok(())
    }
}
