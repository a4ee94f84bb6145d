//! The engine of one mount: the state behind its lock, the handles, and the local disk it may use.
//!
//! An operation takes the lock, checks, builds effects, and `record`s them: one journal record,
//! then the state. The journal has every change acknowledged to a caller. Bytes are appended to
//! staging, and read from segments and chunks, outside of the lock.
//!
//! Locks, in this order: `Relief::running` → `Reclaim::running` → `Disk::layers` →
//! `Disk::forgetting` → `Disk::appends` → state → handles, journal, ballast → staging's own.
//! `docs/concurrency.md` lists all of them, and the work done under each.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cowfs_base::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use cowfs_base::{Errno, Ino, Layer, Segment, now_ns};
use cowfs_cache::ChunkCache;
use cowfs_journal::{Journal, Scan};
use cowfs_staging::{Ballast, Failures, Leaving, Staging, is_full};

use crate::activity::Activity;
use crate::ahead::Ahead;
use crate::backing::Backing;
use crate::checkpoint::Checkpointing;
use crate::effect::{self, Effect};
use crate::error::{Error, Result};
use crate::evict::Eviction;
use crate::freeable::Freeable;
use crate::handle::Handles;
use crate::interlude::Interlude;
use crate::reads::Reads;
use crate::reclaim::Reclaim;
use crate::recovery::Progress;
use crate::relief::Relief;
use crate::requests::Requests;
use crate::row::InodeRow;
use crate::staged::{Amount, needed_segments};
use crate::state::State;

/// How to open an engine.
#[derive(Debug, Clone)]
pub struct Options {
    /// The root directory of the base version.
    pub root: InodeRow,
    /// The first inode number the base version has not given out.
    pub next_ino: Ino,
    /// The directory of decoded chunks; shared by all mounts of a user.
    pub cache_dir: PathBuf,
    /// How many bytes of chunks are kept in memory.
    pub memory_cache_bytes: u64,
    /// The store is on the disk of `cache_dir`: a chunk is copied there when it is read the second
    /// time.
    pub is_store_near: bool,
    /// None: read-only. Otherwise `journal/` and `staging/` are in it, and the caller holds the
    /// working copy's lock.
    pub staging_dir: Option<PathBuf>,
    /// The file that remembers failed syncs until the machine restarts, beside the working copy:
    /// best on another file system.
    pub failures_file: Option<PathBuf>,
    /// 0: no limit but the disk's.
    pub staging_limit_bytes: u64,
    /// cowfs_staging::SEGMENT_BYTES but in tests.
    pub segment_bytes: u64,
    /// cowfs_engine::CHECKPOINT_BYTES but in tests.
    pub checkpoint_bytes: u64,
    /// The last committed layer.
    pub after_layer: Layer,
    /// Names this run of the machine; journals of another one have been through a power loss.
    pub boot_id: String,
}

/// The local disk of a working copy.
pub(crate) struct Disk {
    pub staging: Staging,
    pub failures: Arc<Failures>,
    /// An earlier process could not sync its journal, and it could not be written anew: no sync
    /// succeeds until it is gone.
    pub is_journal_lost: AtomicBool,
    pub journal_dir: PathBuf,
    pub boot_id: String,
    /// The last committed layer.
    pub committed: AtomicU64,
    /// Space reserved for freeing a full disk.
    pub ballast: Arc<Ballast>,
    pub relief: Relief,
    pub freeable: Freeable,
    /// Held shared from before bytes go to staging until an extent maps them, exclusively to choose
    /// segments to remove.
    pub appends: RwLock<()>,
    /// Held exclusively for the moment in which the state forgets segments, before their files are
    /// removed; shared by a read whose plan must not fail again.
    pub forgetting: RwLock<()>,
    /// One freeze, commit or join at a time.
    pub layers: Mutex<()>,
    /// When the journal is replaced.
    pub checkpointing: Checkpointing,
    /// When overwritten bytes are looked for.
    pub reclaim: Reclaim,
    /// The result of `open`, until `replay` has applied it.
    pub unreplayed: Mutex<Option<Scan>>,
    pub progress: Progress,
}

/// One mount's file system. Every method may be called from any thread.
pub struct Engine {
    pub(crate) state: RwLock<State>,
    pub(crate) handles: Handles,
    pub(crate) activity: Activity,
    pub(crate) ahead: Ahead,
    pub(crate) backing: Backing,
    pub(crate) eviction: Eviction,
    pub(crate) reads: Reads,
    pub(crate) cache: ChunkCache,
    pub(crate) is_store_near: bool,
    pub(crate) interlude: Interlude,
    pub(crate) requests: Arc<Requests>,
    pub(crate) disk: Option<Disk>,
}

impl Engine {
    /// Opens journal and staging. If there is nothing to replay, the engine is ready; otherwise
    /// `recover` and `replay` come first.
    pub fn open(options: Options) -> Result<Engine> {
        let mut state = State::new(&options.root, options.next_ino)?;
        let disk = match &options.staging_dir {
            Some(dir) => Some(open_disk(dir, &options, &mut state)?),
            None => None,
        };
        let cache = ChunkCache::open(&options.cache_dir, options.memory_cache_bytes);
        let requests = state.requests.clone();
        Ok(Engine {
            state: RwLock::new(state),
            handles: Handles::default(),
            activity: Activity::default(),
            ahead: Ahead::default(),
            backing: Backing::default(),
            eviction: Eviction::default(),
            reads: Reads::default(),
            cache,
            is_store_near: options.is_store_near,
            interlude: Interlude::default(),
            requests,
            disk,
        })
    }

    /// Makes everything durable, removes committed segments and closes the files. Further calls
    /// give EBADF.
    pub fn close(&self) -> Result<()> {
        self.ahead.close();
        if !self.is_broken() {
            self.sync_unchecked()?;
            self.release_committed()?;
        }
        self.end();
        Ok(())
    }

    /// Closes the files of a working copy that its owner deletes next: nothing is made durable, so
    /// it takes no time. Further calls give EBADF.
    pub fn abandon(&self) {
        self.ahead.close();
        self.end();
    }

    fn end(&self) {
        let mut state = self.state.write();
        state.is_closed = true;
        state.journal = None;
        drop(state);
        self.cache.close();
        if let Some(disk) = &self.disk {
            disk.reclaim.wake();
        }
    }

    /// Before closing: drops the cache of recent writes, and the ballast unless uncommitted work
    /// stays here.
    fn release_committed(&self) -> Result<()> {
        if let Some(disk) = &self.disk
            && self.read()?.journal.is_some()
        {
            self.trim(disk, Amount::EverythingCommitted)?;
            if !self.is_dirty()? {
                disk.ballast.remove();
            }
        }
        Ok(())
    }

    /// Whether all mapped bytes and all journal records are on stable storage now.
    pub fn is_durable(&self) -> Result<bool> {
        let Some(disk) = &self.disk else {
            return Ok(true);
        };
        let state = self.read()?;
        let is_journal_synced = match &state.journal {
            Some(journal) => journal.is_synced(),
            None => true,
        };
        let needed = needed_segments(&state);
        Ok(is_journal_synced
            && needed
                .iter()
                .all(|segment| disk.staging.is_synced(*segment)))
    }

    /// The state, to look at.
    pub(crate) fn read(&self) -> Result<RwLockReadGuard<'_, State>> {
        let state = self.state.read();
        state.check_usable()?;
        Ok(state)
    }

    /// The state, to bring something in from the base version.
    pub(crate) fn fill(&self) -> Result<Changing<'_>> {
        let state = self.state.write();
        state.check_usable()?;
        self.activity.note();
        Ok(Changing(state))
    }

    /// Whether a change was abandoned halfway, by a panic or because an effect could not be
    /// applied: every call gives EIO from then on. The journal has all acknowledged changes, so a
    /// replay continues without loss.
    pub fn is_broken(&self) -> bool {
        self.state.read().is_broken
    }

    /// The state, to change it: EROFS on a read-only mount, EINVAL before `replay`.
    pub(crate) fn change(&self) -> Result<Changing<'_>> {
        self.disk()?;
        let state = self.fill()?;
        if state.journal.is_none() {
            Err(Errno::EINVAL.into())
        } else {
            Ok(state)
        }
    }

    pub(crate) fn disk(&self) -> Result<&Disk> {
        self.disk.as_ref().ok_or(Errno::EROFS.into())
    }

    /// Journals and applies the effects of one operation, all or none. EDQUOT if the volume would
    /// exceed its quota, ENOSPC for attributes beyond HELD_XATTRS_MAX_BYTES. Effects on inodes
    /// without a name are not journaled, unless this operation makes them or gives them a name: such
    /// an inode could not be found after a crash. Where it could, they are (`nameless`).
    pub(crate) fn record(state: &mut State, effects: &[Effect<'_>]) -> Result<()> {
        state.check_effects(effects)?;
        let named: Vec<Ino> = effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::PutInode(row) if row.nlink > 0 || !state.inodes.contains(row.ino) => {
                    Some(row.ino)
                }
                _ => None,
            })
            .collect();
        let is_kept = |effect: &&Effect<'_>| {
            let subject = effect.subject();
            subject.is_some_and(|ino| named.contains(&ino) || state.is_journaled(ino))
        };
        let done = state.requests.note(effects);
        let ahead = state.effects_ahead();
        let mut kept = effects.iter().filter(is_kept).chain(&done).peekable();
        if kept.peek().is_some() || state.owes_gone() {
            Engine::journal(state, ahead.iter().chain(kept))?;
            state.note_ahead();
        }
        for effect in effects.iter().chain(&done) {
            if let Err(reason) = state.apply(effect) {
                state.is_broken = true;
                return Err(Error::fault(format_args!(
                    "a change that was journaled cannot be made: {reason}"
                )));
            }
        }
        state.end_operation();
        Ok(())
    }

    /// Writes one record with these effects; does nothing if there are no effects.
    pub(crate) fn journal<'a>(
        state: &State,
        effects: impl IntoIterator<Item = &'a Effect<'a>>,
    ) -> Result<()> {
        let mut record = effect::start_record();
        let empty = record.len();
        for effect in effects {
            effect::encode(effect, &mut record);
        }
        if record.len() > empty {
            append(state, &record)?;
        }
        Ok(())
    }

    /// Whether the segment may still be read. A plan that names another one is made again.
    pub(crate) fn is_readable(&self, segment: Segment) -> bool {
        self.state.read().segments.contains(&segment)
    }
}

/// Appends a record, on a full disk with space of the ballast.
fn append(state: &State, record: &[u8]) -> Result<()> {
    let journal = state.journal.as_ref().ok_or(Errno::EROFS)?;
    loop {
        match journal.append(record) {
            Err(error) if is_full(&error) && state.gives_up_ballast() => {}
            outcome => return Ok(outcome.map(|_| ())?),
        }
    }
}

/// The state while it is changed. A panic leaves it broken, because the change may be half done.
pub(crate) struct Changing<'a>(RwLockWriteGuard<'a, State>);

impl Deref for Changing<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.0
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.is_broken = true;
        }
    }
}

fn open_disk(dir: &Path, options: &Options, state: &mut State) -> Result<Disk> {
    let journal_dir = dir.join("journal");
    std::fs::create_dir_all(&journal_dir)?;
    let places = [
        Some(dir.join("failed-syncs")),
        options.failures_file.clone(),
    ];
    let failures = Failures::open(places.into_iter().flatten().collect(), &options.boot_id);
    let failures = Arc::new(failures);
    let staging = Staging::open(
        &dir.join("staging"),
        options.staging_limit_bytes,
        options.segment_bytes,
    )?
    .remember_failures(failures.clone());
    cowfs_journal::settle(&journal_dir)?;
    let is_journal_lost = failures.has_journal() && cowfs_journal::rewrite(&journal_dir).is_err();
    if !is_journal_lost {
        failures.forget_journal();
    }
    // An fsync of a file in these directories is worthless if their own names are not durable.
    std::fs::File::open(dir)?.sync_all()?;
    let scan = cowfs_journal::scan(&journal_dir, options.after_layer, &options.boot_id)?;
    cowfs_journal::remove_through(&journal_dir, options.after_layer)?;
    let ballast = Arc::new(Ballast::open(dir));
    ballast.restore();
    state.ballast = Some(ballast.clone());
    let disk = Disk {
        staging,
        failures,
        is_journal_lost: is_journal_lost.into(),
        ballast,
        relief: Relief::default(),
        freeable: Freeable::default(),
        journal_dir,
        boot_id: options.boot_id.clone(),
        committed: options.after_layer.into(),
        checkpointing: Checkpointing::new(options.checkpoint_bytes),
        appends: RwLock::new(()),
        forgetting: RwLock::new(()),
        layers: Mutex::new(()),
        reclaim: Reclaim::new(options.segment_bytes),
        unreplayed: Mutex::new(None),
        progress: Progress::default(),
    };
    if scan.records() > 0 {
        *disk.unreplayed.lock() = Some(scan);
    } else {
        disk.start_journal(state, &scan)?;
        disk.remove_unneeded_segments(state)?;
    }
    Ok(disk)
}

impl Disk {
    /// Starts the journal of the layer behind every other.
    pub fn start_journal(&self, state: &mut State, scan: &Scan) -> Result<()> {
        let committed = self.committed.load(Ordering::Acquire);
        let layer = scan.last_layer().unwrap_or(0).max(committed) + 1;
        state.next_ino = state.next_ino.max(scan.next_ino());
        state.give_up_spare_numbers();
        let (logged_bytes, checkpoint_bytes) = scan.size_bytes();
        state.older_bytes = logged_bytes;
        self.checkpointing.made(checkpoint_bytes);
        let create = || Journal::create(&self.journal_dir, layer, &self.boot_id);
        state.journal = Some(self.with_room(Leaving::Committing, create)?);
        state.layer = layer;
        Ok(())
    }

    /// Does what frees space or leaves: on a full disk with space of the ballast.
    pub fn with_room<T>(
        &self,
        leaving: Leaving,
        step: impl Fn() -> std::io::Result<T>,
    ) -> std::io::Result<T> {
        loop {
            match step() {
                Err(error) if is_full(&error) && self.ballast.give_up(leaving) => {}
                outcome => return outcome,
            }
        }
    }

    /// Removes the segments of earlier runs that no journal refers to.
    pub fn remove_unneeded_segments(&self, state: &State) -> Result<()> {
        let needed = needed_segments(state);
        for (segment, _) in self.staging.segments() {
            if !needed.contains(&segment) {
                self.staging.remove(segment)?;
            }
        }
        Ok(())
    }
}

/// The row of an inode whose status changes now.
pub(crate) fn touched(mut row: InodeRow) -> InodeRow {
    row.ctime_ns = now_ns();
    row
}

#[cfg(test)]
mod tests {
    use cowfs_base::ROOT_INO;

    use super::*;
    use crate::row::{Caller, S_IFDIR};

    fn open(dir: &Path) -> Engine {
        let root = InodeRow {
            ino: ROOT_INO,
            mode: S_IFDIR | 0o755,
            nlink: 2,
            ..InodeRow::default()
        };
        let options = Options {
            root,
            next_ino: 2,
            cache_dir: dir.join("cache"),
            memory_cache_bytes: 0,
            is_store_near: false,
            staging_dir: Some(dir.into()),
            staging_limit_bytes: 0,
            segment_bytes: 1 << 20,
            checkpoint_bytes: crate::CHECKPOINT_BYTES,
            after_layer: 0,
            boot_id: "this one".into(),
            failures_file: None,
        };
        let engine = Engine::open(options).unwrap();
        engine.recover().unwrap();
        engine.load_directory(ROOT_INO, &[]).unwrap();
        engine.replay().unwrap();
        engine
    }

    #[test]
    fn no_segment_is_removed_beside_a_read_that_needs_them() {
        for is_synced in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let engine = open(dir.path());
            let (_, fh) = engine
                .create(ROOT_INO, b"f", 0o644, libc::O_RDWR, &Caller::default())
                .unwrap();
            for byte in [1, 2] {
                engine.write(fh, 0, &[byte; 1 << 20], true).unwrap();
                if is_synced {
                    engine.fsync(fh, false).unwrap();
                }
            }
            let disk = engine.disk().unwrap();
            let first = disk.staging.segments()[0].0;
            let needed = disk.forgetting.read();
            std::thread::scope(|scope| {
                let pass = scope.spawn(|| engine.reclaim_staging().unwrap());
                std::thread::sleep(std::time::Duration::from_millis(100));
                assert!(engine.is_readable(first) && disk.staging.contains(first));
                engine.write(fh, 0, b"writers go on", true).unwrap();
                drop(needed);
                assert!(pass.join().unwrap() > 0);
            });
            assert!(!engine.is_readable(first) && !disk.staging.contains(first));
        }
    }

    #[test]
    fn a_change_given_up_halfway_ends_all_calls_and_is_whole_after_a_replay() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        let caller = Caller::default();
        engine.mkdir(ROOT_INO, b"before", 0o755, &caller).unwrap();
        let panicking = std::panic::AssertUnwindSafe(|| {
            let mut state = engine.change().unwrap();
            state.inodes.remove(ROOT_INO);
            panic!("in the middle of a change");
        });
        assert!(std::panic::catch_unwind(panicking).is_err());
        assert!(engine.is_broken());
        let refused = engine.mkdir(ROOT_INO, b"after", 0o755, &caller);
        assert!(matches!(refused, Err(Error::Os(Errno::EIO))));
        assert!(matches!(
            engine.getattr(ROOT_INO),
            Err(Error::Os(Errno::EIO))
        ));
        engine.close().unwrap();
        drop(engine);
        let again = open(dir.path());
        assert!(!again.is_broken());
        assert!(again.lookup(ROOT_INO, b"before").is_ok());
        assert!(again.lookup(ROOT_INO, b"after").is_err());
    }
}
