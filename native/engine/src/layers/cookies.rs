//! Positions in directories, so that a listing under way goes on with the next server.
//!
//! Entries whose cookies do not follow from name and inode (`Directory::moved`) keep them only in
//! memory. A replay applies the same changes to the same entries, and so gives them the same cookies
//! again, but only if it begins with those that the directory had then. It does not where a commit
//! or a checkpoint has taken the place of the renames. So where another server may go on with the
//! kernel's connection (`note_requests`), the journal gets such cookies, all of one directory in one
//! effect (`Effect::Cookies`):
//!
//! - in each log that a freeze or a checkpoint begins, those of directories that are open;
//! - those of another directory when it is opened. Until then, nobody knows them.
//!
//! Entries that are not in an effect, and all those of a checkpoint, have their natural cookies.

use std::borrow::Cow;
use std::collections::HashSet;

use cowfs_base::Ino;

use crate::directory::Directory;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::error::Result;
use crate::nameless;
use crate::state::State;

/// More entries of one directory are not told: a record has at most 64 MiB.
const TOLD_ENTRIES: usize = 1 << 17;

/// What a replay of the journal would find of cookies. Empty unless requests are noted.
#[derive(Default)]
pub(crate) struct Cookies {
    /// Directories with cookies that are not natural, and perhaps others.
    moved: HashSet<Ino>,
    /// Directories of which a log has an effect.
    told: HashSet<Ino>,
    /// Directories whose cookies may be others after a replay.
    untold: HashSet<Ino>,
    /// Directories that entries have left in the operation under way.
    left: Vec<Ino>,
}

impl State {
    /// An entry of the directory has changed.
    pub fn note_cookies(&mut self, ino: Ino, is_left: bool) {
        if is_left {
            self.cookies.left.push(ino);
        }
        if self.requests.connection() != 0
            && let Some(directory) = self.directory_of_mut(ino)
            && directory.has_moved()
        {
            self.cookies.moved.insert(ino);
        }
    }

    /// An operation is applied. Entries keep their cookies within one only: the next one may be in
    /// another log.
    pub fn end_operation(&mut self) {
        for ino in std::mem::take(&mut self.cookies.left) {
            if let Some(directory) = self.directory_of_mut(ino) {
                directory.end_change();
            }
        }
    }

    /// Replays an effect.
    pub fn set_cookies(&mut self, ino: Ino, cookies: &[(Cow<'_, [u8]>, u64)]) {
        if self.requests.connection() != 0 {
            self.cookies.told.insert(ino);
            self.cookies.moved.insert(ino);
        }
        let cookies = cookies.iter().map(|(name, cookie)| (&**name, *cookie));
        if let Some(directory) = self.directory_of_mut(ino) {
            directory.set_cookies(&cookies.collect());
        }
    }

    /// A checkpoint is replayed: it says nothing about cookies.
    pub fn end_checkpoint(&mut self) {
        for ino in std::mem::take(&mut self.cookies.moved) {
            if let Some(directory) = self.directory_of_mut(ino) {
                directory.set_cookies(&Default::default());
            }
        }
    }

    /// The entries of a directory leave memory, and come back with natural cookies.
    pub fn forget_cookies(&mut self, ino: Ino) {
        self.cookies.moved.remove(&ino);
        if self.cookies.told.contains(&ino) {
            self.cookies.untold.insert(ino);
        }
    }

    /// Whether `tell_cookies` is due before the directory is listed.
    pub fn has_untold_cookies(&self, ino: Ino) -> bool {
        self.cookies.untold.contains(&ino)
    }

    /// Writes down the cookies of a directory, as long as there is room on the disk.
    pub fn tell_cookies(&mut self, ino: Ino) {
        let outcome = self.write_cookies(ino);
        match outcome {
            Ok(()) => self.cookies.untold.remove(&ino),
            Err(_) => self.cookies.untold.insert(ino),
        };
    }

    fn write_cookies(&mut self, ino: Ino) -> Result<()> {
        let cookies = self.directory(ino)?.moved();
        let cookies: Vec<_> = cookies
            .map(|(name, cookie)| (Cow::Owned(name.to_vec()), cookie))
            .collect();
        if cookies.len() > TOLD_ENTRIES {
            return Err(cowfs_base::Errno::ENOSPC.into());
        }
        nameless::append(self, &[Effect::Cookies { ino, cookies }])?;
        self.cookies.told.insert(ino);
        Ok(())
    }
}

/// Writes down in a journal just begun what those before it say of directories that are open.
/// listed: those that an earlier server has opened, and perhaps others.
pub(crate) fn carry_cookies(state: &mut State, listed: &HashSet<Ino>) {
    for ino in std::mem::take(&mut state.cookies.moved) {
        let Some(inode) = state.inodes.get(ino).filter(|inode| inode.nlink > 0) else {
            continue;
        };
        if !inode.directory().is_some_and(Directory::has_moved) {
            continue;
        }
        let is_listed = inode.is_open() || listed.contains(&ino);
        state.cookies.moved.insert(ino);
        match is_listed {
            true => state.tell_cookies(ino),
            false => drop(state.cookies.untold.insert(ino)),
        }
    }
}

impl Engine {
    /// Directories that this server or an earlier one has opened, where there is a table.
    pub(crate) fn listed_directories(&self) -> HashSet<Ino> {
        self.handles.directories_in_table().collect()
    }
}
