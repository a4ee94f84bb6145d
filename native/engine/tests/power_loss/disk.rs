//! A local disk that remembers synced data, and the effects of a power loss on the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cowfs_base::{Errno, Ino};

use crate::moment::Moment;
use crate::support::cases::Dice;
use crate::support::{Base, World};
use crate::{Op, PATHS};

/// A disk that remembers synced data.
pub struct Disk {
    pub world: World,
    pub history: Vec<Moment>,
    /// Index of the earliest moment that names and sizes may be of after a power loss.
    floor: usize,
    /// By file, the moment of its last fsync.
    pub fsynced: BTreeMap<Ino, usize>,
    /// By local file, the bytes that are on stable storage; at least the header of each journal.
    synced: BTreeMap<PathBuf, BTreeSet<usize>>,
    /// Segments of an earlier run of the engine, which counts them as promised.
    inherited: BTreeSet<PathBuf>,
    /// Local files that were removed, which a power loss may bring back.
    removed: BTreeMap<PathBuf, Vec<u8>>,
    frozen: Option<(u64, usize)>,
    boots: u32,
}

impl Disk {
    pub fn new(segment_bytes: u64) -> Disk {
        let mut disk = Disk {
            world: World::with_segments(Base::empty(), segment_bytes),
            history: Vec::new(),
            floor: 0,
            fsynced: BTreeMap::new(),
            synced: BTreeMap::new(),
            inherited: BTreeSet::new(),
            removed: BTreeMap::new(),
            frozen: None,
            boots: 1,
        };
        disk.start_over();
        disk
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.world.temp.path().join("working").join(name)
    }

    fn files(&self, folder: &str, end: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder(folder)).expect("lists");
        entries
            .map(|entry| entry.expect("entry").path())
            .filter(|path| path.extension().is_some_and(|found| found == end))
            .collect()
    }

    pub fn now(&self) -> usize {
        self.history.len() - 1
    }

    /// The present state is on stable storage, and earlier states cannot come back.
    fn start_over(&mut self) {
        self.history = vec![Moment::of(&self.world)];
        self.floor = 0;
        self.fsynced = self.history[0]
            .inodes
            .values()
            .map(|ino| (*ino, 0))
            .collect();
        self.removed.clear();
        self.synced.clear();
        self.sync_files("journal", "log");
        self.sync_files("journal", "ckpt");
        self.sync_files("staging", "seg");
        self.note_inherited();
    }

    fn note_inherited(&mut self) {
        self.inherited = self.files("staging", "seg").into_iter().collect();
    }

    fn sync_files(&mut self, folder: &str, end: &str) {
        for path in self.files(folder, end) {
            let length = fs::metadata(&path).expect("exists").len() as usize;
            self.synced.entry(path).or_default().extend(0..length);
        }
    }

    /// The journal is on stable storage as far as it goes.
    pub fn journal_synced(&mut self) {
        self.floor = self.now();
        self.sync_files("journal", "log");
        self.sync_files("journal", "ckpt");
    }

    fn remember_removed(&mut self, before: Vec<(PathBuf, Vec<u8>)>) {
        for (path, bytes) in before {
            if !path.exists() {
                self.removed.insert(path, bytes);
            }
        }
    }

    fn contents(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut paths = self.files("journal", "log");
        paths.extend(self.files("journal", "ckpt"));
        paths.extend(self.files("staging", "seg"));
        paths
            .into_iter()
            .map(|path| (path.clone(), fs::read(&path).expect("reads")))
            .collect()
    }

    fn fsync(&mut self, path: &str) -> Result<(), Errno> {
        let ino = self.world.resolve(path)?;
        let engine = self.world.engine();
        let fh = self
            .world
            .ask(|engine| engine.open_file(ino, libc::O_RDONLY))?;
        engine.fsync(fh, false).expect("syncs");
        engine.release(fh).expect("closes");
        self.file_synced(ino);
        self.fsynced.insert(ino, self.now());
        self.journal_synced();
        Ok(())
    }

    /// The segments that uncommitted bytes of a file lie in are on stable storage as they are now.
    pub fn file_synced(&mut self, ino: Ino) {
        let extents = self.world.ask(|engine| engine.live_extents(ino));
        let extents = extents.expect("exists").1;
        let uncommitted = extents.iter().filter(|extent| extent.chunk.is_none());
        for (segment, _) in uncommitted.filter_map(|extent| extent.staged) {
            let path = self.folder("staging").join(format!("{segment:016x}.seg"));
            let length = fs::metadata(&path).expect("exists").len() as usize;
            self.synced.entry(path).or_default().extend(0..length);
        }
    }

    /// Everything of the moment `then` is on stable storage, including copies made since. A write
    /// behind it counts as well: which bytes are its own cannot be seen from here. Segments that no
    /// named file needs (of a file that was never named, say) are not promised.
    fn all_synced(&mut self, then: usize) {
        self.sync_files("journal", "log");
        self.sync_files("journal", "ckpt");
        let now: Vec<Ino> = self.history[self.now()].inodes.values().copied().collect();
        now.iter().for_each(|ino| self.file_synced(*ino));
        self.floor = self.floor.max(then);
        let inodes = self.history[then].inodes.values();
        self.fsynced.extend(inodes.map(|ino| (*ino, then)));
    }

    /// Finds segments that were removed without a commit: if one had been promised, the bytes
    /// mapped instead must be durable by now.
    fn look_for_reclaimed(&mut self, op: &Op, then: usize, before: Vec<(PathBuf, Vec<u8>)>) {
        let gone: Vec<&PathBuf> = before
            .iter()
            .map(|(path, _)| path)
            .filter(|path| !path.exists())
            .collect();
        let is_promised = |path: &PathBuf| {
            let is_synced = self.synced.get(path).is_some_and(|found| !found.is_empty());
            is_synced || self.inherited.contains(path)
        };
        // Behind a write this is unknown: the write's own bytes are not durable in any case.
        let is_durable = match op {
            Op::Reclaim | Op::Punch => self.world.engine().is_durable().expect("says"),
            _ => true,
        };
        assert!(is_durable || !gone.iter().any(|path| is_promised(path)));
        if is_durable && !gone.is_empty() {
            self.all_synced(then);
        }
        self.remember_removed(before);
    }

    pub fn run(&mut self, op: &Op) {
        let before = self.contents();
        let then = self.now();
        self.change(op);
        self.look_for_reclaimed(op, then, before);
        self.run_durability(op);
    }

    fn run_durability(&mut self, op: &Op) {
        match op {
            Op::Fsync(at) => drop(self.fsync(PATHS[*at])),
            Op::Sync => {
                self.world.engine().sync().expect("syncs");
                self.journal_synced();
                // Not all segments: unneeded ones are not synced.
                let now = self.now();
                let inodes: Vec<Ino> = self.history[now].inodes.values().copied().collect();
                inodes.iter().for_each(|ino| self.file_synced(*ino));
                self.fsynced = inodes.into_iter().map(|ino| (ino, now)).collect();
            }
            Op::Freeze if self.frozen.is_none() => {
                self.frozen = self.world.freeze().map(|layer| (layer, self.now()));
                // A journal gets its name with its header durable.
                for path in self.files("journal", "log") {
                    self.synced.entry(path).or_default().extend(0..128);
                }
            }
            Op::Commit => {
                if let Some((layer, then)) = self.frozen.take() {
                    let before = self.contents();
                    self.world.commit(layer);
                    self.remember_removed(before);
                    self.floor = self.floor.max(then);
                }
            }
            Op::Fail => {
                if let Some((layer, _)) = self.frozen.take() {
                    self.world.engine().layer_failed(layer).expect("joins");
                }
            }
            Op::Trim => {
                let before = self.contents();
                self.world.engine().trim_staging(0).expect("trims");
                self.remember_removed(before);
            }
            Op::Checkpoint => {
                let before = self.contents();
                if self.world.engine().checkpoint().expect("checkpoints") {
                    self.all_synced(self.now());
                }
                self.remember_removed(before);
            }
            Op::Kill => {
                self.frozen = None;
                let before = self.contents();
                let (recovery, _) = self.world.crash();
                assert_eq!(recovery.cut_bytes, 0);
                self.remember_removed(before);
                self.note_inherited();
                self.journal_synced();
                let now = self.now();
                assert_eq!(
                    Moment::of(&self.world).tree,
                    self.history[now].tree,
                    "a kill loses nothing"
                );
            }
            Op::PowerLoss(seed) => self.lose_power(*seed),
            Op::PowerLossBehindHead(seed) => {
                if let Some((layer, then)) = self.frozen {
                    self.world.base = self.world.publish(layer).0;
                    self.world.after_layer = layer;
                    self.floor = self.floor.max(then);
                }
                self.lose_power(*seed);
            }
            _ => {}
        }
    }

    pub fn lose_power(&mut self, seed: u64) {
        self.frozen = None;
        self.world.drop_engine();
        let mut dice = Dice(seed);
        for (path, bytes) in self.contents() {
            let synced = self.synced.remove(&path).unwrap_or_default();
            damage(&path, bytes, &synced, &mut dice);
        }
        for (path, bytes) in std::mem::take(&mut self.removed) {
            if dice.roll(2) == 0 && !path.exists() {
                fs::write(path, bytes).expect("comes back");
            }
        }
        self.boots += 1;
        self.world.boot_id = format!("boot-{}", self.boots);
        if let Err(error) = self.world.open() {
            panic!("a power loss is no damage: {error}");
        }
        let found = Moment::of(&self.world);
        self.check(&found);
        self.world.crash();
        assert_eq!(
            Moment::of(&self.world).tree,
            found.tree,
            "recovered once more"
        );
        self.start_over();
    }

    fn check(&self, found: &Moment) {
        let shape = found.shape();
        let candidates: Vec<usize> = (self.floor..self.history.len())
            .filter(|at| self.history[*at].shape() == shape)
            .collect();
        assert!(
            !candidates.is_empty(),
            "no moment from {} to {} had this: {:#?}\nthe last was {:#?}",
            self.floor,
            self.now(),
            found.tree,
            self.history[self.now()].tree
        );
        let complaints: Vec<String> = candidates
            .iter()
            .filter_map(|at| self.wrong_byte(found, *at))
            .collect();
        assert!(complaints.len() < candidates.len(), "{complaints:#?}");
    }

    /// Why the bytes found cannot be those of the moment `at`.
    fn wrong_byte(&self, found: &Moment, at: usize) -> Option<String> {
        for (path, ino) in &found.inodes {
            let bytes = &found.tree[path].bytes;
            let since = self.fsynced.get(ino).copied().filter(|since| *since <= at);
            let versions: Vec<&[u8]> = self.history[since.unwrap_or(0)..=at]
                .iter()
                .filter_map(|moment| moment.bytes_of(*ino))
                .collect();
            for (offset, byte) in bytes.iter().enumerate() {
                let had = |version: &&[u8]| version.get(offset).copied().unwrap_or(0) == *byte;
                let is_hole = *byte == 0 && since.is_none();
                if !is_hole && !versions.iter().any(had) {
                    return Some(format!(
                        "{} byte {offset} is {byte}; moment {at}, fsynced at {since:?}",
                        path.display()
                    ));
                }
            }
        }
        None
    }
}

/// The effect of a power loss on a file with only `synced` on stable storage.
fn damage(path: &Path, mut bytes: Vec<u8>, synced: &BTreeSet<usize>, dice: &mut Dice) {
    if synced.is_empty() && dice.roll(3) == 0 {
        fs::remove_file(path).expect("vanishes");
        return;
    }
    const BLOCK: usize = 64;
    // Where the journal is gone, nothing tells what became of the segments: more often than not all
    // of it was written.
    let is_log = path.extension().is_some_and(|found| found == "log");
    let mode = dice.roll(4) * (1 - u64::from(is_log) * dice.roll(2));
    for start in (0..bytes.len()).step_by(BLOCK) {
        let fate = if mode == 3 { dice.roll(3) } else { mode };
        let end = bytes.len().min(start + BLOCK);
        for (at, byte) in bytes[start..end].iter_mut().enumerate() {
            if !synced.contains(&(start + at)) {
                match fate {
                    0 => {}
                    1 => *byte = 0,
                    _ => *byte = dice.roll(256) as u8,
                }
            }
        }
    }
    // A segment in an earlier segment's file is cut when it takes no more appends: bytes synced
    // behind its end are not missed.
    let shortest = synced.last().map_or(0, |last| last + 1).min(bytes.len());
    if dice.roll(3) == 0 {
        let room = (bytes.len() - shortest) as u64 + 1;
        bytes.truncate(shortest + dice.roll(room) as usize);
    }
    // A file of two numbers: what becomes of one name's bytes is decided for each.
    fs::remove_file(path).expect("removes");
    fs::write(path, bytes).expect("damages");
}
