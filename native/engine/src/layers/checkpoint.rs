//! Checkpoints of the journal: a checkpoint replaces all records so far by the state they lead to.
//! So journal and recovery of a mount that lives for months are as long as its uncommitted
//! changes, not as its history.
//!
//! ```text
//! sync what is staged            without a lock: most of the bytes
//! journal goes on in a new file  records from here on belong to the next layer
//! snapshot                       the keys of all changes are copied; old values are saved when they change, as for a commit
//! sync what was staged since     nothing older is left that could show again, so every byte that is named must be durable
//! write, a piece at a time       rows, entries, contents; writers go on in between
//! finish                         durable, then named: from here on it counts, and the logs it stands for are deleted
//! ```
//!
//! After an error or a crash before the end, the logs are all there and say the same. While a
//! commit is under way, its layer keeps its logs, and the checkpoint stands for the layers behind
//! it. A commit that is about to begin or end does not wait: the checkpoint stops, unless it has
//! been due for long.
//!
//! Threads: one at a time, by `Disk::layers`. Not for threads that answer requests: it waits for
//! the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use cowfs_base::failpoints::hit;
use cowfs_base::sync::{MutexGuard, RwLockUpgradableReadGuard};
use cowfs_base::{Errno, Ino, Layer, Segment};
use cowfs_journal::{Checkpoint, Journal};
use cowfs_staging::Sum;

use crate::changes::{Changes, EXTENTS, EntryAt, Frozen, XATTRS};
use crate::effect::{self, Effect};
use crate::engine::{Disk, Engine};
use crate::error::Result;
use crate::nameless::carry_over;
use crate::staged::needed_segments;
use crate::state::State;

/// A journal shorter than this is replayed in about a second.
pub const CHECKPOINT_BYTES: u64 = 64 << 20;
/// How much is encoded while the state is locked.
const PIECE_BYTES: usize = 64 << 10;
const PIECE_EXTENTS: usize = 256;

/// When the next checkpoint is due, and how many commits want it to give way.
pub(crate) struct Checkpointing {
    /// The journal that is long enough; a test's is shorter.
    least_bytes: u64,
    /// Bytes of journal at which the next is due.
    due_bytes: AtomicU64,
    /// Commits that wait for `Disk::layers`.
    waiting: AtomicUsize,
}

impl Checkpointing {
    pub fn new(least_bytes: u64) -> Checkpointing {
        Checkpointing {
            least_bytes,
            due_bytes: least_bytes.into(),
            waiting: 0.into(),
        }
    }

    /// Notes that a checkpoint of so many bytes exists; 0: none. The next is due when the journal
    /// is twice as long, since writing it costs no more than that.
    pub fn made(&self, bytes: u64) {
        let due_bytes = self.least_bytes.max(bytes * 2);
        self.due_bytes.store(due_bytes, Ordering::Relaxed);
    }

    /// It could not be made, with so many bytes of journal; not every call tries again.
    fn failed(&self, logged_bytes: u64) {
        let due_bytes = logged_bytes + self.least_bytes;
        self.due_bytes.store(due_bytes, Ordering::Relaxed);
    }
}

impl Disk {
    /// For a commit: makes a checkpoint under way give way.
    pub fn lock_layers(&self) -> MutexGuard<'_, ()> {
        self.checkpointing.waiting.fetch_add(1, Ordering::AcqRel);
        let guard = self.layers.lock();
        self.checkpointing.waiting.fetch_sub(1, Ordering::AcqRel);
        guard
    }
}

/// The data from which a checkpoint is made.
struct Taken {
    old: Journal,
    new: Journal,
    /// The first layer it stands for; the last is the old journal's.
    first: Layer,
    /// The logs of a layer that is being committed stay in front of it.
    is_behind_a_commit: bool,
    changes: Arc<Changes>,
    segments: Vec<Segment>,
    next_ino: Ino,
}

impl Engine {
    /// Makes a checkpoint if the journal has become long, or cannot be synced any more; returns
    /// whether it did.
    pub fn checkpoint_when_due(&self) -> Result<bool> {
        let disk = self.disk()?;
        let (logged_bytes, journal) = {
            let state = self.read()?;
            (state.logged_bytes(), state.journal.clone())
        };
        let due_bytes = disk.checkpointing.due_bytes.load(Ordering::Relaxed);
        let has_failed = logged_bytes > 0
            && (disk.is_journal_lost.load(Ordering::Acquire)
                || journal.is_some_and(|journal| journal.has_failed()));
        if logged_bytes >= due_bytes || has_failed {
            self.make_checkpoint(disk, logged_bytes < 2 * due_bytes)
        } else {
            Ok(false)
        }
    }

    /// Makes a checkpoint before an orderly end, so that the next mount has little to replay. A
    /// damaged checkpoint is refused, as the end of a log is not: it may be what a crash left.
    pub fn checkpoint_before_close(&self) -> Result<bool> {
        if self.read()?.logged_bytes() == 0 {
            return Ok(false);
        }
        self.make_checkpoint(self.disk()?, false)
    }

    /// Makes a checkpoint; false if there is nothing to replace, or a commit is in the way.
    pub fn checkpoint(&self) -> Result<bool> {
        self.make_checkpoint(self.disk()?, true)
    }

    /// For tests: how many commits want to begin or end and cannot yet.
    pub fn waiting_commits(&self) -> usize {
        let disk = self.disk.as_ref();
        disk.map_or(0, |disk| disk.checkpointing.waiting.load(Ordering::Acquire))
    }

    fn make_checkpoint(&self, disk: &Disk, may_give_way: bool) -> Result<bool> {
        self.sync_staged(disk)?;
        let Some(_layers) = disk.layers.try_lock() else {
            return Ok(false);
        };
        let made = match self.take_snapshot(disk) {
            Ok(Some(taken)) => self.replace_logs(disk, &taken, may_give_way),
            outcome => outcome.map(|_| None),
        };
        let mut state = self.state.write();
        let snapshot = state.snapshot.take();
        if matches!(made, Ok(Some(_))) {
            // It says which bytes have chunks by now.
            state.changes.held.clear();
        } else {
            state.older_bytes += snapshot.as_ref().map_or(0, |taken| taken.logged_bytes);
        }
        let logged_bytes = state.logged_bytes();
        drop(state);
        // Perhaps large, and no other thread needs to wait until it is freed.
        drop(snapshot);
        match made {
            Ok(Some(bytes)) => disk.checkpointing.made(bytes),
            Ok(None) => {}
            Err(_) => disk.checkpointing.failed(logged_bytes),
        }
        Ok(made?.is_some())
    }

    /// Continues the journal in a new file, and takes a snapshot of the changes. None if there is
    /// no record to replace, and no segment that a new checkpoint would release.
    fn take_snapshot(&self, disk: &Disk) -> Result<Option<Taken>> {
        let (old, committing) = {
            let state = self.read()?;
            if state.logged_bytes() == 0 && state.changes.held.is_empty() {
                return Ok(None);
            }
            let old = state.journal.clone().ok_or(Errno::EBADF)?;
            (old, state.frozen.as_ref().map(|frozen| frozen.layer))
        };
        if let Some(layer) = committing {
            // Its logs stay, in front of the checkpoint.
            old.sync_through(layer)?;
        }
        let new = old.successor()?;
        let state = self.state.upgradable_read();
        // A change that a panic left half done must not be written down.
        state.check_usable()?;
        // Other threads can read while it is copied.
        let changes = Arc::new(state.changes.clone());
        let mut state = RwLockUpgradableReadGuard::upgrade(state);
        let segments = needed_segments(&state);
        segments
            .iter()
            .for_each(|segment| disk.staging.promise(*segment));
        state.changes.segments.extend(&segments);
        state.snapshot = Some(Frozen {
            logged_bytes: state.logged_bytes(),
            ..Frozen::new(old.layer(), state.next_ino, changes.clone())
        });
        state.older_bytes = 0;
        state.layer = new.layer();
        state.journal = Some(new.clone());
        carry_over(&mut state, disk, &self.listed_directories());
        Ok(Some(Taken {
            old,
            new,
            first: committing.unwrap_or(disk.committed.load(Ordering::Acquire)) + 1,
            is_behind_a_commit: committing.is_some(),
            changes,
            segments: segments.into_iter().collect(),
            next_ino: state.next_ino,
        }))
    }

    /// Writes the snapshot and deletes the logs that it replaces; returns its bytes. None if it
    /// gave way.
    fn replace_logs(&self, disk: &Disk, taken: &Taken, may_give_way: bool) -> Result<Option<u64>> {
        hit("checkpoint-begun");
        // Sums first: they may cover bytes appended from here on, and then the sync covers those
        // bytes, too.
        let mut sums = Vec::new();
        for segment in &taken.segments {
            sums.push((*segment, disk.staging.sums(*segment).unwrap_or_default()));
        }
        for segment in &taken.segments {
            self.sync_segment(disk, *segment)?;
        }
        let gives_way = || may_give_way && disk.checkpointing.waiting.load(Ordering::Acquire) > 0;
        let mut output = Output {
            engine: self,
            file: taken.old.checkpoint(taken.first, taken.next_ino)?,
            record: effect::start_record(),
            gives_way: &gives_way,
        };
        if output.write_all(taken, &sums)? {
            let bytes = output.file.finish()?;
            taken.new.replace_from(taken.first)?;
            if !taken.is_behind_a_commit {
                // Bytes that could not be made durable before are durable now.
                disk.is_journal_lost.store(false, Ordering::Release);
                disk.failures.forget_journal();
            }
            hit("checkpoint-done");
            Ok(Some(bytes))
        } else {
            Ok(None)
        }
    }

    /// Syncs everything staged so far, except for bytes written meanwhile.
    fn sync_staged(&self, disk: &Disk) -> Result<()> {
        let segments = needed_segments(&*self.read()?);
        for segment in segments {
            disk.staging.promise(segment);
            self.sync_segment(disk, segment)?;
        }
        Ok(())
    }
}

/// The file that is being written.
struct Output<'a> {
    engine: &'a Engine,
    file: Checkpoint,
    record: Vec<u8>,
    gives_way: &'a dyn Fn() -> bool,
}

impl Output<'_> {
    /// Every inode that changed, then entries, which name them, then contents. False: it gave way.
    fn write_all(&mut self, taken: &Taken, sums: &[(Segment, Vec<Sum>)]) -> Result<bool> {
        let mut inodes: Vec<(Ino, u8)> = taken.changes.inodes.iter().collect();
        inodes.sort_unstable();
        let has_contents = inodes.iter().any(|(_, marks)| marks & EXTENTS != 0);
        let mut sums = sums
            .iter()
            .filter(|_| has_contents)
            .flat_map(|(segment, sums)| sums.chunks(PIECE_BYTES / 16).map(|sums| (*segment, sums)));
        let mut rows = inodes.iter();
        let mut entries = taken.changes.entries.iter();
        let mut contents = Contents::of(&inodes);
        Ok(self.write(|_, _, record| {
            let next = sums.next();
            if let Some((segment, sums)) = next {
                let sums = sums.into();
                effect::encode(&Effect::Sums { segment, sums }, record);
            }
            Ok(next.is_some())
        })? && self.write(|state, snapshot, record| {
            let next = rows.next();
            if let Some((ino, _)) = next {
                put_row(state, snapshot, *ino, record);
            }
            Ok(next.is_some())
        })? && self.write(|state, snapshot, record| {
            let next = entries.next();
            if let Some((at, _)) = next {
                put_entry(state, snapshot, at, record);
            }
            Ok(next.is_some())
        })? && self
            .write(|state, snapshot, record| contents.put_next(state, snapshot, record))?)
    }

    /// Encodes the effects from `next` until there are no more, a record at a time under the
    /// state's lock. False: it gave way to a commit.
    fn write(
        &mut self,
        mut next: impl FnMut(&State, &Frozen, &mut Vec<u8>) -> Result<bool>,
    ) -> Result<bool> {
        let empty_bytes = self.record.len();
        let mut has_more = true;
        while has_more {
            if (self.gives_way)() {
                return Ok(false);
            }
            {
                let state = self.engine.read()?;
                let snapshot = state.snapshot.as_ref().ok_or(Errno::EBADF)?;
                while has_more && self.record.len() < PIECE_BYTES {
                    has_more = next(&state, snapshot, &mut self.record)?;
                }
            }
            if self.record.len() > empty_bytes {
                self.file.append(&self.record)?;
                self.record = effect::start_record();
                hit("checkpoint-half");
            }
            self.engine.play_interlude();
        }
        Ok(true)
    }
}

fn put_row(state: &State, snapshot: &Frozen, ino: Ino, record: &mut Vec<u8>) {
    match state.frozen_row(snapshot, ino) {
        Some(row) => effect::encode(&Effect::PutInode(row), record),
        // An inode made and removed within these changes needs no effect.
        None if ino < snapshot.changes.first_ino => {
            effect::encode(&Effect::RemoveInode(ino), record);
        }
        None => {}
    }
}

fn put_entry(state: &State, snapshot: &Frozen, at: EntryAt<'_>, record: &mut Vec<u8>) {
    let EntryAt { parent, name } = at;
    match state.frozen_entry(snapshot, at) {
        0 if parent >= snapshot.changes.first_ino
            && state.frozen_row(snapshot, parent).is_none() => {}
        0 => effect::encode(&Effect::DropEntry { parent, name }, record),
        ino => effect::encode(&Effect::PutEntry { parent, name, ino }, record),
    }
}

/// Files and attributes that changed, some extents at a time.
struct Contents<'a> {
    left: std::slice::Iter<'a, (Ino, u8)>,
    /// The file at hand, and how far it is written.
    at: Option<(Ino, u64)>,
}

impl<'a> Contents<'a> {
    fn of(inodes: &'a [(Ino, u8)]) -> Contents<'a> {
        Contents {
            left: inodes.iter(),
            at: None,
        }
    }

    fn put_next(&mut self, state: &State, snapshot: &Frozen, record: &mut Vec<u8>) -> Result<bool> {
        if let Some((ino, from)) = self.at {
            self.at = put_extents(state, snapshot, ino, from, record)?.map(|end| (ino, end));
            return Ok(true);
        }
        let Some((ino, marks)) = self.left.next() else {
            return Ok(false);
        };
        let (ino, is_new) = (*ino, *ino >= snapshot.changes.first_ino);
        if state.frozen_row(snapshot, ino).is_none() {
            return Ok(true);
        }
        if marks & XATTRS != 0 {
            put_xattrs(state, snapshot, ino, record);
        }
        if marks & EXTENTS != 0 {
            if !is_new {
                let (from, to) = (0, u64::MAX);
                effect::encode(&Effect::Unmap { ino, from, to }, record);
            }
            self.at = Some((ino, 0));
        }
        Ok(true)
    }
}

fn put_xattrs(state: &State, snapshot: &Frozen, ino: Ino, record: &mut Vec<u8>) {
    effect::encode(&Effect::ClearXattrs(ino), record);
    for (name, value) in &state.frozen_xattrs(snapshot, ino) {
        effect::encode(&Effect::PutXattr { ino, name, value }, record);
    }
}

/// Writes some extents from the offset `from` on; returns where to continue, None behind the last.
fn put_extents(
    state: &State,
    snapshot: &Frozen,
    ino: Ino,
    from: u64,
    record: &mut Vec<u8>,
) -> Result<Option<u64>> {
    // A changed inode is in memory.
    let (_, extents) = state.frozen_extents(snapshot, ino).ok_or(Errno::EIO)?;
    if from == 0 {
        for (from, to) in extents.allocated() {
            effect::encode(&Effect::Allocate { ino, from, to }, record);
        }
    }
    let mut end = None;
    for extent in extents.overlapping(from, u64::MAX).take(PIECE_EXTENTS) {
        end = Some(extent.end());
        let extent = extent.clone();
        let crc = None;
        effect::encode(&Effect::Map { ino, extent, crc }, record);
    }
    Ok(end)
}
