//! Random operations on an engine whose disk loses pages of segments, and of cached chunks, at any
//! moment while it runs (`kernel` says how). Invariants:
//!
//! - a read gives the written bytes, or EIO; EIO only for a file that was neither synced nor
//!   committed since its last change;
//! - a sync succeeds only if the bytes that it covers are never lost again; a commit has the tree
//!   as it was at the freeze, or is refused;
//! - all this holds over a restart, after which the kernel may not remember earlier failures;
//! - when lost bytes have been written anew, a commit succeeds;
//! - if the kernel reports nothing, a version still has the tree as it was at the freeze, or there
//!   is no version.

#[path = "lost_pages/kernel.rs"]
mod kernel;
#[path = "lost_pages/op.rs"]
mod op;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cowfs_base::{Errno, Layer};
use cowfs_engine::{AttrChange, Punching, SEGMENT_BYTES};
use op::{Op, Pass, ops};
use proptest::prelude::*;
use support::cases::{Dice, count, run_cases};
use support::{Base, ROOT, World, root_user, tree_of};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// What a file must hold.
#[derive(Debug, Clone)]
struct Known {
    bytes: Vec<u8>,
    /// Another after each change, of all files.
    version: u64,
    /// Synced or committed since: it must be readable.
    is_safe: bool,
}

type Files = BTreeMap<&'static str, Known>;

struct Mount {
    world: World,
    files: Files,
    frozen: Option<(Layer, Files)>,
    changes: u64,
}

impl Mount {
    fn new(segment_bytes: u64, tells: bool) -> Mount {
        kernel::start_over(tells);
        Mount {
            world: World::with_segments(Base::empty(), segment_bytes),
            files: Files::new(),
            frozen: None,
            changes: 0,
        }
    }

    fn staging(&self) -> PathBuf {
        self.world.temp.path().join("working/staging")
    }

    fn run(&mut self, op: &Op) {
        let outcome = self.change(op).and_then(|()| self.keep(op));
        count(op, outcome.is_ok());
        if let Err(errno) = outcome {
            let is_fault = errno == Errno::EIO && kernel::has_failed();
            assert!(
                is_fault
                    || errno == Errno::ENOENT
                    || errno == Errno::EINVAL
                    || errno == Errno::EOPNOTSUPP,
                "{op:?}: {errno}"
            );
        }
    }

    fn change(&mut self, op: &Op) -> Result<(), Errno> {
        match op {
            Op::Put(at, length) => {
                let bytes = self.fresh(*length);
                self.world.put(NAMES[*at], &bytes);
                self.note(NAMES[*at], bytes);
            }
            Op::Write(at, offset, length) => {
                let bytes = self.fresh(*length);
                self.world
                    .write_at(NAMES[*at], u64::from(*offset), &bytes)?;
                self.note_write(NAMES[*at], usize::from(*offset), &bytes);
            }
            Op::Truncate(at, size) => {
                let ino = self.world.resolve(NAMES[*at])?;
                let change = AttrChange {
                    size: Some(u64::from(*size)),
                    ..AttrChange::default()
                };
                self.world
                    .ask(|engine| engine.setattr(ino, &root_user(), &change))?;
                let mut bytes = self.files[NAMES[*at]].bytes.clone();
                bytes.resize(usize::from(*size), 0);
                self.note(NAMES[*at], bytes);
            }
            Op::Unlink(at) => {
                self.world.unlink(NAMES[*at])?;
                self.files.remove(NAMES[*at]);
            }
            Op::Rename(from, to) => {
                let (from, to) = (NAMES[*from], NAMES[*to]);
                self.world.ask(|engine| {
                    engine.rename(ROOT, from.as_bytes(), ROOT, to.as_bytes(), 0, &root_user())
                })?;
                if let Some(known) = self.files.remove(from) {
                    self.files.insert(to, known);
                }
            }
            Op::Copy(from, to, offset, at, length) => {
                let (from, to) = (NAMES[*from], NAMES[*to]);
                let (offset, at) = (usize::from(*offset), usize::from(*at));
                let copied = self.copy((from, offset), (to, at), usize::from(*length))?;
                if copied > 0 {
                    let bytes = self.files[from].bytes[offset..offset + copied].to_vec();
                    self.note_write(to, at, &bytes);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// What does not change the tree.
    fn keep(&mut self, op: &Op) -> Result<(), Errno> {
        let staging = self.staging();
        match op {
            Op::Read(at, offset) => self.check(NAMES[*at], usize::from(*offset), 1000),
            Op::Look => self.check_all(),
            Op::Fsync(at) => self.fsync(NAMES[*at])?,
            Op::Sync => {
                self.world.ask(|engine| engine.sync())?;
                self.note_sync();
            }
            Op::Freeze if self.frozen.is_none() => self.freeze(),
            Op::Commit => self.commit(),
            Op::Trim => drop(self.world.ask(|engine| engine.trim_staging(0))?),
            Op::Pass(pass) => self.pass(*pass)?,
            Op::PassAround(pass, batches, write) => self.pass_around(*pass, *batches, *write)?,
            Op::Evict => drop(self.world.ask(|engine| engine.evict(0))?),
            Op::Kill(seed) => self.kill(*seed),
            Op::FailPages(seed) => kernel::fail_pages(&staging, *seed),
            Op::FailPagesBetween(seed) => {
                let seed = *seed;
                self.world
                    .interrupt_with(move |_| kernel::fail_pages(&staging, seed));
            }
            Op::FailNextSync(seed) => kernel::fail_next_sync(*seed),
            Op::DropPages(seed) => kernel::drop_pages(&staging, *seed),
            Op::NextSegment => self.fill_segment(),
            Op::SpoilCache(seed) => spoil_cache(&self.world.temp.path().join("cache"), *seed),
            _ => {}
        }
        Ok(())
    }

    fn pass(&self, pass: Pass) -> Result<(), Errno> {
        self.world.ask(|engine| {
            match pass {
                Pass::Reclaim => drop(engine.reclaim_staging()?),
                Pass::ReclaimWhenDue => drop(engine.reclaim_when_due(Duration::ZERO)?),
                Pass::Punch => drop(engine.punch_staging(Punching::Thorough)?),
                Pass::Checkpoint => drop(engine.checkpoint()?),
            }
            Ok(())
        })
    }

    /// The file is written when the pass has looked at so many batches of extents.
    fn pass_around(
        &mut self,
        pass: Pass,
        batches: usize,
        (at, offset, length): (usize, u16, u16),
    ) -> Result<(), Errno> {
        let ino = self.world.resolve(NAMES[at])?;
        let fh = self
            .world
            .ask(|engine| engine.open_file(ino, libc::O_WRONLY))?;
        let bytes = self.fresh(length);
        let is_written = Arc::new(AtomicBool::new(false));
        let (written, data) = (is_written.clone(), bytes.clone());
        self.world.interrupt_after(batches, move |engine| {
            // Not `write`, which may wait for the pass.
            let outcome = engine.write_at_once(fh, offset.into(), &data, true);
            written.store(outcome.is_ok(), Ordering::Relaxed);
        });
        let outcome = self.pass(pass);
        self.world.was_not_interrupted();
        self.world.ask(|engine| engine.release(fh))?;
        let is_written = is_written.load(Ordering::Relaxed);
        count(&"WrittenDuringPass", is_written);
        if is_written {
            self.note_write(NAMES[at], usize::from(offset), &bytes);
        }
        outcome
    }

    /// Makes the next write go to another segment. Not with long segments: they would have to be
    /// written.
    fn fill_segment(&mut self) {
        if self.world.segment_bytes < SEGMENT_BYTES {
            let bytes = vec![1; self.world.segment_bytes as usize];
            self.world.put("full", &bytes);
            self.world.unlink("full").expect("unlinks");
        }
    }

    /// No two writes of a world have the same bytes, and no byte is zero.
    fn fresh(&mut self, length: u16) -> Vec<u8> {
        self.changes += 1;
        let mut dice = Dice(self.changes);
        (0..length).map(|_| dice.roll(255) as u8 + 1).collect()
    }

    fn note(&mut self, name: &'static str, bytes: Vec<u8>) {
        self.changes += 1;
        let known = Known {
            bytes,
            version: self.changes,
            is_safe: false,
        };
        self.files.insert(name, known);
    }

    fn note_write(&mut self, name: &'static str, at: usize, written: &[u8]) {
        let mut bytes = self.files[name].bytes.clone();
        bytes.resize(bytes.len().max(at + written.len()), 0);
        bytes[at..at + written.len()].copy_from_slice(written);
        self.note(name, bytes);
    }

    fn copy(&self, from: (&str, usize), to: (&str, usize), length: usize) -> Result<usize, Errno> {
        let (source, target) = (self.world.resolve(from.0)?, self.world.resolve(to.0)?);
        let open = |ino, flags| self.world.ask(|engine| engine.open_file(ino, flags));
        let (source, target) = (open(source, libc::O_RDONLY)?, open(target, libc::O_WRONLY)?);
        let places = ((source, from.1 as u64), (target, to.1 as u64));
        let copied = self
            .world
            .ask(|engine| engine.copy_range(places.0, places.1, length as u64, false));
        self.world.ask(|engine| engine.release(source))?;
        self.world.ask(|engine| engine.release(target))?;
        copied.map(|copied| copied as usize)
    }

    fn fsync(&mut self, name: &'static str) -> Result<(), Errno> {
        let ino = self.world.resolve(name)?;
        let fh = self
            .world
            .ask(|engine| engine.open_file(ino, libc::O_RDONLY))?;
        let outcome = self.world.ask(|engine| engine.fsync(fh, false));
        self.world.ask(|engine| engine.release(fh))?;
        if outcome.is_ok()
            && let Some(known) = self.files.get_mut(name)
        {
            known.is_safe = true;
        }
        outcome
    }

    /// A sync of everything covers all bytes that are not known to be lost.
    fn note_sync(&mut self) {
        let lost = self.world.engine().lost_files().expect("says");
        for (name, known) in &mut self.files {
            let ino = self.world.resolve(name).expect("exists");
            known.is_safe |= lost.iter().all(|(other, _)| *other != ino);
        }
    }

    /// As a commit begins: not while lost bytes of files are known.
    fn freeze(&mut self) {
        let lost = self.world.engine().lost_files().expect("says");
        if lost.is_empty() {
            let layer = self.world.freeze();
            self.frozen = layer.map(|layer| (layer, self.files.clone()));
        }
        count(&"FreezeRefused", !lost.is_empty());
    }

    fn commit(&mut self) {
        let Some((layer, then)) = self.frozen.take() else {
            return;
        };
        let is_refused = self.is_refused(layer);
        count(&"CommitRefused", is_refused);
        if is_refused {
            assert!(kernel::has_failed());
            return;
        }
        self.world.commit(layer);
        let found = tree_of(&self.world.base);
        for (name, known) in &then {
            let seen = &found[&Path::new("/").join(name)];
            assert!(seen.bytes == known.bytes, "{name} in the version");
        }
        assert_eq!(found.len(), then.len() + 1);
        for known in self.files.values_mut() {
            let is_committed = then.values().any(|then| then.version == known.version);
            known.is_safe |= is_committed;
        }
    }

    /// As a commit ends that cannot read all it needs: its files are looked at, and the layer joins
    /// the next.
    fn is_refused(&self, layer: Layer) -> bool {
        let engine = self.world.engine();
        let contents = engine
            .layer_contents(layer, 0, usize::MAX)
            .expect("contents");
        let is_readable = |ino| {
            let extents = engine.layer_extents(layer, ino).expect("extents");
            let staged = extents.iter().filter(|extent| extent.chunk.is_none());
            staged.into_iter().all(|extent| {
                extent.staged.is_some_and(|(segment, offset)| {
                    let mut bytes = vec![0; extent.length as usize];
                    engine.read_staged(segment, offset, &mut bytes).is_ok()
                })
            })
        };
        if contents.iter().all(|(ino, _)| is_readable(*ino)) {
            return false;
        }
        for (ino, _) in contents {
            match self.world.ask(|engine| engine.lose_unreadable(ino)) {
                Ok(_) | Err(Errno::ENOENT) => {}
                Err(errno) => panic!("{errno}"),
            }
        }
        engine.layer_failed(layer).expect("joins");
        true
    }

    fn kill(&mut self, seed: u64) {
        self.frozen = None;
        self.world.drop_engine();
        kernel::forget_inodes(&self.staging(), seed);
        self.world.open().expect("recovers");
    }

    fn check_all(&self) {
        let mut names: Vec<String> = self.files.keys().map(|name| name.to_string()).collect();
        names.sort();
        let mut found = self.world.names("/");
        found.sort();
        assert_eq!(found, names);
        for (name, known) in &self.files {
            for at in (0..known.bytes.len()).step_by(1500) {
                self.check(name, at, 1500);
            }
        }
    }

    fn check(&self, name: &str, offset: usize, length: usize) {
        let Some(known) = self.files.get(name).filter(|_| kernel::tells()) else {
            return;
        };
        let end = known.bytes.len().min(offset + length);
        let expected = known.bytes.get(offset..end).unwrap_or_default();
        let read = || -> Result<Vec<u8>, Errno> {
            let ino = self.world.resolve(name)?;
            let open = |flags| self.world.ask(|engine| engine.open_file(ino, flags));
            let fh = open(libc::O_RDONLY)?;
            let found = self
                .world
                .ask(|engine| engine.read_file(fh, offset as u64, length));
            self.world.ask(|engine| engine.release(fh))?;
            found
        };
        match read() {
            Ok(found) => assert!(
                found == expected,
                "{name} from {offset}: {}",
                difference(&found, expected)
            ),
            Err(Errno::EIO) => {
                assert!(
                    !known.is_safe,
                    "{name} from {offset}: what was safe is lost"
                );
                assert!(kernel::has_failed());
            }
            Err(errno) => panic!("{name}: {errno}"),
        }
        count(&"Compared", read().is_ok());
    }

    /// Everything that may be lost is written anew: then a commit succeeds.
    fn mend(&mut self) {
        kernel::recover();
        let files = self.files.clone();
        let may_be_lost = |known: &Known| !known.is_safe || !kernel::tells();
        for (name, known) in files.iter().filter(|(_, known)| may_be_lost(known)) {
            self.world.unlink(name).expect("unlinks");
            self.world.put(name, &known.bytes);
        }
        self.commit();
        self.freeze();
        self.commit();
        assert!(!self.world.engine().is_dirty().expect("says"), "committed");
        self.world
            .ask(|engine| engine.trim_staging(0))
            .expect("trims");
        self.files
            .values_mut()
            .for_each(|known| known.is_safe = true);
        self.check_all();
    }
}

fn difference(found: &[u8], expected: &[u8]) -> String {
    let at = found.iter().zip(expected).position(|(a, b)| a != b);
    format!(
        "{} of {} bytes, another at {at:?}",
        found.len(),
        expected.len()
    )
}

/// A cached chunk loses a page, or its end.
fn spoil_cache(dir: &Path, seed: u64) {
    let mut dice = Dice(seed);
    let folders = fs::read_dir(dir).into_iter().flatten().flatten();
    let folders = folders.filter(|entry| entry.file_name() != "whole" && entry.path().is_dir());
    let files = folders.flat_map(|folder| fs::read_dir(folder.path()).expect("lists"));
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("entry").path()).collect();
    files.sort();
    for path in files {
        if dice.roll(3) > 0 {
            continue;
        }
        let file = fs::File::options().write(true).open(path).expect("opens");
        let length = file.metadata().expect("says").len();
        let at = dice.roll(length.max(1));
        match dice.roll(2) {
            0 => file.set_len(at).expect("cuts"),
            _ => file
                .write_all_at(&vec![0; (length - at).min(500) as usize], at)
                .expect("overwrites"),
        }
        count(&"ChunkSpoiled", true);
    }
}

fn check(ops: &[Op], segment_bytes: u64, tells: bool) {
    let mut mount = Mount::new(segment_bytes, tells);
    for at in 0..NAMES.len() - 1 {
        mount.run(&Op::Put(at, 4000));
    }
    ops.iter().for_each(|op| mount.run(op));
    mount.check_all();
    mount.kill(1);
    mount.check_all();
    mount.mend();
}

/// Short ones fill up, so that they are left to be reclaimed and their files to be used again.
fn segment_bytes() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(16 << 10), 2 => Just(64 << 10), 1 => Just(SEGMENT_BYTES)]
}

/// What an fsync had covered was moved, and the write-back of the copy failed: the copy must not be
/// all there is.
const SYNCED_AND_MOVED: [Op; 9] = [
    Op::Fsync(0),
    Op::FailNextSync(86_419_250_367_933_094),
    Op::Fsync(1),
    Op::Kill(0),
    Op::Unlink(0),
    Op::Put(2, 1),
    Op::Pass(Pass::Reclaim),
    Op::FailPages(5_104_487_863_068_347_223),
    Op::Put(2, 1),
];

/// What an fsync had covered got another number, beside what the disk had lost: they must not share
/// a checksum there.
const SYNCED_BESIDE_LOST: [Op; 10] = [
    Op::Put(3, 385),
    Op::Put(1, 9000),
    Op::Put(1, 9000),
    Op::FailPages(15_533_103_310_169_612_858),
    Op::Pass(Pass::Reclaim),
    Op::FailPages(9_765_011_773_262_154_432),
    Op::Put(4, 1),
    Op::Kill(3_371_353_658_638_236_923),
    Op::Fsync(4),
    Op::Pass(Pass::Punch),
];

/// One test: the kernel is one for the process.
#[test]
fn a_byte_is_right_or_an_error() {
    check(&SYNCED_AND_MOVED, 16 << 10, true);
    check(&SYNCED_BESIDE_LOST, 16 << 10, true);
    let tells = prop_oneof![2 => Just(true), 1 => Just(false)];
    let cases = (ops(), segment_bytes(), tells);
    run_cases(100, cases, |(ops, segment_bytes, tells)| {
        check(&ops, segment_bytes, tells)
    });
}
