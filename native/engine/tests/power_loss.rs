//! Random operations, then a power loss: whatever no fsync had covered is kept, zeroed, garbled or cut, files that had been
//! removed come back, segments without any synced byte vanish. What must hold afterwards:
//!
//! - names, links, modes, attributes and sizes are those behind some operation, not earlier than the last fsync or commit;
//! - every byte of a file is one the file had there since its last fsync, or a hole where it had none; never anything else;
//! - recovering once more, and a commit, see the same.
//!
//! Only what fsync promises is taken as synced: the journal as far as it goes, and the segments the file lies in. When staging
//! lets go of overwritten bytes that were promised, it must have synced what is mapped instead: then that is synced, too.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cowfs_base::{Errno, Ino};
use cowfs_engine::{AttrChange, SEGMENT_BYTES};
use proptest::prelude::*;
use support::cases::run_cases;
use support::{Base, ROOT, Tree, World, root_user, tree_of};

const PATHS: [&str; 6] = ["a", "b", "c", "d/a", "d/b", "e/a"];

#[derive(Debug, Clone)]
enum Op {
    Put(usize, u16, u8),
    Write(usize, u16, u16, u8),
    Truncate(usize, u16),
    Unlink(usize),
    Rename(usize, usize, bool),
    Link(usize, usize),
    Mkdir(bool),
    SetXattr(usize, u8),
    Fsync(usize),
    Sync,
    /// Bytes of the first file at the second, as copy_file_range does it: from, to, how many.
    Copy(usize, usize, u16, u16, u16),
    /// A hole in a file; Punch is one in a segment.
    Dig(usize, u16, u16),
    /// A file that is made without a name, written, perhaps fsynced, and gets the name then.
    LinkUnnamed(usize, u16, u8, bool),
    Freeze,
    Commit,
    Fail,
    Trim,
    Reclaim,
    Checkpoint,
    Punch,
    Kill,
    PowerLoss(u64),
    PowerLossBehindHead(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let path = || 0..PATHS.len();
    prop_oneof![
        5 => (path(), 0_u16..3000, 1_u8..=255).prop_map(|(at, length, byte)| Op::Put(at, length, byte)),
        9 => (path(), 0_u16..4000, 1_u16..3000, 1_u8..=255).prop_map(|(at, offset, length, byte)| Op::Write(at, offset, length, byte)),
        3 => (path(), 0_u16..6000).prop_map(|(at, size)| Op::Truncate(at, size)),
        2 => path().prop_map(Op::Unlink),
        4 => (path(), path(), any::<bool>()).prop_map(|(from, to, exchanges)| Op::Rename(from, to, exchanges)),
        1 => (path(), path()).prop_map(|(from, to)| Op::Link(from, to)),
        2 => any::<bool>().prop_map(Op::Mkdir),
        1 => (path(), any::<u8>()).prop_map(|(at, value)| Op::SetXattr(at, value)),
        9 => (path(), path(), 0_u16..3000, 0_u16..3000, 1_u16..4000).prop_map(|(from, to, offset, at, length)| Op::Copy(from, to, offset, at, length)),
        2 => (path(), 0_u16..4000, 1_u16..3000).prop_map(|(at, offset, length)| Op::Dig(at, offset, length)),
        3 => (path(), 1_u16..3000, 1_u8..=255, any::<bool>()).prop_map(|(at, length, byte, syncs)| Op::LinkUnnamed(at, length, byte, syncs)),
        6 => path().prop_map(Op::Fsync),
        1 => Just(Op::Sync),
        3 => Just(Op::Freeze),
        2 => Just(Op::Commit),
        1 => Just(Op::Fail),
        1 => Just(Op::Trim),
        3 => Just(Op::Reclaim),
        3 => Just(Op::Checkpoint),
        3 => Just(Op::Punch),
        1 => Just(Op::Kill),
        3 => any::<u64>().prop_map(Op::PowerLoss),
        1 => any::<u64>().prop_map(Op::PowerLossBehindHead),
    ]
}

/// The tree behind one operation, and what each file held.
struct Moment {
    tree: Tree,
    inodes: BTreeMap<PathBuf, Ino>,
}

impl Moment {
    fn of(world: &World) -> Moment {
        let tree = world.tree();
        let inode = |path: &PathBuf| {
            world
                .resolve(path.to_str().expect("UTF-8"))
                .expect("exists")
        };
        let inodes = tree
            .keys()
            .map(|path| (path.clone(), inode(path)))
            .collect();
        Moment { tree, inodes }
    }

    fn bytes_of(&self, ino: Ino) -> Option<&[u8]> {
        let (path, _) = self.inodes.iter().find(|(_, found)| **found == ino)?;
        Some(&self.tree[path].bytes)
    }

    /// As a user sees it, but for the bytes.
    fn shape(&self) -> Vec<(&PathBuf, Ino, u32, u32, usize, String)> {
        let line = |(path, seen): (_, &support::Seen)| {
            let xattrs = format!("{:?}", seen.xattrs);
            (
                path,
                self.inodes[path],
                seen.mode,
                seen.nlink,
                seen.bytes.len(),
                xattrs,
            )
        };
        self.tree.iter().map(line).collect()
    }
}

/// Numbers out of a seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}

/// A disk that remembers what it was told to keep.
struct Disk {
    world: World,
    history: Vec<Moment>,
    /// Index of the earliest moment that names and sizes may be of after a power loss.
    floor: usize,
    /// By file, the moment of its last fsync.
    fsynced: BTreeMap<Ino, usize>,
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
    fn new(segment_bytes: u64) -> Disk {
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

    fn now(&self) -> usize {
        self.history.len() - 1
    }

    /// What is there now is on stable storage, and there is no way back.
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
    fn journal_synced(&mut self) {
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
    fn file_synced(&mut self, ino: Ino) {
        let extents = self.world.ask(|engine| engine.live_extents(ino));
        let extents = extents.expect("exists").1;
        let uncommitted = extents.iter().filter(|extent| extent.chunk.is_none());
        for (segment, _) in uncommitted.filter_map(|extent| extent.staged) {
            let path = self.folder("staging").join(format!("{segment:016x}.seg"));
            let length = fs::metadata(&path).expect("exists").len() as usize;
            self.synced.entry(path).or_default().extend(0..length);
        }
    }

    /// All that was there at the moment `then` is on stable storage, copies made since included. A write that came behind it
    /// counts as well: which bytes are its own cannot be seen from here. Segments that no file with a name needs (of a file that
    /// never got one, say) are nobody's promise.
    fn all_synced(&mut self, then: usize) {
        self.sync_files("journal", "log");
        self.sync_files("journal", "ckpt");
        let now: Vec<Ino> = self.history[self.now()].inodes.values().copied().collect();
        now.iter().for_each(|ino| self.file_synced(*ino));
        self.floor = self.floor.max(then);
        let inodes = self.history[then].inodes.values();
        self.fsynced.extend(inodes.map(|ino| (*ino, then)));
    }

    /// Notices segments that went without a commit: if one had been promised, what is mapped instead must be durable by now.
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
        // Behind a write nobody can tell: the write's own bytes are not durable in any case.
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

    fn run(&mut self, op: &Op) {
        let before = self.contents();
        let then = self.now();
        self.change(op);
        self.look_for_reclaimed(op, then, before);
        self.run_durability(op);
    }

    fn change(&mut self, op: &Op) {
        let caller = root_user();
        // Errors (a path that is not there, a directory in the way) are part of the game.
        let _ = match op {
            Op::Put(at, length, byte) => self.put(PATHS[*at], &vec![*byte; usize::from(*length)]),
            Op::Write(at, offset, length, byte) => {
                let bytes = vec![*byte; usize::from(*length)];
                self.world.write_at(PATHS[*at], u64::from(*offset), &bytes)
            }
            Op::Truncate(at, size) => self.world.resolve(PATHS[*at]).and_then(|ino| {
                let change = AttrChange {
                    size: Some(u64::from(*size)),
                    ..AttrChange::default()
                };
                self.world
                    .ask(|engine| engine.setattr(ino, &caller, &change))
                    .map(drop)
            }),
            Op::Unlink(at) => self.world.unlink(PATHS[*at]),
            Op::Rename(from, to, exchanges) => {
                self.rename(PATHS[*from], PATHS[*to], u32::from(*exchanges) * 2)
            }
            Op::Link(from, to) => self.link(PATHS[*from], PATHS[*to]),
            Op::Mkdir(first) => {
                let name = if *first { &b"d"[..] } else { b"e" };
                self.world
                    .ask(|engine| engine.mkdir(ROOT, name, 0o755, &caller))
                    .map(drop)
            }
            Op::SetXattr(at, value) => self.world.resolve(PATHS[*at]).and_then(|ino| {
                self.world
                    .ask(|engine| engine.set_xattr(ino, b"user.x", &[*value], 0))
            }),
            Op::Copy(from, to, offset, at, length) => self.copy(
                (PATHS[*from], u64::from(*offset)),
                (PATHS[*to], u64::from(*at)),
                u64::from(*length),
            ),
            Op::Dig(at, offset, length) => {
                self.punch(PATHS[*at], u64::from(*offset), u64::from(*length))
            }
            Op::LinkUnnamed(at, length, byte, syncs) => {
                self.link_unnamed(PATHS[*at], &vec![*byte; usize::from(*length)], *syncs)
            }
            Op::Reclaim => self.world.ask(|engine| engine.reclaim_staging()).map(drop),
            Op::Punch => self.world.ask(|engine| engine.punch_staging()).map(drop),
            _ => Ok(()),
        };
        self.history.push(Moment::of(&self.world));
    }

    /// Two records, so two moments.
    fn put(&mut self, path: &str, bytes: &[u8]) -> Result<(), Errno> {
        let (parent, name) = self.world.place(path)?;
        let flags = libc::O_RDWR | libc::O_TRUNC;
        let (attr, fh) = self
            .world
            .ask(|engine| engine.create(parent, name, 0o644, flags, &root_user()))?;
        self.history.push(Moment::of(&self.world));
        self.world.ask(|engine| engine.write(fh, 0, bytes, true))?;
        self.world.ask(|engine| engine.release(fh))?;
        self.world.ask(|engine| engine.forget(attr.ino, 1))
    }

    fn copy(&self, from: (&str, u64), to: (&str, u64), length: u64) -> Result<(), Errno> {
        let (source, target) = (self.world.resolve(from.0)?, self.world.resolve(to.0)?);
        let open = |ino, flags| self.world.ask(|engine| engine.open_file(ino, flags));
        let (source, target) = (open(source, libc::O_RDONLY)?, open(target, libc::O_WRONLY)?);
        let copied = self
            .world
            .ask(|engine| engine.copy_range((source, from.1), (target, to.1), length, false));
        self.world.ask(|engine| engine.release(source))?;
        self.world.ask(|engine| engine.release(target))?;
        copied.map(drop)
    }

    fn punch(&self, path: &str, offset: u64, length: u64) -> Result<(), Errno> {
        let ino = self.world.resolve(path)?;
        let fh = self
            .world
            .ask(|engine| engine.open_file(ino, libc::O_WRONLY))?;
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let punched = self
            .world
            .ask(|engine| engine.allocate(fh, offset, length, mode, false));
        self.world.ask(|engine| engine.release(fh))?;
        punched
    }

    fn link_unnamed(&mut self, path: &str, bytes: &[u8], syncs: bool) -> Result<(), Errno> {
        let (parent, name) = self.world.place(path)?;
        let (attr, fh) = self
            .world
            .ask(|engine| engine.create_unnamed(ROOT, 0o640, libc::O_RDWR, &root_user()))?;
        self.world.ask(|engine| engine.write(fh, 0, bytes, true))?;
        if syncs {
            self.world.engine().fsync(fh, false).expect("syncs");
            self.journal_synced();
            self.file_synced(attr.ino);
        }
        let linked = self
            .world
            .ask(|engine| engine.link(attr.ino, parent, name))
            .map(drop);
        if syncs && linked.is_ok() {
            // Its first moment is the one that comes now.
            self.fsynced.insert(attr.ino, self.now() + 1);
        }
        self.world.ask(|engine| engine.release(fh))?;
        let lookups = 1 + u64::from(linked.is_ok());
        self.world.ask(|engine| engine.forget(attr.ino, lookups))?;
        linked
    }

    fn rename(&self, from: &str, to: &str, flags: u32) -> Result<(), Errno> {
        let (parent, name) = self.world.place(from)?;
        let (new_parent, new_name) = self.world.place(to)?;
        self.world
            .ask(|engine| engine.rename(parent, name, new_parent, new_name, flags, &root_user()))
    }

    fn link(&self, from: &str, to: &str) -> Result<(), Errno> {
        let ino = self.world.resolve(from)?;
        let (parent, name) = self.world.place(to)?;
        self.world.ask(|engine| engine.link(ino, parent, name))?;
        self.world.ask(|engine| engine.forget(ino, 1))
    }

    fn run_durability(&mut self, op: &Op) {
        match op {
            Op::Fsync(at) => drop(self.fsync(PATHS[*at])),
            Op::Sync => {
                self.world.engine().sync().expect("syncs");
                self.journal_synced();
                // Not all segments: one that nothing needs stays out.
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

    fn lose_power(&mut self, seed: u64) {
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

/// What a power loss makes of a file of which only `synced` is on stable storage.
fn damage(path: &Path, mut bytes: Vec<u8>, synced: &BTreeSet<usize>, dice: &mut Dice) {
    if synced.is_empty() && dice.roll(3) == 0 {
        fs::remove_file(path).expect("vanishes");
        return;
    }
    const BLOCK: usize = 64;
    let mode = dice.roll(4);
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
    let shortest = synced.last().map_or(0, |last| last + 1);
    if dice.roll(3) == 0 {
        let room = (bytes.len() - shortest) as u64 + 1;
        bytes.truncate(shortest + dice.roll(room) as usize);
    }
    // A file of two numbers: what becomes of one name's bytes is decided for each.
    fs::remove_file(path).expect("removes");
    fs::write(path, bytes).expect("damages");
}

fn check(ops: &[Op], segment_bytes: u64) {
    let mut disk = Disk::new(segment_bytes);
    for op in ops {
        disk.run(op);
    }
    disk.lose_power(0x5eed);
    let before = disk.world.tree();
    if let Some(layer) = disk.world.freeze() {
        disk.world.commit(layer);
    }
    assert_eq!(tree_of(&disk.world.base), before, "after a commit");
}

/// Short ones fill up, so that they are left to be reclaimed and their files to be used again.
fn segment_bytes() -> impl Strategy<Value = u64> {
    prop_oneof![Just(4 << 10), Just(8 << 10), Just(SEGMENT_BYTES)]
}

#[test]
fn a_power_loss_takes_only_what_no_fsync_covered() {
    let cases = (prop::collection::vec(op(), 1..60), segment_bytes());
    run_cases(100, cases, |(ops, segment_bytes)| {
        check(&ops, segment_bytes)
    });
}
